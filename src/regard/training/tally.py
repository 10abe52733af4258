"""Losses and gradient norms of the last steps, kept on the device until somebody looks."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.errors import DivergenceError
from regard.shapes import Tensor
from regard.training.losses import LossSums
from regard.training.state import Window

_LINES_SHOWN = 10


@dataclass(frozen=True, slots=True, eq=False)
class StepFigures:
    """What a step left on the device, and which rows of the data it saw."""

    step: int
    sums: LossSums
    norm: Tensor
    tokens: int
    rows_b: Tensor


class NotFinite(Exception):  # noqa: N818 - the trainer turns it into the user's error
    """A loss or gradient norm that is no finite number, and the rows of its batch."""

    def __init__(self, step: int, what: str, value: float, rows: list[int]) -> None:
        super().__init__(f"the {what} is {value} at step {step}")
        self.step = step
        self.rows = rows


class Tally:
    """Adds up the figures of steps; reading a GPU's figures waits for it, so that is done late."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.norm = 0.0
        self._waiting: list[StepFigures] = []

    @property
    def holds(self) -> bool:
        """Whether any step was added since the window was last emptied."""
        return bool(self._waiting or self.window.tokens)

    def add(self, figures: StepFigures) -> None:
        """Take in a step's figures without looking at them."""
        self._waiting.append(figures)

    def look(self) -> None:
        """Read all figures that wait and add them to the window.

        Raises:
            NotFinite: one is not a finite number; the first such step.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # The sums may be float32; what they are added up in is a Python float.
        rows = torch.stack(
            [torch.stack((one.sums.smoothed, one.sums.nll, one.norm)) for one in waiting]
        ).tolist()
        for figures, (smoothed, nll, norm) in zip(waiting, rows, strict=True):
            for what, value in (("loss", smoothed), ("gradient norm", norm)):
                if not math.isfinite(value):
                    raise NotFinite(figures.step, what, value, figures.rows_b.tolist())
            self.window.smoothed += smoothed
            self.window.nll += nll
            self.window.tokens += figures.tokens
            self.norm = norm


def diverged(error: NotFinite, lines: list[str], checkpoint: Path | None) -> DivergenceError:
    """The error for a figure that is not finite: which lines, and what can be gone back to."""
    shown = ", ".join(lines[:_LINES_SHOWN])
    if len(lines) > _LINES_SHOWN:
        shown += f" and {len(lines) - _LINES_SHOWN:,} more, all named in metrics.jsonl"
    good = (
        f"The last good checkpoint is {checkpoint}." if checkpoint else "No checkpoint was saved."
    )
    return DivergenceError(
        str(error),
        where="training",
        hint="\n  ".join(
            [
                *([f"Its batch holds the lines {shown}."] if lines else []),
                good,
                "Try a lower learning rate, a longer warm-up, or training.clip_norm = 1.",
            ]
        ),
    )
