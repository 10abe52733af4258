"""Attention to a window of tokens around each query, in time and memory linear in the length."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

from regard.kernels.attention import Sight
from regard.nn.attention import Heads, HeadShape
from regard.nn.cache import KeysValues, RecurrentState
from regard.nn.mixers.config import WindowConfig
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.nn.positions import Positions
from regard.shapes import Bool, Float, Int, Tensor

_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 256


class _Keys(NamedTuple):
    """Keys and values where queries look for them, and where each stands; before 0 is nothing."""

    key: Tensor
    value: Tensor
    position: Tensor


class _Globals(NamedTuple):
    """Keys and values of the global tokens, and which of them a sequence has."""

    key: Tensor
    value: Tensor
    held: Tensor


class WindowAttention(Heads, RowMixer):
    """Attention to `window` keys around a query, its own included, and to some global tokens.

    A causal query sees the `window` last tokens up to itself. With `dilation` n those are every
    n-th token. The first `global_tokens` tokens are seen by all (by causal queries once
    they are past), and see all that they may.

    Long sequences are cut into blocks of queries, each with the keys that its window can reach:
    time and memory are in proportion to length times window, in training too.

    Its state are the keys and values of the last `(window - 1) dilation` tokens and of the
    global ones: at most `((window - 1) dilation + global_tokens) num_kv_heads (d_k + d_v)`
    numbers a row, however long the past is.

    Source: Beltagy et al. 2020 (Longformer), arXiv:2004.05150, section 3.1; with one set of
    projections, where the source has another for the queries, keys and values of global tokens.
    """

    def __init__(self, config: WindowConfig, shape: HeadShape, *, causal: bool) -> None:
        super().__init__(shape)
        self.causal = causal
        self.dilation = config.dilation
        self.global_tokens = config.global_tokens
        self.back = config.window - 1 if causal else config.window // 2
        self.ahead = config.window - 1 - self.back
        # Larger blocks compute more scores that are masked out, smaller ones copy keys more often.
        self.block = min(max(config.window // 2, _SMALLEST_BLOCK), _LARGEST_BLOCK)

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding no token looks at."""
        query, new = self.project(x_nld, rows.rotation)
        position_nl = rows.position_nl
        if rows.mask_nl is not None:
            position_nl = torch.where(rows.mask_nl, position_nl, -1)
        keys = _Keys(new.key_bhke, new.value_bhkw, position_nl)
        pinned = self._globals(keys, rows, past)
        native = None
        if past is not None and past.tensors:
            keys = _after(past, keys, rows.before_n)
        elif self.dilation == 1 and not rows.scheme.adds_to_scores:
            native = self.weigh_stretches(query, new, lambda: self.sight(rows))
        if native is not None:
            out = native
        elif query.shape[2] > self.block:
            out = self._blocked(query, keys, pinned, rows)
        else:
            out = self._dense(query, rows.position_nl, keys, pinned, rows.scheme)
        if past is not None:
            reach = self.back * self.dilation
            kept = (rows.last(keys.key, reach), rows.last(keys.value, reach))
            past.tensors = kept if pinned is None else (*kept, pinned.key, pinned.value)
        return self.join(out)

    def sees(
        self, query_nq: Int[Tensor, "#n q"], key_nk: Int[Tensor, "#n k"]
    ) -> Bool[Tensor, "#n q k"]:
        """Whether a query's window holds a key, by where they stand."""
        behind = query_nq[:, :, None] - key_nk[:, None, :]
        near = behind <= self.back * self.dilation
        near = near & (behind >= -self.ahead * self.dilation)
        return near if self.dilation == 1 else near & (behind % self.dilation == 0)

    def sight(self, rows: Rows) -> Sight:
        """Who sees whom in rows from their first tokens on, for a kernel; without a dilation."""
        place_1l = torch.arange(rows.length, device=rows.before_n.device)[None]
        count_n1 = torch.full_like(place_1l[:, :1], rows.length)
        count_n1 = count_n1 if rows.count_n is None else rows.count_n[:, None]
        start, end = (place_1l - self.back).clamp(min=0), place_1l + self.ahead + 1
        front = count_n1.clamp(max=self.global_tokens).expand(-1, rows.length)
        if self.causal:
            return Sight.of(start, end.minimum(count_n1), front.minimum(place_1l + 1))
        all_1l = place_1l < self.global_tokens
        start, end = torch.where(all_1l, 0, start), torch.where(all_1l, rows.length, end)
        return Sight.of(start, end.minimum(count_n1), front, lead=self.global_tokens)

    def pattern(self, length: int) -> Bool[Tensor, "q k"]:
        """Who sees whom in a sequence of so many tokens, written out."""
        places = torch.arange(length)[None]
        seen = self.sees(places, places)[0]
        global_1k = places < self.global_tokens
        seen = seen | global_1k | global_1k.T
        return seen.tril() if self.causal else seen

    def row_weights(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, heads: Sequence[int] | None
    ) -> Float[Tensor, "n h l l"]:
        """The weights of the plain form, under this layer's pattern as a mask."""
        query, seen = self.project(x_nld, rows.rotation)
        mask = self.pattern(rows.length).to(query.device)[None, None]
        if rows.mask_nl is not None:
            mask = mask & rows.mask_nl[:, None, None]
        bias = rows.scheme.bias(rows.position_nl, rows.position_nl)
        return self.weights_of(query, seen.key_bhke, mask, bias, heads)

    def _globals(self, new: _Keys, rows: Rows, past: RecurrentState | None) -> _Globals | None:
        """Keys and values of the global tokens, the first of a sequence; 0 for those to come."""
        if not self.global_tokens:
            return None
        place_g = torch.arange(self.global_tokens, device=new.key.device)
        at_ngl = new.position[:, None] == place_g[:, None]
        index_ng = at_ngl.long().argmax(2).expand(len(new.key), -1)[:, None, :, None]
        here_n1g1 = at_ngl.any(2)[:, None, :, None]
        old = past.tensors[2:] if past is not None and past.tensors else (None, None)
        key, value = (
            torch.where(
                here_n1g1,
                x.gather(2, index_ng.expand(-1, x.shape[1], -1, x.shape[3])),
                x.new_zeros(()) if before is None else before,
            )
            for x, before in zip((new.key, new.value), old, strict=True)
        )
        count_n = rows.length if rows.count_n is None else rows.count_n
        held_ng = place_g < (rows.before_n + count_n)[:, None]
        return _Globals(key, value, held_ng.expand(len(key), -1))

    def _dense(
        self,
        query: Tensor,
        query_nq: Tensor,
        keys: _Keys,
        pinned: _Globals | None,
        scheme: Positions,
        near: Tensor | None = None,
    ) -> Tensor:
        """Every key against every query, those out of reach masked out.

        `near` is what `sees` says, where that is known to be the same for all.
        """
        there_n1k = (keys.position >= 0)[:, None]
        mask = (self.sees(query_nq, keys.position) if near is None else near) & there_n1k
        seen, key_nk = KeysValues(keys.key, keys.value), keys.position
        if pinned is not None:
            # All global keys come once more in front, for the queries whose window lacks them.
            global_1g = torch.arange(self.global_tokens, device=query.device)[None]
            front = ~self.sees(query_nq, global_1g)
            if self.causal:
                front = front & (global_1g[:, None] <= query_nq[:, :, None])
            else:
                all_nq1 = (query_nq < self.global_tokens)[:, :, None]
                mask = mask | (all_nq1 & there_n1k)
                front = front & ~all_nq1 & pinned.held[:, None]
            seen = KeysValues(
                torch.cat([pinned.key, seen.key_bhke], 2),
                torch.cat([pinned.value, seen.value_bhkw], 2),
            )
            key_nk = torch.cat([global_1g.expand(len(key_nk), -1), key_nk], 1)
            n = max(len(mask), len(front))
            mask = torch.cat([front.expand(n, -1, -1), mask.expand(n, -1, -1)], 2)
        return self.weigh(query, seen, mask[:, None], scheme.bias(query_nq, key_nk))

    def _blocked(self, query: Tensor, keys: _Keys, pinned: _Globals | None, rows: Rows) -> Tensor:
        """Blocks of queries, each against the keys in its reach.

        With a dilation of n, the sequence is first dealt out into n, each of every n-th place; in
        each of them the window has no gaps.
        """
        n, heads, length, _ = query.shape
        # What reaches beyond all that is there meets nothing more, however far it goes.
        there = keys.key.shape[2]
        gap = min(self.dilation, there)
        back, ahead = (min(reach, -(-there // gap)) for reach in (self.back, self.ahead))
        size = min(self.block, -(-length // gap))
        over = -length % (gap * size)
        sides = (back * gap - (there - length), over + ahead * gap)
        width = size + back + ahead
        query_nq1 = rows.position_nl.expand(n, -1)[:, None, :, None]
        key_nk1 = keys.position.expand(n, -1)[:, None, :, None]
        near = _Keys(
            _dealt(_padded(keys.key, sides), gap, size, width),
            _dealt(_padded(keys.value, sides), gap, size, width),
            _dealt(_padded(key_nk1 + 1, sides) - 1, gap, size, width)[:, 0, :, 0],
        )
        query_mq = _dealt(_padded(query_nq1, (0, over)), gap, size, size)[:, 0, :, 0]
        if pinned is not None:
            repeats = len(query_mq) // n
            pinned = _Globals(*(x.repeat_interleave(repeats, 0) for x in pinned))
        queries = _dealt(_padded(query, (0, over)), gap, size, size)
        # A block and its keys lie alike wherever it is: the window's mask is that of one block.
        first_1q = torch.arange(size, device=query.device)[None] * gap
        reach_1k = (torch.arange(width, device=query.device)[None] - back) * gap
        seen = self.sees(first_1q, reach_1k)
        out = self._dense(queries, query_mq, near, pinned, rows.scheme, seen)
        out = out.reshape(n, gap, -1, heads, size, out.shape[-1])
        out = out.permute(0, 3, 2, 4, 1, 5).reshape(n, heads, length + over, -1)[:, :, :length]
        if self.global_tokens and not self.causal:
            others = out[:, :, self.global_tokens :]
            out = torch.cat([self._of_globals(query, keys, rows), others], 2)
        return out

    def _of_globals(self, query: Tensor, keys: _Keys, rows: Rows) -> Tensor:
        """What the global tokens take from all."""
        first = slice(0, self.global_tokens)
        mask = (keys.position >= 0)[:, None, None]
        bias = rows.scheme.bias(rows.position_nl[:, first], rows.position_nl)
        return self.weigh(query[:, :, first], KeysValues(keys.key, keys.value), mask, bias)


def _dealt(x_nhke: Tensor, gap: int, step: int, width: int) -> Tensor:
    """Blocks of `width` places, `step` apart, of every `gap`-th place: m h width e."""
    n, heads, places, e = x_nhke.shape
    dealt = x_nhke.transpose(1, 2).reshape(n, places // gap, gap, heads * e)
    blocks = dealt.transpose(1, 2).unfold(2, width, step)  # n gap m (h e) width
    return blocks.transpose(3, 4).reshape(-1, width, heads, e).transpose(1, 2)


def _after(past: RecurrentState, new: _Keys, before_n: Tensor) -> _Keys:
    """The keys and values of a past, the last of which comes just before the new ones."""
    key, value = past.tensors[:2]
    ring = key.shape[2]
    position = before_n[:, None] - ring + torch.arange(ring, device=key.device)
    rows = max(len(position), len(new.position))
    return _Keys(
        torch.cat([key, new.key], 2),
        torch.cat([value, new.value], 2),
        torch.cat([position.expand(rows, -1), new.position.expand(rows, -1)], 1),
    )


def _padded(x_nhke: Tensor, sides: tuple[int, int]) -> Tensor:
    """More places of 0 on both sides."""
    return functional.pad(x_nhke, (0, 0, *sides))
