"""A run tried out for a moment: does every part work, how fast is it, how much does it take."""

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch

from regard.counts import counted
from regard.durations import duration
from regard.errors import Interrupted
from regard.recipes.assembled import Assembly
from regard.recipes.assembly import assemble
from regard.recipes.recipe import AnyRecipe
from regard.training.interrupts import Interrupts, stopped
from regard.training.parts import AnyBatch
from regard.training.progress import Reporter, SilentReporter, Standing
from regard.training.validation import Validation
from regard.weights.aside import folder_aside
from regard.weights.run_folder import RunFolder


@dataclass(frozen=True)
class Trial:
    """What a few steps showed: seconds a step and a validation, bytes of memory and of disk.

    `validation` is None where there was none.
    """

    step_seconds: float
    validation: Validation | None
    peak_memory: int
    checkpoint_bytes: int
    precision: str


class _Stopwatch(SilentReporter):
    """Notes when each step ended, and what a validation gave."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.validation: Validation | None = None

    def begin(self, standing: Standing) -> None:
        """Training starts here."""
        self.times.append(time.perf_counter())

    def advanced(self, standing: Standing) -> None:
        """A step is done."""
        self.times.append(time.perf_counter())

    def validated(self, step: int, validation: Validation, *, better: bool) -> None:
        """A validation is done."""
        self.validation = validation


class _Again:
    """One batch, again and again."""

    def __init__(self, batch: AnyBatch) -> None:
        self._batch = batch

    def epoch(self, epoch: int, start: int = 0) -> Iterator[AnyBatch]:
        """The batch."""
        yield from [self._batch][start:]


def try_steps(
    assembly: Assembly,
    folder: Path,
    *,
    steps: int,
    interrupts: Interrupts,
    batch: AnyBatch | None = None,
    validate: bool = False,
) -> Trial:
    """Train for a few steps into a folder that is thrown away; the model is not the same after.

    With `batch`, every step is on that one.

    The first half of the steps is not counted: kernels are made and memory is fetched there.
    """
    training = assembly.recipe.training.model_copy(
        update={"max_steps": steps, "checkpoint_every": steps, "validate_every": 0}
    )
    recipe = assembly.recipe.model_copy(update={"training": training})
    stopwatch = _Stopwatch()
    with RunFolder.create(folder) as run:
        trainer = replace(assembly, recipe=recipe).trainer(
            run,
            assembly.batches() if batch is None else _Again(batch),
            reporter=stopwatch,
            interrupts=interrupts,
            validator=assembly.validator() if validate else None,
        )
        try:
            trainer.run()
        except Interrupted:
            # Nothing of a trial is kept, so there is nothing to go on with.
            raise stopped() from None
        size = sum(
            path.stat().st_size for path in (folder / "checkpoints").rglob("*") if path.is_file()
        )
    spans = [after - before for before, after in pairwise(stopwatch.times)]
    return Trial(
        step_seconds=statistics.fmean(spans[len(spans) // 2 :]),
        validation=stopwatch.validation,
        peak_memory=_peak_memory(trainer.device),
        checkpoint_bytes=size,
        precision=str(trainer.precision),
    )


def dry_run(recipe: AnyRecipe, *, reporter: Reporter, interrupts: Interrupts) -> None:
    """Try a run out: text, model, two steps, a validation, what it is for; say what to expect.

    Raises:
        As `regard.recipes.run.train`; nothing is written outside a temporary folder.
    """
    place = Path(tempfile.gettempdir()) / "regard-dry-run"
    with folder_aside(place, private=True) as aside:
        assembly = assemble(recipe, aside / "data", say=reporter.say)
        trial = try_steps(
            assembly,
            aside / "run",
            steps=2,
            interrupts=interrupts,
            batch=assembly.batches().largest(),
            validate=True,
        )
        used = assembly.try_out()
        reporter.say("\n".join(_forecast(recipe, trial, used, assembly.untrained_remark)))


def _forecast(recipe: AnyRecipe, trial: Trial, used: str, remark: str) -> list[str]:
    training = recipe.training
    steps = training.max_steps
    validations = -(-steps // (training.validate_every or training.checkpoint_every))
    validation = trial.validation.seconds if trial.validation else 0.0
    checkpoints = min(-(-steps // training.checkpoint_every), training.keep_last + 1)
    total = steps * trial.step_seconds + validations * validation
    return [
        f"dry run: text, model, two steps, a checkpoint, a validation and {used} worked",
        f"precision  {trial.precision}",
        f"a step     {1000 * trial.step_seconds:,.0f} ms; later ones are faster than the first",
        f"time       about {duration(total)}: {counted(steps, 'step')}, and "
        f"{counted(validations, 'validation')} of "
        f"up to {duration(validation)}" + remark,
        f"memory     about {_size(trial.peak_memory)}: what the two steps on the largest "
        "batch, a checkpoint and a validation took",
        f"disk       about {_size(checkpoints * trial.checkpoint_bytes)} "
        f"for {counted(checkpoints, 'checkpoint')}",
    ]


def _size(number: int) -> str:
    """Bytes for people."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"


def _peak_memory(device: torch.device) -> int:
    """The most bytes in use so far: on the GPU if that is the device, else by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
