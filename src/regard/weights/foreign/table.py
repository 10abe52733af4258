"""Tables from names elsewhere to ours: each row says which weights become one of ours, and how."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import torch

from regard.errors import CheckpointError
from regard.shapes import Tensor

# What wrappers of torch put before every name.
_PREFIXES: Final = ("_orig_mod.", "module.")
_BOTH: Final = ("weight", "bias")
_LOGIT_BIASES: Final = ("output_bias", "prediction.bias")


@runtime_checkable
class How(Protocol):
    """What is done to weights on their way in, and undone on their way out."""

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """Their weights as ours."""
        ...

    def send(self, whole: Tensor) -> list[Tensor]:
        """Ours as theirs."""
        ...


@dataclass(frozen=True)
class Copied:
    """The same on both sides."""

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """The one that there is."""
        return parts[0]

    def send(self, whole: Tensor) -> list[Tensor]:
        """The same."""
        return [whole]


@dataclass(frozen=True)
class Transposed:
    """A matrix whose rows are inputs elsewhere and outputs here."""

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """Its transpose; a bias is as it is."""
        return parts[0].T.contiguous()

    def send(self, whole: Tensor) -> list[Tensor]:
        """Its transpose."""
        return [whole.T.contiguous()]


@dataclass(frozen=True)
class Stacked:
    """Several matrices elsewhere, of `sizes` rows, that are one of ours, in that order."""

    sizes: tuple[int, ...]

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """One under the other."""
        return torch.cat(list(parts))

    def send(self, whole: Tensor) -> list[Tensor]:
        """Cut apart."""
        return [part.contiguous() for part in torch.split(whole, list(self.sizes))]


@dataclass(frozen=True)
class WithoutFirst:
    """A table whose first `rows` rows are of no use."""

    rows: int

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """The rows after them."""
        return parts[0][self.rows :].contiguous()

    def send(self, whole: Tensor) -> list[Tensor]:
        """Zeros before it."""
        return [torch.cat([whole.new_zeros(self.rows, *whole.shape[1:]), whole])]


@dataclass(frozen=True)
class Flattened:
    """One row of a matrix elsewhere, a vector here."""

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """The row."""
        return parts[0].flatten()

    def send(self, whole: Tensor) -> list[Tensor]:
        """As a matrix of one row."""
        return [whole[None].contiguous()]


@dataclass(frozen=True)
class Row:
    """One line of a table: the weights `theirs` become `ours`."""

    theirs: tuple[str, ...]
    ours: str
    how: How = Copied()


def same(theirs: str, ours: str, kinds: Sequence[str] = _BOTH, how: How | None = None) -> list[Row]:
    """A part that is kept as it is: a row for its weight, and one for its bias."""
    return [Row((f"{theirs}.{kind}",), f"{ours}.{kind}", how or Copied()) for kind in kinds]


def transposed(theirs: str, ours: str, kinds: Sequence[str] = _BOTH) -> list[Row]:
    """A part whose weight is transposed, and its bias."""
    rows: dict[str, How] = {"weight": Transposed(), "bias": Copied()}
    return [Row((f"{theirs}.{kind}",), f"{ours}.{kind}", rows[kind]) for kind in kinds]


def stacked(
    theirs: Sequence[str], ours: str, sizes: Sequence[int], kinds: Sequence[str] = _BOTH
) -> list[Row]:
    """Several parts that are one of ours, their rows one under the other."""
    return [
        Row(tuple(f"{part}.{kind}" for part in theirs), f"{ours}.{kind}", Stacked(tuple(sizes)))
        for kind in kinds
    ]


def kinds(bias: bool) -> tuple[str, ...]:
    """What a part has, with or without a bias."""
    return _BOTH if bias else ("weight",)


def unwrapped(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under names without what torch's wrappers put before them."""

    def bare(name: str) -> str:
        while name.startswith(_PREFIXES):
            name = name.split(".", 1)[1]
        return name

    return {bare(name): weight for name, weight in weights.items()}


def bring(
    rows: Sequence[Row],
    weights: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    *,
    copies: Mapping[str, str] | None = None,
    skipped: Iterable[str] = (),
    where: str,
) -> dict[str, Tensor]:
    """All weights of a checkpoint by our names, in float32.

    Args:
        rows: the table.
        weights: the checkpoint's.
        wanted: the model's, by our names, of which only the shapes count.
        copies: names that may be there and are then the same as another's weight.
        skipped: names that may be there and are no weights of the model.
        where: what to call the checkpoint in an error.

    Raises:
        CheckpointError: a weight is unknown, missing, of another shape, or not of a kind that
            floats are; all of them are named.
    """
    if missing := {row.ours for row in rows} ^ {*wanted}:
        raise AssertionError(f"the table and the model differ in {sorted(missing)}")
    copies, known = copies or {}, {name for row in rows for name in row.theirs}
    unknown = sorted({*weights} - known - {*copies} - {*skipped})
    problems = [f"{name} is unknown" for name in unknown]
    brought = {}
    for row in rows:
        shapes = [part.shape for part in row.how.send(wanted[row.ours])]
        found = []
        for name, shape in zip(row.theirs, shapes, strict=True):
            if problem := _problem(weights.get(name), shape):
                problems.append(f"{name} {problem}")
            else:
                part = weights[name].to(torch.float32)
                if problem := _without_number(row.ours, weights[name], part):
                    problems.append(f"{name} {problem}")
                found.append(part)
        if len(found) == len(shapes):
            brought[row.ours] = row.how.bring(found)
    for name, of in copies.items():
        if name in weights and of in weights and not torch.equal(weights[name], weights[of]):
            problems.append(f"{name} differs from {of}, and the settings say that they are one")
    if problems:
        raise CheckpointError(
            f"the weights are not those of the model that its settings describe: "
            f"{'; '.join(problems)}",
            where=where,
        )
    return brought


def send(rows: Sequence[Row], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of ours by the names of a table."""
    sent: dict[str, Tensor] = {}
    for row in rows:
        sent.update(zip(row.theirs, row.how.send(weights[row.ours]), strict=True))
    return sent


def _problem(weight: Tensor | None, shape: torch.Size) -> str:
    """What is wrong with a weight; "" if nothing is."""
    if weight is None:
        return f"{tuple(shape)} is missing"
    if weight.layout != torch.strided:
        return "is sparse, wanted all its numbers"
    if not weight.is_floating_point():
        return f"is of {str(weight.dtype).removeprefix('torch.')}, wanted floats"
    if weight.shape != shape:
        return f"is {tuple(weight.shape)}, wanted {tuple(shape)}"
    return ""


def _without_number(name: str, weight: Tensor, brought: Tensor) -> str:
    """What is wrong with numbers that float32 does not have; "" if nothing is.

    A bias of logits may be minus infinity, for a token that is never generated.
    """
    good = torch.isfinite(brought)
    if name in _LOGIT_BIASES:
        good |= torch.isneginf(weight)
    if bool(good.all()):
        return ""
    if bool(torch.isfinite(weight.to(torch.float64)).all()):
        return "has numbers that are too large for float32"
    return "has NaN or infinity among its numbers"
