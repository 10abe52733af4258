"""The places that a pass is over: which of them are tokens, whose they are, where they stand."""

import math
from functools import cached_property
from typing import Self

import torch

from regard.kernels.attention import Sight
from regard.kernels.switch import transformed
from regard.nn.cache import Cache
from regard.nn.masks import (
    causal_mask,
    document_mask,
    document_positions,
    positions_from_mask,
    token_stretches,
)
from regard.nn.mixers.rows import Rows
from regard.nn.positions import Positions
from regard.nn.rotary import Rotation
from regard.shapes import Bool, Float, Int, Tensor


class Span:
    """What the layers of a stack are told of a pass besides the vectors; the same for each.

    A whole pass is over all places of its rows, which may hold several documents each; a step
    is over the next few after those in a cache. What not every layer asks for is computed when
    the first one does.

    Args:
        scheme: the positions of the stack.
        causal: whether a place sees none after it.
        position_bq: where each place stands in its row or document.
        mask_bq: which places hold tokens; None = all.
        documents_bq: the document of each place; None = one a row.
        before: how many places come before these.
        held_bk: which of all places so far, these included, hold tokens; None = all.
    """

    def __init__(
        self,
        scheme: Positions,
        *,
        causal: bool,
        position_bq: Int[Tensor, "#b q"],
        mask_bq: Bool[Tensor, "b q"] | None = None,
        documents_bq: Int[Tensor, "b q"] | None = None,
        before: int = 0,
        held_bk: Bool[Tensor, "b k"] | None = None,
    ) -> None:
        self.scheme = scheme
        self.causal = causal
        self.position_bq = position_bq
        self.mask_bq = mask_bq
        self.documents_bq = documents_bq
        self.before = before
        self.held_bk = held_bk

    @classmethod
    def whole(
        cls,
        scheme: Positions,
        places_bq: Tensor,
        mask_bq: Bool[Tensor, "b q"] | None = None,
        documents_bq: Int[Tensor, "b q"] | None = None,
        *,
        causal: bool,
    ) -> Self:
        """All places of the rows of `places_bq`, of which only the first two sizes count."""
        if documents_bq is not None:
            position_bq = document_positions(documents_bq, mask_bq)
        elif mask_bq is not None:
            position_bq = positions_from_mask(mask_bq)
        else:
            position_bq = torch.arange(places_bq.shape[1], device=places_bq.device)[None]
        return cls(
            scheme,
            causal=causal,
            position_bq=position_bq,
            mask_bq=mask_bq,
            documents_bq=documents_bq,
            held_bk=mask_bq,
        )

    @classmethod
    def step(
        cls,
        scheme: Positions,
        places_rt: Tensor,
        cache: Cache,
        mask_rt: Bool[Tensor, "r t"] | None = None,
    ) -> Self:
        """The next places of the rows of a cache."""
        added = places_rt.shape[1]
        held_rk = cache.extended_mask(mask_rt, added)
        if held_rk is None:
            end = cache.length + added
            position_rt = torch.arange(cache.length, end, device=places_rt.device)[None]
        else:
            position_rt = positions_from_mask(held_rk)[:, cache.length :]
        return cls(
            scheme,
            causal=True,
            position_bq=position_rt,
            mask_bq=mask_rt,
            before=cache.length,
            held_bk=held_rk,
        )

    @property
    def size(self) -> int:
        """How many places there are."""
        return self.position_bq.shape[1]

    def tokens_of(self, x_bqd: Float[Tensor, "b q d"]) -> Float[Tensor, "b q d"]:
        """The vectors with 0 in place of padding, if there is any that holds a NaN or an infinity.

        Else such a one makes NaN of a weight's gradient, though no place looks at it. On a CPU one
        look at their sum tells whether there are any; elsewhere a look would stall the device.
        """
        if self.mask_bq is None:
            return x_bqd
        told = x_bqd.device.type == "cpu" and not transformed()
        if told and math.isfinite(float(x_bqd.detach().sum())):
            return x_bqd
        return x_bqd.masked_fill(~self.mask_bq[..., None], 0.0)

    @cached_property
    def position_bk(self) -> Int[Tensor, "#b k"]:
        """Where all places so far stand."""
        if not self.before:
            return self.position_bq
        if self.held_bk is not None:
            return positions_from_mask(self.held_bk)
        return torch.arange(self.before + self.size, device=self.position_bq.device)[None]

    @cached_property
    def rotation(self) -> Rotation | None:
        """How queries and new keys are turned."""
        return self.scheme.rotation(self.position_bq)

    @cached_property
    def bias(self) -> Float[Tensor, "#b h q k"] | None:
        """What is added to all scores."""
        return self.scheme.bias(self.position_bq, self.position_bk)

    @property
    def up_to_itself(self) -> bool:
        """Whether each place sees all up to its own and that is all there is to `mask`."""
        return (
            self.causal and not self.before and self.held_bk is None and self.documents_bq is None
        )

    @cached_property
    def mask(self) -> Bool[Tensor, "#b 1 #q k"] | None:
        """Which place may look at which, of all so far; None = all at all."""
        mask: Tensor | None = None
        if self.causal and (self.size > 1 or not self.before):
            end = self.before + self.size
            mask = causal_mask(self.size, end, device=self.position_bq.device)[None, None]
        if self.held_bk is not None:
            held = self.held_bk[:, None, None]
            mask = held if mask is None else mask & held
        if self.documents_bq is not None:
            same = document_mask(self.documents_bq)
            mask = same if mask is None else mask & same
        return mask

    @cached_property
    def sight(self) -> Sight | None:
        """What `mask` says of a whole pass, where each place sees one stretch; None where not.

        For a CPU, where there is a kernel for that, and for schemes that add nothing to scores.
        """
        if self.before or self.position_bq.device.type != "cpu" or self.scheme.adds_to_scores:
            return None
        found = token_stretches(self.held_bk, self.documents_bq, self.size)
        if found is None:
            return None
        start_bq, end_bq = found
        if self.causal:
            end_bq = end_bq.minimum(torch.arange(self.size)[None] + 1)
        return Sight.of(start_bq, end_bq)

    @cached_property
    def rows(self) -> Rows:
        """The same places with every sequence in a row of its own, its tokens first."""
        return Rows.of(
            self.scheme,
            self.size,
            self.mask_bq,
            self.documents_bq,
            before=self._tokens_before(),
        )

    def _tokens_before(self) -> Tensor:
        """How many tokens each row had before these places."""
        if self.held_bk is None or not self.before:
            return self.position_bq.new_full((1,), self.before)
        return self.held_bk[:, : self.before].sum(1)
