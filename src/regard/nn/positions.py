"""Vectors that tell the model where in its sequence a token stands."""

from collections.abc import Callable
from typing import Literal, assert_never

import torch
from torch import nn
from torch.nn import functional

from regard.errors import ModelError
from regard.nn.config import LearnedConfig, PositionsConfig, SinusoidalConfig
from regard.shapes import Float, Int, Tensor

Layout = Literal["interleaved", "halves"]


def sinusoids(size: int, d_model: int, layout: Layout) -> Float[Tensor, "size d"]:
    """Sines and cosines of wavelengths from 2 pi to 20,000 pi, one row a position, in float64.

    `sin(position / 10000^(2i / d))` and the cosine of the same, side by side (`interleaved`) or
    all sines first (`halves`).

    Source: Vaswani et al. 2017, section 3.5.
    """
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(size, dtype=torch.float64)[:, None] * rates
    stacked = torch.stack([angles.sin(), angles.cos()], dim=-1 if layout == "interleaved" else -2)
    return stacked.flatten(-2)


class PositionalEncoding(nn.Module):
    """Fixed sinusoids. The table grows when a longer input comes and is never saved."""

    def __init__(self, d_model: int, layout: Layout = "interleaved", *, size: int = 256) -> None:
        super().__init__()
        self.d_model = d_model
        self.layout = layout
        self.table: Tensor
        table = torch.empty(0, d_model)
        self.register_buffer("table", table, persistent=False)
        self._grow(size)

    def forward(self, positions: Int[Tensor, "#b t"], size: int) -> Float[Tensor, "#b t d"]:
        """The vectors of `positions`, all of which are below `size`."""
        if size > len(self.table):
            self._grow(max(size, 2 * len(self.table)))
        return functional.embedding(positions, self.table)

    def _grow(self, size: int) -> None:
        self.table = sinusoids(size, self.d_model, self.layout).to(self.table)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionalEncoding":
        # Rounded anew from float64, lest a model made float64 keep float32's rounding.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._grow(len(self.table))
        return self


class LearnedPositions(nn.Module):
    """One trained vector a position, up to `max_positions` tokens."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, positions: Int[Tensor, "#b t"], size: int) -> Float[Tensor, "#b t d"]:
        """The vectors of `positions`, all of which are below `size`.

        Raises:
            ModelError: a position lies past the table.
        """
        if size > self.max_positions:  # padding may account for it, so look closer
            longest = int(positions.max()) + 1
            if longest > self.max_positions:
                raise ModelError(
                    f"a sequence of {longest} tokens is longer than the {self.max_positions} "
                    "learned positions of the model",
                    hint="split the text, or train with a larger model.positions.max_positions "
                    "or with sinusoidal positions",
                )
        return functional.embedding(positions, self.weight)


def build_positions(config: PositionsConfig, d_model: int) -> nn.Module:
    """The module that turns positions into vectors of width `d_model`."""
    match config:
        case SinusoidalConfig():
            return PositionalEncoding(d_model, config.layout)
        case LearnedConfig():
            return LearnedPositions(d_model, config.max_positions)
        case _ as never:
            assert_never(never)
