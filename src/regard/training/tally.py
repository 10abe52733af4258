"""Losses and gradient norms of the last steps, kept on the device until somebody looks."""

import math
from dataclasses import dataclass

import torch

from regard.shapes import Tensor
from regard.training.losses import LossSums
from regard.training.state import Window


@dataclass(frozen=True, slots=True, eq=False)
class StepFigures:
    """What a step left on the device, and which rows of the data it saw.

    `load` are the figures of the model's experts, if it has some.
    """

    step: int
    sums: LossSums
    norm: Tensor
    tokens: int
    rows_b: Tensor
    load: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NotFinite:
    """A loss or gradient norm that is no finite number, and the rows of its batch."""

    step: int
    what: str
    value: float
    rows: list[int]

    def __str__(self) -> str:
        return f"the {self.what} is {self.value} at step {self.step}"


class Tally:
    """Adds up the figures of steps; reading a GPU's figures waits for it, so that is done late."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.norm = 0.0
        self.load: list[float] = []
        self._waiting: list[StepFigures] = []

    @property
    def holds(self) -> bool:
        """Whether any step was added since the window was last emptied."""
        return bool(self._waiting or self.window.tokens)

    def add(self, figures: StepFigures) -> None:
        """Take in a step's figures without looking at them."""
        self._waiting.append(figures)

    def look(self) -> list[NotFinite | None]:
        """Read all figures that wait, and add those that are finite to the window.

        Returns:
            For each step that waited what of it is not finite, or None.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return []
        # The sums may be float32; what they are added up in is a Python float.
        rows = torch.stack(
            [torch.stack((one.sums.smoothed, one.sums.nll, one.norm)) for one in waiting]
        ).tolist()
        found: list[NotFinite | None] = []
        for figures, (smoothed, nll, norm) in zip(waiting, rows, strict=True):
            named = (("loss", smoothed), ("gradient norm", norm))
            bad = [(what, value) for what, value in named if not math.isfinite(value)]
            if bad:
                found.append(NotFinite(figures.step, *bad[0], figures.rows_b.tolist()))
                continue
            found.append(None)
            self.window.smoothed += smoothed
            self.window.nll += nll
            self.window.tokens += figures.tokens
            self.norm = norm
            if figures.load is not None and len(figures.load):
                self.load = figures.load.tolist()
        return found
