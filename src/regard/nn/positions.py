"""How a model is told where in its sequence a token stands."""

import math
from collections.abc import Callable
from typing import Literal, assert_never

import torch
from torch import nn
from torch.nn import functional

from regard.errors import ModelError
from regard.nn.config import (
    AlibiConfig,
    LearnedConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from regard.nn.rotary import Phases, Rotation
from regard.shapes import Float, Int, Tensor

Layout = Literal["interleaved", "halves"]
Wavelengths = Literal["paper", "full"]


class Positions(nn.Module):
    """Where tokens stand, told in one of three ways; a scheme answers None in the others.

    By itself it is the scheme that tells nothing.
    """

    def check(self, positions: Int[Tensor, "#b t"], size: int) -> None:
        """Refuse what the scheme has no answer for; all `positions` are below `size`.

        Raises:
            ModelError: a position lies past a learned table.
        """

    def vectors(self, positions: Int[Tensor, "#b t"], size: int) -> Float[Tensor, "#b t d"] | None:
        """What to add to the embeddings; all `positions` are below `size`.

        Raises:
            ModelError: a position lies past a learned table.
        """
        return None

    def rotation(self, positions: Int[Tensor, "#b t"]) -> Rotation | None:
        """How to turn queries and keys at these positions."""
        return None

    @property
    def adds_to_scores(self) -> bool:
        """Whether `bias` gives anything."""
        return type(self).bias is not Positions.bias

    def bias(
        self, query_bq: Int[Tensor, "#b q"], key_bk: Int[Tensor, "#b k"]
    ) -> Float[Tensor, "#b h q k"] | None:
        """What to add to the scores of queries and keys at these positions."""
        return None


def sinusoids(
    size: int, d_model: int, layout: Layout, wavelengths: Wavelengths = "paper"
) -> Float[Tensor, "size d"]:
    """Sines and cosines of wavelengths from 2 pi to 20,000 pi, one row a position, in float64.

    `sin(position / 10000^(2i / d))` and the cosine of the same, side by side (`interleaved`) or
    all sines first (`halves`). With the `full` range of wavelengths the exponent is
    `2i / (d - 2)`.

    Source: Vaswani et al. 2017, section 3.5.
    """
    span = d_model if wavelengths == "paper" else max(d_model - 2, 1)
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / span)
    angles = torch.arange(size, dtype=torch.float64)[:, None] * rates
    stacked = torch.stack([angles.sin(), angles.cos()], dim=-1 if layout == "interleaved" else -2)
    return stacked.flatten(-2)


class PositionalEncoding(Positions):
    """Fixed sinusoids. The table grows when a longer input comes and is never saved."""

    def __init__(
        self,
        d_model: int,
        layout: Layout = "interleaved",
        wavelengths: Wavelengths = "paper",
        *,
        size: int = 256,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.layout: Layout = layout
        self.wavelengths: Wavelengths = wavelengths
        self.table: Tensor
        table = torch.empty(0, d_model)
        self.register_buffer("table", table, persistent=False)
        self._grow(size)

    def vectors(self, positions: Int[Tensor, "#b t"], size: int) -> Float[Tensor, "#b t d"]:
        """The vectors of `positions`, all of which are below `size`."""
        if size > len(self.table):
            self._grow(max(size, 2 * len(self.table)))
        return functional.embedding(positions, self.table)

    def _grow(self, size: int) -> None:
        self.table = sinusoids(size, self.d_model, self.layout, self.wavelengths).to(self.table)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionalEncoding":
        # Rounded anew from float64, lest a model made float64 keep float32's rounding.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._grow(len(self.table))
        return self


class LearnedPositions(Positions):
    """One trained vector a position, up to `max_positions` tokens."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def check(self, positions: Int[Tensor, "#b t"], size: int) -> None:
        """Refuse a position past the table.

        Raises:
            ModelError: there is one.
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

    def vectors(self, positions: Int[Tensor, "#b t"], size: int) -> Float[Tensor, "#b t d"]:
        """The vectors of `positions`, all of which are below `size`.

        Raises:
            ModelError: a position lies past the table.
        """
        self.check(positions, size)
        return functional.embedding(positions, self.weight)


class RotaryPositions(Positions):
    """Queries and keys are turned; embeddings are left alone."""

    def __init__(self, config: RotaryConfig, head_dim: int) -> None:
        super().__init__()
        self._phases = Phases(config, head_dim)

    def rotation(self, positions: Int[Tensor, "#b t"]) -> Rotation:
        """How to turn queries and keys at these positions."""
        return self._phases.at(positions)


class AlibiPositions(Positions):
    """A score falls with the distance, by a slope that is each head's own.

    Source: Press et al. 2021, arXiv:2108.12409, section 3.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        # Not a buffer, lest a model made bfloat16 round it.
        self._slopes_h = alibi_slopes(num_heads)

    def bias(
        self, query_bq: Int[Tensor, "#b q"], key_bk: Int[Tensor, "#b k"]
    ) -> Float[Tensor, "#b h q k"]:
        """Minus the slope times the distance, whichever side the key is on."""
        if self._slopes_h.device != query_bq.device:
            self._slopes_h = self._slopes_h.to(query_bq.device)
        distance_bqk = (query_bq[:, :, None] - key_bk[:, None, :]).abs()
        return -self._slopes_h[:, None, None] * distance_bqk[:, None]


def alibi_slopes(num_heads: int) -> Float[Tensor, " h"]:
    """A geometric sequence down to 2^-8; between two powers of two, every other one of the next."""

    def powers(heads: int) -> Tensor:
        return 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))

    whole = 2 ** int(math.log2(num_heads))
    return torch.cat([powers(whole), powers(2 * whole)[0 : 2 * (num_heads - whole) : 2]])


class RelativePositions(Positions):
    """A trained number a head and bucket of distances is added to the scores.

    A model has one such table for each of its stacks, shared by the stack's layers.
    `bidirectional` gives half of the buckets to keys after the query.

    Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1.
    """

    def __init__(self, config: RelativeConfig, num_heads: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.buckets = config.buckets
        self.max_distance = config.max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(config.buckets, num_heads))
        nn.init.normal_(self.weight, std=0.1)

    def bias(
        self, query_bq: Int[Tensor, "#b q"], key_bk: Int[Tensor, "#b k"]
    ) -> Float[Tensor, "#b h q k"]:
        """The numbers of the buckets that the distances fall into."""
        ahead_bqk = key_bk[:, None, :] - query_bq[:, :, None]
        return functional.embedding(self._bucket(ahead_bqk), self.weight).permute(0, 3, 1, 2)

    def _bucket(self, ahead_bqk: Tensor) -> Tensor:
        """Exact for near keys, then logarithmic; all beyond `max_distance` share the last."""
        buckets = self.buckets
        if self.bidirectional:
            buckets //= 2
            first_bqk = (ahead_bqk > 0).long() * buckets
            distance_bqk = ahead_bqk.abs()
        else:
            first_bqk = torch.zeros_like(ahead_bqk)
            distance_bqk = (-ahead_bqk).clamp(min=0)
        exact = buckets // 2
        ratio_bqk = torch.log(distance_bqk.clamp(min=1).float() / exact) / math.log(
            self.max_distance / exact
        )
        far_bqk = (exact + (ratio_bqk * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first_bqk + torch.where(distance_bqk < exact, distance_bqk, far_bqk)


def build_positions(
    config: PositionsConfig, *, d_model: int, num_heads: int, head_dim: int, bidirectional: bool
) -> Positions:
    """The scheme of a stack of layers that looks to both sides, or to the past only.

    Args:
        config: which scheme.
        d_model: the width of embeddings.
        num_heads: heads of queries.
        head_dim: the width of one head's queries and keys.
        bidirectional: whether keys after the query are attended to.
    """
    match config:
        case NoPositionsConfig():
            return Positions()
        case SinusoidalConfig():
            return PositionalEncoding(d_model, config.layout, config.wavelengths)
        case LearnedConfig():
            return LearnedPositions(d_model, config.max_positions)
        case RotaryConfig():
            return RotaryPositions(config, head_dim)
        case AlibiConfig():
            return AlibiPositions(num_heads)
        case RelativeConfig():
            return RelativePositions(config, num_heads, bidirectional=bidirectional)
        case _ as never:
            assert_never(never)
