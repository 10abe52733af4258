"""What a comparison of sequence layers finds, and its form as JSON. No torch is imported here."""

from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from regard.errors import DataError
from regard.nn.mixers.config import MixerKind
from regard.settings import Settings

Element = TypeVar("Element")
Many = Annotated[tuple[Element, ...], Field(strict=False)]  # JSON knows lists only
Pass = Literal["forward", "training"]
Axis = Literal["n", "d"]
Quantity = Literal["time", "memory"]
Growth = Literal["1", "log n", "n"]

FORMAT: Final = 1


class Machine(Settings):
    """What it was measured on, and by which versions."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    torch: str
    regard: str
    threads: int


class Order(Settings):
    """How something grows by theory: the leading terms, and the exponent once it is large.

    `formula` is plain text such as "n^2 d + n d^2".
    """

    formula: str
    exponent: float


class Theory(Settings):
    """What theory says of one layer, projections included.

    Attributes:
        time_n: products in a pass, by length.
        memory_n: numbers held at the peak of a training step, by length.
        time_d: products in a pass, by width, at the length that it was measured at.
        memory_d: numbers held, by width.
        sequential: operations that wait for one another: "1", "log n" or "n".
        path: layers until all positions reach all others, such as "1" or "n / w".
        decode_time: one token after n others, such as "n d" or "d^2".
        decode_state: numbers kept after n tokens, such as "n d" or "d".
    """

    time_n: Order
    memory_n: Order
    time_d: Order
    memory_d: Order
    sequential: str
    path: str
    decode_time: str
    decode_state: str


class Point(Settings):
    """One measurement: a pass over one sequence of n vectors, d wide.

    Attributes:
        seconds: median of the repeats; None if it was not measured.
        repeats: how many that is the median of.
        peak_bytes: memory in use at the peak above what there was before the pass.
        note: why there is no figure, or what is odd about it.
    """

    n: int
    d: int
    seconds: float | None = None
    repeats: int = 0
    peak_bytes: int | None = None
    note: str = ""


class Fit(Settings):
    """A power law through the last points of a curve, by least squares over logarithms.

    Attributes:
        exponent: y grows as x to this power.
        error: the exponent's standard error.
        points: how many points it goes through, three at least.
        first: the smallest x among them.
        last: the largest.
    """

    exponent: float
    error: float = 0.0
    points: int
    first: int
    last: int


class Curve(Settings):
    """One kind of pass against n or d.

    Attributes:
        of: the forward pass, or a training step (forward and backward).
        axis: what varies.
        fixed: the value of the other: d where n varies, n where d does.
        points: by rising n or d.
        stopped: why it does not go on; "" where it ends as planned.
        time: how the seconds grow; None where that can't be told.
        memory: how the bytes grow.
        time_note: why there is no `time`.
        memory_note: why there is no `memory`.
    """

    of: Pass
    axis: Axis
    fixed: int
    points: Many[Point]
    stopped: str = ""
    time: Fit | None = None
    memory: Fit | None = None
    time_note: str = ""
    memory_note: str = ""


class Count(Settings):
    """Something counted at a length."""

    n: int
    value: int


class Counted(Settings):
    """A count by length, which of "1", "log n" and "n" it follows, and its power of n.

    `settings` are those of the layer that it was counted in: small ones, which show at short
    lengths what the layer's own show at long ones. `unreached` says where a path never reached
    all positions: then `counts` lacks that length.
    """

    counts: Many[Count]
    settings: dict[str, int] = Field(default_factory=dict)
    growth: Growth | None = None
    exponent: float | None = None
    unreached: str = ""


class DecodePoint(Settings):
    """A token after `context` others, for one sequence: its time, and the state that is kept."""

    context: int
    seconds: float
    state_bytes: int


class Decode(Settings):
    """Decoding step by step; no points and a reason for a layer that can't."""

    points: Many[DecodePoint] = ()
    reason: str = ""
    time: Fit | None = None
    state: Fit | None = None


class Quality(Settings):
    """How well models of one layer learned a task, in equal time or equal steps.

    Attributes:
        task: "copying", "recall" or "nesting".
        parameters: of the whole model.
        seconds: of training, the longest of the seeds' runs.
        steps: made in that time, by seed; seed and steps repeat a run exactly.
        seeds: what each was trained with.
        accuracies: share of answers that are right on examples kept from training, by seed.
        chance: the share that guessing gets.
        note: what differs from the other layers, if anything.
        same_as: the layer that was trained for both, if this one is the same function.
    """

    task: str
    parameters: int
    seconds: float
    steps: Many[int]
    seeds: Many[int]
    accuracies: Many[float]
    chance: float
    note: str = ""
    same_as: str = ""


class Gradients(Settings):
    """The norm of the gradient that one output sends to an input so many places before it."""

    distances: Many[int]
    norms: Many[float]


class Layer(Settings):
    """All about one layer.

    Attributes:
        name: unique in a comparison, such as "window" or "plain".
        title: for people, such as "sliding window (512)".
        kind: the mixer's kind; "plain" and "sdpa" are forms of "full".
        settings: of the mixer's config, but its kind.
        causal: whether it was measured seeing the past only.
        parameters: at the width at which n varies.
        curves: by `of` and `axis`.
        sequential: the longest chain of dependent operations in the graph of a pass.
        path: layers until every position reaches every other (every later one if causal).
        notes: why something misses its theory, and other remarks.
    """

    name: str
    title: str
    kind: MixerKind
    settings: dict[str, int]
    causal: bool
    parameters: int
    theory: Theory
    curves: Many[Curve] = ()
    sequential: Counted | None = None
    path: Counted | None = None
    decode: Decode | None = None
    quality: Many[Quality] = ()
    gradients: Gradients | None = None
    notes: Many[str] = ()

    def curve(self, of: Pass, axis: Axis) -> Curve | None:
        """The curve of that pass against that axis, if it was measured."""
        found = (curve for curve in self.curves if (curve.of, curve.axis) == (of, axis))
        return next(found, None)


class Crossover(Settings):
    """From which length on a layer is faster, or smaller, than another.

    Attributes:
        layer: the cure's name.
        baseline: the name of what it is compared with, "plain" or "sdpa".
        of: the pass.
        quantity: time, or peak memory.
        length: interpolated between measured lengths; None where there is no crossing.
        note: "always", "not up to 16,384" and the like, where there is none.
    """

    layer: str
    baseline: str
    of: Pass
    quantity: Quantity
    length: int | None = None
    note: str = ""


class Comparison(Settings):
    """A whole comparison, as it stands in compare.json.

    Attributes:
        made: when, as ISO 8601 in UTC.
        minutes: what it was allowed to take.
        seconds: what it took.
        d_model: the width at which n varies.
        num_heads: heads of layers that have some, at that width.
        length: the length at which d varies.
        left_out: what there was no time or memory for, one sentence each.
    """

    format: Literal[1] = FORMAT
    made: str
    machine: Machine
    seed: int
    minutes: float
    seconds: float
    d_model: int
    num_heads: int
    length: int
    layers: Many[Layer]
    crossovers: Many[Crossover] = ()
    left_out: Many[str] = ()

    def layer(self, name: str) -> Layer:
        """The layer of that name.

        Raises:
            KeyError: there is none.
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def to_json(self) -> str:
        """As JSON text."""
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "compare.json") -> "Comparison":
        """Read what `to_json` wrote.

        Raises:
            DataError: it is not JSON, or not that of a comparison of this format.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise DataError(
                f"expected a comparison of format {FORMAT}: {place or 'the file'}: {first['msg']}",
                where=where,
                hint="run `regard compare` again",
            ) from error


def read_comparison(path: Path) -> Comparison:
    """The comparison in a file.

    Raises:
        DataError: it can't be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"expected a comparison: {error}", where=str(path)) from error
    return Comparison.from_json(text, where=str(path))
