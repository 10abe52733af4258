"""The training loop, which can be stopped at any moment and resumed to the bit."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import NoReturn

import torch
from torch import nn

from regard.errors import Interrupted, NotFiniteError, RunFolderError
from regard.training.allocator import hold_memory
from regard.training.config import TrainingConfig
from regard.training.devices import choose_device, describe_device
from regard.training.feed import BatchSource, Feed, StepBatch
from regard.training.interrupts import Interrupts, stopped
from regard.training.journal import Journal
from regard.training.keeper import Keeper, State
from regard.training.losses import translation_loss
from regard.training.metrics import (
    Curves,
    MetricsLog,
    NoCurves,
    open_curves,
    require_file,
    seconds_told,
)
from regard.training.precision import agreed_precision
from regard.training.processes import ALONE, Processes, left_alone, require_own_gpu
from regard.training.progress import Reporter, SilentReporter
from regard.training.result import TrainingResult
from regard.training.skips import Skips
from regard.training.state import Position, Window
from regard.training.step import Loss, Stepper
from regard.training.tally import Tally
from regard.training.validation import Validation
from regard.training.validations import Validations
from regard.weights.checkpoints import Checkpoint
from regard.weights.run_folder import RunFolder

TENSORBOARD = "tensorboard"


class Trainer:
    """Trains a model into a run folder.

    The order of batches is that of `batches`, whose data `fingerprint` names; `line` tells the
    file and line number of a row, for errors. `validate` is called with the model in eval mode,
    the moving averages in place of its weights where there are any; it may use random numbers
    and be interrupted without a trace in the training.

    The global random generators are seeded when a training starts, and the process's allocator
    is told to keep its memory. Without `interrupts` the two signals are taken over for the time
    of the training.

    Args:
        model: one with `config.d_model` that `loss` can be taken of; it is moved to the device.
        batches: where batches come from.
        config: how to train.
        folder: a run folder opened for writing.
        validate: measures the model on the validation text; None for no validations.
        reporter: shows what happens.
        interrupts: the program's handler of signals, already at work.
        line: the file and the line number of a pair or a text, by its number in the data.
        fingerprint: names the training data, to notice at a resume that it has changed.
        measure: names what `validate` measures; the best so far is forgotten when it changes.
        notes: kept with the model that is written.
        loss: the sums of losses of a part of a batch.
        unit: what that loss is a mean over, in a word or two.
        processes: those that train this model together; each has all of these arguments, and
            only the main one writes, validates and reports.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: BatchSource,
        config: TrainingConfig,
        folder: RunFolder,
        *,
        validate: Callable[[nn.Module], Validation] | None = None,
        reporter: Reporter | None = None,
        interrupts: Interrupts | None = None,
        line: Callable[[int], tuple[str, int]] | None = None,
        fingerprint: str = "",
        measure: str = "",
        notes: Mapping[str, str] = MappingProxyType({}),
        loss: Loss = translation_loss,
        unit: str = "token",
        processes: Processes = ALONE,
    ) -> None:
        self.device = choose_device(config.device)
        require_own_gpu(self.device)
        self._processes = processes
        self._cut = processes.count > 1 and config.parallel == "shard"
        # Where it is cut, it is moved layer by layer, so that it is nowhere whole.
        self.model = model if self._cut else model.to(self.device)
        self.position = Position()
        self._d_model = int(model.config.d_model)  # type: ignore[union-attr, arg-type]
        self._batches = batches
        self._config = config
        self._folder = folder
        self._validate_model = validate
        self._reporter = reporter if reporter and processes.main else SilentReporter()
        self._interrupts = interrupts
        self._line = line
        self._loss = loss
        self._unit = unit
        self._keeper = Keeper(
            folder, config, fingerprint, measure, self._reporter.say, notes, processes
        )
        self._metrics: MetricsLog | None = None
        self._curves: Curves = NoCurves()
        self._stop_agreed = False

    def run(
        self, *, resume: bool = False, on_start: Callable[[], None] = lambda: None
    ) -> TrainingResult:
        """Train to the end, from the start or, with `resume`, from the newest whole checkpoint.

        Where there is no checkpoint yet, resuming starts from the beginning. `on_start` is called
        once it is certain that the training can begin.

        Raises:
            DivergenceError: a loss or gradient was not finite in `max_skipped` steps in a row, or
                in all; names step, lines, checkpoint.
            Interrupted: a signal asked for a stop, and everything is saved.
            RegardError: the run has done more steps than `max_steps`, or its data has changed; or
                another process of the training is lost.
            RunFolderError: the folder can't be read or written.
        """
        hold_memory()
        with ExitStack() as stack:
            self._signals = self._interrupts or stack.enter_context(Interrupts())
            found = self._keeper.newest() if resume else None
            self._signals.quiet = not self._processes.main
            self._signals.run = self._folder.path
            self._prepare(found)
            if self._processes.main:
                require_file(self._folder.metrics_path)
                on_start()
                log_length = found[1]["metrics_length"] if found else 0
                told = seconds_told(self._folder.metrics_path, self.position.step, log_length)
                self.position.seconds = max(self.position.seconds, told)
                self._metrics = MetricsLog(
                    self._folder.metrics_path, log_length, say=self._reporter.say
                )
                stack.callback(self._metrics.close)
                stack.callback(self._keeper.close)
                self._curves = open_curves(self._folder.path / TENSORBOARD, self.position.step)
                stack.callback(self._curves.close)
            stack.callback(self._reporter.end)
            stack.enter_context(self._signals.deferred())
            self._begin("resume" if found else "start")
            try:
                return self._finish(self._train())
            except RunFolderError:
                self._reporter.end()
                self._folder.require_there()  # if it isn't, that is why
                raise
            except RuntimeError as error:
                if not self._processes.lost(error):
                    raise
                self._reporter.end()
                raise left_alone(self.position.step, self._folder.path) from error

    def _prepare(self, found: tuple[Checkpoint, State] | None) -> None:
        """Build what trains, and put it where the checkpoint, if any, left it."""
        self.precision = agreed_precision(
            self.model,
            self._config,
            self.device,
            self._processes,
            former=found[1]["precision"] if found else None,
        )
        self._stepper = Stepper(
            self.model,
            self._config,
            device=self.device,
            precision=self.precision.name,
            loss=self._loss,
            processes=self._processes,
        )
        if found:
            self.position = self._keeper.restore(*found, self.model, self._stepper)
        else:
            torch.manual_seed(self._config.seed)
        self._tally = Tally(self.position.window)

    def _begin(self, event: str) -> None:
        self._journal = Journal(
            self.position,
            self._config,
            d_model=self._d_model,
            unit=self._unit,
            reporter=self._reporter,
            metrics=self._metrics,
            curves=self._curves,
        )
        self._skips = Skips(
            self.position,
            self._tally,
            most=self._config.max_skipped,
            journal=self._journal,
            reporter=self._reporter,
            line=self._line,
            last_checkpoint=self._keeper.last_checkpoint,
        )
        self._validations = self._validate_model and Validations(
            self._validate_model,
            self._config,
            self.position,
            self._stepper,
            device=self.device,
            signals=self._signals,
            keeper=self._keeper,
            journal=self._journal,
            reporter=self._reporter,
            processes=self._processes,
        )
        self.model.train()
        self._journal.begin(
            event,
            device=describe_device(self.device),
            processes=self._processes.count,
            precision=self.precision,
            parameters=sum(weight.numel() for weight in self.model.parameters()),
        )

    def _train(self) -> str:
        """Do all steps; return why they ended."""
        if self.position.step and (reason := self._after_step()):
            return reason
        feed = Feed(
            self._batches,
            epoch=self.position.epoch,
            start=self.position.batch,
            parts=self._config.accumulate,
            device=self.device,
            rank=self._processes.rank,
            count=self._processes.count,
        )
        with feed:
            started = time.perf_counter()
            for batch in feed:
                if self._stopping:
                    self._stop()
                self._step(batch)
                self.position.window.seconds += time.perf_counter() - started
                if reason := self._after_step():
                    return reason
                started = time.perf_counter()
        raise AssertionError("a feed never ends by itself")

    def _step(self, batch: StepBatch) -> None:
        position = self.position
        step = position.step + 1
        self._stepper.take(batch, step, self._journal.rate(step), self._tally)
        position.step, position.epoch, position.batch = step, batch.epoch, batch.next_batch
        # All stop after the same step, whichever of them a signal came to.
        self._stop_agreed = self._processes.any(self._signals.requested)
        if self.device.type == "cpu":  # a GPU is not waited for at every step
            self._skips.look()
        self._journal.advanced()

    def _after_step(self) -> str:
        """Do what is due at this step; return why training ends here, or nothing."""
        self._folder.require_there()
        self._keeper.check()
        config, position = self._config, self.position
        step, last = position.step, position.step >= config.max_steps
        if self._tally.holds and (step % config.log_every == 0 or last):
            self._log()
        # Saved before it is validated: whatever happens then, the validation is done again.
        if step != self._keeper.saved_step and (step % config.checkpoint_every == 0 or last):
            self._save()
        if self._validations and self._validations.due():
            self._validate(self._validations)
        if self._stopping:
            self._stop()
        if config.patience and position.stale >= config.patience:
            return "patience"
        return "max_steps" if last else ""

    def _log(self) -> None:
        self._skips.look()
        if not self.position.window.tokens:
            return
        load = self._stepper.routers.told(self._tally.load)
        self._journal.measured(self._tally.norm, load)
        self.position.window = self._tally.window = Window()

    def _validate(self, validations: Validations) -> None:
        self._skips.look()
        if self._skips.only:
            return  # what is there is no trained model, and must not be called the best
        if self._cut and self._keeper.saved_step != self.position.step:
            self._save()  # a signal waits for the end of the validation, and may lose its patience
        try:
            validations.run()
        except Interrupted:
            self._stop()
        except NotFiniteError as error:
            raise self._skips.diverged() or self._skips.unmeasurable(error) from None

    def _save(self) -> None:
        self._skips.look()
        self.position.seconds = self._journal.seconds()
        self._keeper.save(
            self.position,
            self.model,
            self._stepper,
            metrics=self._metrics,
            precision=self.precision.name,
        )

    def _write_model(self, made: str) -> None:
        self._keeper.write_model(made, self.position, self.model, self._stepper)

    def _stop(self) -> NoReturn:
        """Save everything and leave, as a signal asked."""
        self._reporter.end()
        self._journal.end("interrupted")
        self._save()
        self._keeper.wait()
        none = not self._folder.has_model
        if self._processes.from_main(lambda: none) if self._cut else none:
            self._write_model("last")
            self._keeper.wait()
        raise stopped(f"step {self.position.step} of {self._config.max_steps}", self._folder.path)

    def _finish(self, reason: str) -> TrainingResult:
        position = self.position
        if self._skips.only:
            self._keeper.wait()
            raise self._skips.untrained()
        if position.best is None:
            self._write_model("last")
        # A last step that is no multiple of the interval would not be validated again by a resume.
        saved = self._keeper.saved_step, self._keeper.saved_validated
        if (position.step, position.validated) != saved:
            self._save()
        self._keeper.wait()
        self._journal.end(reason)
        return TrainingResult(
            step=position.step,
            reason=reason,
            model_step=position.best.step if position.best else position.step,
            best_value=position.best.value if position.best else None,
            seconds=self._journal.seconds(),
            validation=self._validations.last if self._validations else None,
        )

    @property
    def _stopping(self) -> bool:
        """Whether a signal asked for a stop; of several processes, as all of them know it."""
        return self._stop_agreed if self._processes.count > 1 else self._signals.requested
