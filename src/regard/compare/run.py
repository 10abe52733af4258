"""A whole comparison: counts, measurements, learning, and the folder that they go to."""

import datetime
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from regard import machine
from regard.compare.bar import Bar
from regard.compare.folder import folder_for, publish
from regard.compare.gradients import gradient_norms
from regard.compare.graph import sequential_operations
from regard.compare.helper import Helper
from regard.compare.layers import Subject, subjects_named
from regard.compare.notes import left_out, notes_on
from regard.compare.paths import path_lengths
from regard.compare.results import Comparison, Counted, Gradients, Layer, Machine, Quality
from regard.compare.scaling import crossovers
from regard.compare.schedule import Clock, Measured, Plan, Say, measure
from regard.errors import RegardError
from regard.version import VERSION


@runtime_checkable
class Learning(Protocol):
    """Trains a model of each layer on small tasks, within so many seconds for all of them."""

    def __call__(
        self, subjects: Sequence[Subject], *, seconds: float, seed: int, progress: Say
    ) -> dict[str, tuple[Quality, ...]]:
        """What each learned, by name."""


def compare(
    out: Path,
    *,
    minutes: float = 3.0,
    started: float | None = None,
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
        started: when that began, by `time.perf_counter`; now, if left out.
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
        raise RegardError(f"expected a finite number above 0, got {minutes}", where="--minutes")
    if not 0 <= seed < 2**63:
        raise RegardError(f"expected a seed from 0 to 2^63 - 1, got {seed}", where="--seed")
    clock, plan = Clock(60 * minutes, started), plan or Plan()
    subjects = subjects_named(names)
    before = torch.get_num_threads()
    with folder_for(out) as aside, Bar() as bar:
        torch.set_num_threads(threads or machine.usable_cores())
        try:
            counts = _all_counts(subjects, clock, seed=seed, say=bar)
            left = clock.shares_from_now(plan.learning)
            longer = 1.0 if learn else plan.learning / plan.decoding
            measured = measure(
                subjects,
                plan,
                clock,
                left=lambda share: left(longer * share),
                seed=seed,
                threads=torch.get_num_threads(),
                say=bar,
            )
            learned: dict[str, tuple[Quality, ...]] = {}
            if learn is not None:
                learned = learn(
                    subjects,
                    seconds=clock.until(plan.learning),
                    seed=seed,
                    progress=_within(bar, clock.share, plan.learning),
                )
            described = _machine(torch.get_num_threads())
        finally:
            torch.set_num_threads(before)
        bar("writing the page", clock.share)
        layers = [
            _layer(subject, plan, counts[subject.name], measured[subject.name], learned)
            for subject in subjects
        ]
        missing = ("what each learns: no time left",) if learn and not learned else ()
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


def _layer(
    subject: Subject,
    plan: Plan,
    counts: _Counts,
    measured: Measured,
    learned: dict[str, tuple[Quality, ...]],
) -> Layer:
    """All about one layer."""
    built = subject.build(plan.d_model, plan.num_heads, plan.length)
    return Layer(
        name=subject.name,
        title=subject.title,
        kind=subject.config.kind,
        settings=subject.settings,
        causal=subject.causal,
        parameters=sum(parameter.numel() for parameter in built.parameters()),
        theory=subject.theory,
        curves=tuple(measured.curves),
        sequential=counts.sequential,
        path=counts.path,
        decode=measured.decode,
        quality=learned.get(subject.name, ()),
        gradients=counts.gradients,
        notes=(*notes_on(subject, measured.curves), *counts.problems),
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
