"""Sequences in rows of their own, tokens first: what makes padding and packing change nothing."""

from typing import Self

import torch

from regard.nn.positions import Positions
from regard.nn.rotary import Rotation
from regard.shapes import Bool, Float, Int, Tensor


class Rows:
    """A batch laid out anew: row n holds the tokens of one sequence, without gaps, then padding.

    A sequence is a row of the batch or, where documents share rows, one document. Layers that
    work on such rows need no more care than that padding on the right is not taken for tokens.

    Attributes:
        mask_nl: which places hold tokens; None = all.
        position_nl: how many tokens of its sequence come before each place.
        count_n: the tokens of each row; None = as many as places.
    """

    def __init__(
        self,
        scheme: Positions,
        *,
        length: int,
        before_n: Int[Tensor, "#n"],
        mask_nl: Bool[Tensor, "n l"] | None = None,
        moves: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.scheme = scheme
        self.length = length
        self.before_n = before_n
        self.mask_nl = mask_nl
        self.count_n = None if mask_nl is None else mask_nl.sum(1)
        self.position_nl = before_n[:, None] + torch.arange(length, device=before_n.device)
        self._moves = moves

    @classmethod
    def of(
        cls,
        scheme: Positions,
        size: int,
        mask_bq: Bool[Tensor, "b q"] | None,
        documents_bq: Int[Tensor, "b q"] | None,
        *,
        before: Int[Tensor, "#b"],
    ) -> Self:
        """Rows of the places of a span; where they are so already, nothing is moved."""
        if documents_bq is None:
            if mask_bq is None:
                return cls(scheme, length=size, before_n=before)
            if bool((mask_bq[:, :-1] >= mask_bq[:, 1:]).all()):
                return cls(scheme, length=size, before_n=before, mask_nl=mask_bq)
            documents_bq = torch.zeros_like(mask_bq, dtype=torch.long)
        elif mask_bq is None:
            mask_bq = torch.ones_like(documents_bq, dtype=torch.bool)
        opens_bq = torch.zeros_like(mask_bq)
        opens_bq[:, 1:] = documents_bq[:, 1:] != documents_bq[:, :-1]
        number_bq = opens_bq.cumsum(1)
        most = int(number_bq.max()) + 1
        seen_bq = mask_bq.cumsum(1) - mask_bq.long()  # tokens of the row before the place
        place_bq = seen_bq - torch.where(opens_bq, seen_bq, 0).cummax(1).values
        length = max(int(torch.where(mask_bq, place_bq, 0).max()) + 1, 1)
        row_b1 = torch.arange(len(mask_bq), device=mask_bq.device)[:, None]
        to_bq = (row_b1 * most + number_bq) * length + place_bq
        rows = len(mask_bq) * most
        from_nl = to_bq.new_full((rows * length,), -1)
        from_nl[to_bq[mask_bq]] = torch.arange(mask_bq.numel(), device=to_bq.device)[
            mask_bq.flatten()
        ]
        from_nl = from_nl.view(rows, length)
        back_bq = torch.where(mask_bq, to_bq, -1)
        before_n = before if len(before) == 1 else before.repeat_interleave(most)
        return cls(
            scheme,
            length=length,
            before_n=before_n,
            mask_nl=from_nl >= 0,
            moves=(from_nl, back_bq),
        )

    def take(self, x_bqd: Float[Tensor, "b q d"]) -> Float[Tensor, "n l d"]:
        """The vectors in their rows; those of padding are 0, whatever they were."""
        if self.mask_nl is None:
            return x_bqd
        if self._moves is None:
            return x_bqd.masked_fill(~self.mask_nl[..., None], 0.0)
        return _moved(x_bqd, self._moves[0])

    def put(self, y_nld: Float[Tensor, "n l d"]) -> Float[Tensor, "b q d"]:
        """The vectors back where `take` had them from; those of padding are finite."""
        return y_nld if self._moves is None else _moved(y_nld, self._moves[1])

    def put_pairs(self, w_nhlk: Float[Tensor, "n h l l"]) -> Float[Tensor, "b h q q"]:
        """What is of pairs of places, where `take` had them from; 0 where one is padding.

        Pairs of places in two rows, which tell each other nothing, have 0 too.
        """
        if self._moves is None:
            if self.mask_nl is None:
                return w_nhlk
            return w_nhlk.masked_fill(~self._pairs(self.mask_nl), 0.0)
        back_bq = self._moves[1]
        row_bq, place_bq = back_bq.clamp(min=0) // self.length, back_bq.clamp(min=0) % self.length
        w_bqkh = w_nhlk.permute(0, 2, 3, 1)[
            row_bq[:, :, None], place_bq[:, :, None], place_bq[:, None, :]
        ]
        apart_bqk = row_bq[:, :, None] != row_bq[:, None, :]
        there = self._pairs(back_bq >= 0) & ~apart_bqk[:, None]
        return w_bqkh.permute(0, 3, 1, 2).masked_fill(~there, 0.0)

    @staticmethod
    def _pairs(mask_bq: Tensor) -> Tensor:
        """Where both places of a pair are tokens: b 1 q k."""
        return mask_bq[:, None, :, None] & mask_bq[:, None, None, :]

    @property
    def rotation(self) -> Rotation | None:
        """How queries and new keys are turned."""
        return self.scheme.rotation(self.position_nl)

    def last(self, x_nhke: Float[Tensor, "n h k e"], kept: int) -> Float[Tensor, "n h r e"]:
        """The vectors of the last `kept` tokens of each row, or of all places if they are fewer.

        `x_nhke` is over some earlier tokens, the last one last, and then over these places. What
        is before a sequence's first token has a place there too, and is 0.
        """
        size = x_nhke.shape[2]
        kept = min(kept, size)
        if self.count_n is None:
            return x_nhke[:, :, size - kept :]
        end_n1 = (size - self.length + self.count_n)[:, None]
        index_nr = end_n1 - kept + torch.arange(kept, device=end_n1.device)
        unknown_nr = index_nr < (end_n1 - self.before_n[:, None] - self.count_n[:, None])
        index_n1r1 = index_nr.clamp(min=0)[:, None, :, None]
        last = x_nhke.gather(2, index_n1r1.expand(-1, x_nhke.shape[1], -1, x_nhke.shape[3]))
        return last.masked_fill(unknown_nr[:, None, :, None], 0.0)


def _moved(x: Tensor, index: Tensor) -> Tensor:
    """The vectors of these places of all rows, in one count; 0 where the index is negative."""
    chosen = x.flatten(0, 1).index_select(0, index.clamp(min=0).flatten())
    return chosen.view(*index.shape, -1).masked_fill((index < 0)[..., None], 0.0)
