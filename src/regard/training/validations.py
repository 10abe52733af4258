"""The validations of a training: when, by which process, on which weights; the best is written."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn

from regard.training.config import TrainingConfig
from regard.training.interrupts import Interrupts
from regard.training.journal import Journal
from regard.training.keeper import Keeper
from regard.training.processes import Processes
from regard.training.progress import Reporter
from regard.training.state import Position, gathered_groups
from regard.training.step import Stepper
from regard.training.validation import Validation


class Validations:
    """Validates a model amid its training, without a trace in that.

    Args:
        validate: measures the model.
        config: how often, and what is best.
        position: where training stands; the best so far is kept there.
        stepper: the model that is trained and its moving average.
        device: what it computes on.
        signals: may end a validation at once.
        keeper: writes the model when it is the best so far.
        journal: is told the figures.
        reporter: shows them.
        processes: those that train; the main one validates, and the others wait.
    """

    def __init__(
        self,
        validate: Callable[[nn.Module], Validation],
        config: TrainingConfig,
        position: Position,
        stepper: Stepper,
        *,
        device: torch.device,
        signals: Interrupts,
        keeper: Keeper,
        journal: Journal,
        reporter: Reporter,
        processes: Processes,
    ) -> None:
        self.last: Validation | None = None
        self._validate = validate
        self._config = config
        self._position = position
        self._stepper = stepper
        self._device = device
        self._signals = signals
        self._keeper = keeper
        self._journal = journal
        self._reporter = reporter
        self._processes = processes

    def due(self) -> bool:
        """Whether the model is to be validated after this step."""
        step, last = self._position.step, self._position.step >= self._config.max_steps
        every = self._config.validate_every or self._config.checkpoint_every
        return step != self._position.validated and (step % every == 0 or last)

    def run(self) -> None:
        """Measure the model as it is now, and write it if it is the best so far.

        Raises:
            Interrupted: a signal came; nothing is noted.
            ModelError: it can't be measured.
        """
        stepper, metric = self._stepper, self._config.best_metric
        stepper.model.eval()
        average = None if stepper.cut else stepper.average
        whole = self._whole()
        found: list[Validation] = []

        def measure() -> float:
            found.append(self._validate(whole or stepper.model))
            return found[0].value(metric)

        try:
            with (
                average.applied() if average else nullcontext(),
                torch.random.fork_rng([self._device] if self._device.type == "cuda" else []),
                # No process can be left alone: all are needed to save weights that are cut.
                nullcontext() if stepper.cut else self._signals.immediate(),
            ):
                value = self._processes.from_main(measure)
        finally:
            stepper.model.train()
        better = self._position.take_validation(metric, value)
        if found:
            self.last = found[0]
            self._journal.write(found[0].record(self._position.step, self._journal.seconds()))
            self._reporter.validated(self._position.step, found[0], better=better)
        if better:
            self._keeper.write_model("best", self._position, stepper.model, stepper)

    def _whole(self) -> nn.Module | None:
        """Where weights are cut over processes, in the main one a whole model to validate."""
        if not self._stepper.cut:
            return None
        weights = self._stepper.model.state_dict()
        if self._stepper.average:
            weights.update(self._stepper.average.weights)
        keep, device = self._processes.main, self._device
        tensors = gathered_groups({"model": weights}, keep=keep, device=device)["model"]
        whole = self._stepper.whole
        return whole.filled(tensors, device).eval() if whole else None
