"""A whole comparison: what is measured in which order, and what each part of it may take."""

import datetime
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from regard import machine
from regard.compare.bar import Bar
from regard.compare.curves import curve, decode
from regard.compare.folder import folder_for, publish
from regard.compare.gradients import gradient_norms
from regard.compare.graph import sequential_operations
from regard.compare.helper import Helper
from regard.compare.layers import Subject, subjects_named
from regard.compare.notes import left_out, notes_on
from regard.compare.paths import path_lengths
from regard.compare.results import (
    Axis,
    Comparison,
    Counted,
    Curve,
    Decode,
    Gradients,
    Layer,
    Machine,
    Pass,
    Quality,
)
from regard.compare.scaling import crossovers
from regard.errors import RegardError
from regard.version import VERSION

Say = Callable[[str, float], None]


@runtime_checkable
class Learning(Protocol):
    """Trains a model of each layer on small tasks, within so many seconds for all of them."""

    def __call__(
        self, subjects: Sequence[Subject], *, seconds: float, seed: int, progress: Say
    ) -> dict[str, tuple[Quality, ...]]:
        """What each learned, by name."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, as far as time and memory allow.

    Attributes:
        d_model: the width at which the length varies.
        num_heads: heads of layers that have some.
        lengths: rising.
        length: the one at which the width varies.
        widths: rising.
        contexts: tokens before a step of decoding, rising.
        quality_share: of all time, what learning gets.
        page_share: of all time, what writing the page gets.
    """

    d_model: int = 256
    num_heads: int = 4
    lengths: tuple[int, ...] = tuple(2**power for power in range(7, 21))
    length: int = 1024
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    contexts: tuple[int, ...] = (128, 512, 2048, 8192)
    quality_share: float = 0.45
    page_share: float = 0.05


# The curves of a layer, and how much time each gets beside the others; decoding comes last.
_CURVES: tuple[tuple[Pass, Axis, float], ...] = (
    ("forward", "n", 3.0),
    ("training", "n", 5.0),
    ("forward", "d", 1.0),
    ("training", "d", 1.5),
)
_DECODING = 1.0
_ALL = sum(weight for *_, weight in _CURVES) + _DECODING


class Clock:
    """The time that a comparison has, and what of it is left."""

    def __init__(self, seconds: float) -> None:
        self.started = time.perf_counter()
        self.seconds = seconds

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.started

    @property
    def share(self) -> float:
        """The share of all time that has passed."""
        return self.passed / self.seconds

    def until(self, share: float) -> float:
        """Seconds until that share of all time has passed; 0 if it has."""
        return max(0.0, share * self.seconds - self.passed)


def compare(
    out: Path,
    *,
    minutes: float = 3.0,
    seed: int = 0,
    names: Sequence[str] = (),
    threads: int | None = None,
    plan: Plan | None = None,
    learn: Learning | None = None,
    write: Callable[[Comparison, Path], None] | None = None,
) -> Comparison:
    """Measure layers on this machine, and write what was found to a folder.

    Args:
        out: the folder to write; an earlier comparison in it is replaced.
        minutes: what all may take; a measurement that should take longer than is left is not
            begun, and the comparison says so.
        seed: of all random numbers.
        names: the layers; all if empty.
        threads: of PyTorch; all usable cores if left out.
        plan: what to measure.
        learn: what makes the quality column; there is none if left out.
        write: writes the page and plots into a folder, beside compare.json.

    Raises:
        RegardError: there is no layer of a name, or `minutes` or `seed` is not a number to use.
        RunFolderError: `out` holds something else, or can't be written.
    """
    if not (math.isfinite(minutes) and minutes > 0):
        raise RegardError(f"expected minutes above 0, got {minutes}", where="--minutes")
    if not 0 <= seed < 2**63:
        raise RegardError(f"expected a seed from 0 to 2^63 - 1, got {seed}", where="--seed")
    clock, plan = Clock(60 * minutes), plan or Plan()
    subjects = subjects_named(names)
    before = torch.get_num_threads()
    with folder_for(out) as aside, Bar() as bar:
        torch.set_num_threads(threads or machine.usable_cores())
        try:
            measured = 1 - plan.page_share - (plan.quality_share if learn else 0.0)
            counts = _all_counts(subjects, clock, seed=seed, say=bar)
            layers, weights = [], sum(map(_weight, subjects))
            for subject in subjects:
                now, weight = clock.share, _weight(subject)
                until = now + (measured - now) * weight / weights
                weights -= weight
                layers.append(
                    _layer(subject, plan, clock, until, counts[subject.name], seed=seed, say=bar)
                )
            missing: tuple[str, ...] = ()
            if learn is not None:
                learned = learn(
                    subjects,
                    seconds=clock.until(1 - plan.page_share),
                    seed=seed,
                    progress=_within(bar, clock.share, 1 - plan.page_share),
                )
                layers = [
                    layer.model_copy(update={"quality": learned.get(layer.name, ())})
                    for layer in layers
                ]
                if not learned:
                    missing = ("what each learns: no time left",)
            described = _machine(torch.get_num_threads())
        finally:
            torch.set_num_threads(before)
        bar("writing the page", clock.share)
        found = Comparison(
            made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            machine=described,
            seed=seed,
            minutes=minutes,
            seconds=round(clock.passed, 1),
            d_model=plan.d_model,
            num_heads=plan.num_heads,
            length=plan.length,
            layers=tuple(layers),
            crossovers=crossovers(layers),
            left_out=(*left_out(layers), *missing),
        )
        publish(found, aside, out, write)
    return found


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """What of a layer is counted, not timed."""

    sequential: Counted | None
    path: Counted
    gradients: Gradients
    problems: tuple[str, ...] = ()


def _all_counts(
    subjects: Sequence[Subject], clock: Clock, *, seed: int, say: Say
) -> dict[str, _Counts]:
    """The counts of all layers, before anything is timed: the first of them load much."""
    with Helper(subjects[0], seed=seed, threads=1):
        counts = {}
        for subject in subjects:
            say(f"{subject.name}: what waits for what", clock.share)
            counts[subject.name] = _counts(subject, seed)
    return counts


def _weight(subject: Subject) -> float:
    """How much time a layer gets beside others: all are compared with full attention."""
    return 2.0 if subject.config.kind == "full" else 1.0


def _layer(
    subject: Subject,
    plan: Plan,
    clock: Clock,
    until: float,
    counts: _Counts,
    *,
    seed: int,
    say: Say,
) -> Layer:
    """All about one layer but what it learns, until that share of all time has passed."""
    curves, steps = [], Decode(reason="it sees both sides, and has no state")
    weights = _ALL
    threads = torch.get_num_threads()
    with Helper(subject, seed=seed, threads=threads) as helper:
        for of, axis, weight in _CURVES:
            say(f"{subject.name}: {of} by {axis}", clock.share)
            seconds = clock.until(until) * weight / weights
            curves.append(_curve(helper, plan, of, axis, seconds))
            weights -= weight
        if subject.causal:
            say(f"{subject.name}: decoding", clock.share)
            steps = decode(
                helper,
                contexts=plan.contexts,
                d=plan.d_model,
                heads=plan.num_heads,
                seconds=clock.until(until),
            )
    built = subject.build(plan.d_model, plan.num_heads, plan.length)
    return Layer(
        name=subject.name,
        title=subject.title,
        kind=subject.config.kind,
        settings=subject.settings,
        causal=subject.causal,
        parameters=sum(parameter.numel() for parameter in built.parameters()),
        theory=subject.theory,
        curves=tuple(curves),
        sequential=counts.sequential,
        path=counts.path,
        decode=steps,
        gradients=counts.gradients,
        notes=(*notes_on(subject, curves), *counts.problems),
    )


def _counts(subject: Subject, seed: int) -> _Counts:
    """The chain of operations, the path and the gradients of a layer."""
    path, gradients = path_lengths(subject, seed=seed), gradient_norms(subject, seed=seed)
    try:
        sequential = sequential_operations(subject, seed=seed)
    except ValueError as error:
        problem = f"sequential operations were not counted: {error}"
        return _Counts(sequential=None, path=path, gradients=gradients, problems=(problem,))
    return _Counts(sequential=sequential, path=path, gradients=gradients)


def _curve(helper: Helper, plan: Plan, of: Pass, axis: Axis, seconds: float) -> Curve:
    along, fixed = (plan.lengths, plan.d_model) if axis == "n" else (plan.widths, plan.length)
    return curve(
        helper,
        of=of,
        axis=axis,
        values=along,
        fixed=fixed,
        heads=plan.num_heads,
        seconds=seconds,
    )


def _within(say: Say, start: float, end: float) -> Say:
    """A progress from 0 to 1, as a part of the whole."""
    return lambda text, share: say(text, start + (end - start) * share)


def _machine(threads: int) -> Machine:
    return Machine(
        processor=machine.cpu_model(),
        cores=machine.usable_cores(),
        memory_gib=round(machine.memory().get("in all", 0.0), 1),
        system=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        regard=VERSION,
        threads=threads,
    )
