"""What a training tells of itself: to its log, its curves, and whoever watches."""

import time
from collections.abc import Mapping
from dataclasses import replace

import torch

from regard.training.config import TrainingConfig
from regard.training.metrics import Curves, MetricsLog, Record
from regard.training.progress import Reporter, Standing
from regard.training.schedules import learning_rate
from regard.training.state import Position
from regard.training.tally import NotFinite


class Journal:
    """Writes a training's records and shows where it stands; its clock starts when it is made.

    Args:
        position: where training stands, which the loop moves on.
        config: how it trains.
        d_model: the width that the learning rate depends on.
        unit: what the loss is a mean over, in a word or two.
        reporter: shows what happens.
        metrics: the log; None in all processes but the main one.
        curves: TensorBoard's, if it is there.
    """

    def __init__(
        self,
        position: Position,
        config: TrainingConfig,
        *,
        d_model: int,
        unit: str,
        reporter: Reporter,
        metrics: MetricsLog | None,
        curves: Curves,
    ) -> None:
        self._position = position
        self._config = config
        self._d_model = d_model
        self._unit = unit
        self._reporter = reporter
        self._metrics = metrics
        self._curves = curves
        self._started_at = time.perf_counter()
        self._started_step = position.step
        self._seconds_before = position.seconds

    def write(self, record: Record) -> None:
        """Add a line to the log and a point to the curves."""
        if self._metrics is not None:
            self._metrics.write(record)
        self._curves.write(record)

    def begin(
        self, event: str, *, device: str, processes: int, precision: object, parameters: int
    ) -> None:
        """Tell that training starts or goes on, and in what."""
        self.write(
            {
                "event": event,
                "step": self._position.step,
                "max_steps": self._config.max_steps,
                "device": device,
                "processes": processes,
                "precision": str(precision),
                "parameters": parameters,
                "torch": torch.__version__,
            }
        )
        together = f", {processes} processes" if processes > 1 else ""
        self._reporter.say(f"training on {device}{together}, in {precision}")
        self._reporter.begin(self._standing())

    def advanced(self) -> None:
        """Show that a step is done."""
        self._reporter.advanced(self._standing())

    def measured(self, norm: float, more: Mapping[str, object]) -> None:
        """Tell the figures since the last time, which the position's window holds."""
        position, window = self._position, self._position.window
        standing = replace(
            self._standing(),
            loss=window.smoothed / window.tokens,
            nll=window.nll / window.tokens,
            tokens_per_second=window.tokens / window.seconds if window.seconds else None,
            learning_rate=self.rate(position.step),
        )
        self.write(
            {
                "event": "train",
                "step": standing.step,
                "epoch": standing.epoch,
                "loss": standing.loss,
                "nll": standing.nll,
                "learning_rate": standing.learning_rate,
                "tokens_per_second": standing.tokens_per_second,
                "target_tokens": window.tokens,
                "seconds": self.seconds(),
                "grad_norm": norm,
                **more,
            }
        )
        self._reporter.measured(standing)

    def skipped(self, bad: NotFinite, names: list[str]) -> None:
        """Note a step that changed nothing, and the lines of its batch."""
        self.write({"event": "skipped", "step": bad.step, "problem": str(bad), "lines": names})

    def end(self, reason: str, more: Mapping[str, object] | None = None) -> None:
        """Note that training ends here, and why."""
        best = self._position.best
        self.write(
            {
                "event": "stop",
                "step": self._position.step,
                "reason": reason,
                "skipped": self._position.skipped,
                "best_step": best.step if best else None,
                "seconds": self.seconds(),
                **(more or {}),
            }
        )

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        config = self._config
        return learning_rate(config.schedule, step, self._d_model, config.max_steps)

    def seconds(self) -> float:
        """How long the training has taken so far, earlier starts too."""
        return self._seconds_before + time.perf_counter() - self._started_at

    def _standing(self) -> Standing:
        return Standing(
            step=self._position.step,
            max_steps=self._config.max_steps,
            epoch=self._position.epoch,
            seconds_left=self._seconds_left(),
            unit=self._unit,
        )

    def _seconds_left(self) -> float | None:
        done = self._position.step - self._started_step
        if not done:
            return None
        spent = time.perf_counter() - self._started_at
        return spent / done * (self._config.max_steps - self._position.step)
