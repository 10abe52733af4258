"""Attention to near blocks, to global ones and to some drawn at random."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from regard.kernels.attention import BLOCK, Sight
from regard.nn.attention import Heads, HeadShape
from regard.nn.cache import KeysValues, RecurrentState
from regard.nn.mixers.config import BigBirdConfig
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Bool, Float, Int, Tensor

_NEVER = 2**62


class BigBirdAttention(Heads, RowMixer):
    """Blocks of `block` queries look at `window` blocks around them, some global and some random.

    A causal block looks at the `window` last ones up to itself (within itself at what is not
    later), at the global ones before it and at random ones before it. Else the window lies
    around it, and the first `global_blocks` blocks see all and are seen by all.

    Which blocks are random is a pure function of `seed`, of the block that looks, and of how many
    blocks there are to choose from: the others in a batch, and what was computed before, change
    nothing. All heads have the same.

    Time and memory of the attention grow with the length times what a query sees; finding the
    blocks takes some tens of bytes for each pair of blocks. The state of a causal one are the
    keys and values of all tokens so far, `num_kv_heads (d_k + d_v)` numbers a token and row; a
    step computes all their scores and masks most.

    Source: Zaheer et al. 2020, arXiv:2007.14062, section 2 and appendix D.
    """

    def __init__(self, config: BigBirdConfig, shape: HeadShape, *, causal: bool) -> None:
        super().__init__(shape)
        self.causal = causal
        self.block = config.block
        self.global_blocks = config.global_blocks
        self.random_blocks = config.random_blocks
        self.seed = config.seed
        self.back = config.window - 1 if causal else config.window // 2
        self.ahead = config.window - 1 - self.back
        self.most = config.window + config.global_blocks + config.random_blocks

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding no token looks at."""
        query, seen = self.project(x_nld, rows.rotation)
        before = past.tensors if past is not None else ()
        if before:
            seen = KeysValues(
                torch.cat([before[0], seen.key_bhke], 2), torch.cat([before[1], seen.value_bhkw], 2)
            )
            out = self._dense(query, seen, rows)
        else:
            native = self.weigh_stretches(query, seen, lambda: self.sight(rows))
            out = self._blocked(query, seen, rows) if native is None else native
        if past is not None:
            size = seen.key_bhke.shape[2]
            past.tensors = (rows.last(seen.key_bhke, size), rows.last(seen.value_bhkw, size))
        return self.join(out)

    def pattern(self, length: int) -> Bool[Tensor, "q k"]:
        """Who sees whom in a sequence of so many tokens, written out."""
        size = min(self.block, max(length, 1))
        blocks = -(-length // size)
        linked = self.links(torch.tensor([blocks]), blocks)[0]
        seen = linked.repeat_interleave(size, 0).repeat_interleave(size, 1)
        seen = seen[:length, :length]
        return seen.tril() if self.causal else seen

    def sight(self, rows: Rows) -> Sight | None:
        """Who sees whom, for a kernel; None where a kernel can't do it."""
        size, length = self.block, rows.length
        unfit = size % 16 or (size > BLOCK and size % BLOCK)
        if unfit or rows.scheme.adds_to_scores:
            return None
        blocks = -(-length // size)
        count_n = self._count(rows)
        linked_nmm = self.links(-(-count_n // size), blocks)
        n = max(len(linked_nmm), len(count_n))
        to_nmj = linked_nmm.byte().topk(min(self.most, blocks), sorted=True).indices
        there_nmj = linked_nmm.gather(2, to_nmj)
        # In order, those that are not linked last.
        start_nmj = torch.where(there_nmj, to_nmj * size, blocks * size).sort(2).values
        start_nmj = start_nmj.minimum(count_n[:, None, None]).expand(n, -1, -1)
        end_nmj = (start_nmj + size).minimum(count_n[:, None, None])
        if not self.causal and self.global_blocks:
            start_nmj, end_nmj = start_nmj.clone(), end_nmj.clone()
            start_nmj[:, : self.global_blocks] = 0
            end_nmj[:, : self.global_blocks] = count_n[:, None, None]
        stretches = torch.stack([start_nmj, end_nmj], 3).repeat_interleave(-(-size // BLOCK), 1)
        end_nl = count_n[:, None].expand(n, length)
        if self.causal:
            end_nl = end_nl.minimum(torch.arange(length, device=end_nl.device) + 1)
        seen = torch.stack([torch.zeros_like(end_nl), end_nl, torch.zeros_like(end_nl)], 2)
        return Sight(seen.int().contiguous(), stretches.int().contiguous(), min(size, BLOCK))

    def links(self, blocks_n: Int[Tensor, " n"], most: int) -> Bool[Tensor, "#n m m"]:
        """Which of `most` blocks looks at which, in rows that have so many of them."""
        place = torch.arange(most, device=blocks_n.device)
        behind = place[:, None] - place
        near = (behind <= self.back) & (behind >= -self.ahead)
        first = place < self.global_blocks
        if self.causal:
            there = (behind >= 0)[None]
            everywhere = first[None, :] | torch.zeros_like(near)
        else:
            there = (place < blocks_n[:, None])[:, None]
            everywhere = first | first[:, None]
        fixed = near | everywhere
        candidates = there & ~fixed
        chosen = torch.zeros_like(candidates)
        if wanted := min(self.random_blocks, most):
            drawn = _drawn(self.seed, most, place.device)
            scores = torch.where(candidates, drawn, _NEVER)
            least = scores.topk(wanted, largest=False).indices
            chosen = chosen.scatter(2, least, True) & candidates
        return (fixed & there) | chosen

    def row_weights(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, heads: Sequence[int] | None
    ) -> Float[Tensor, "n h l l"]:
        """The weights of the plain form, under each row's pattern as a mask."""
        query, seen = self.project(x_nld, rows.rotation)
        place = torch.arange(rows.length, device=query.device) // self.block
        most = -(-rows.length // self.block)
        linked = self.links(-(-self._count(rows) // self.block), most)
        mask = linked[:, place][:, :, place][:, None]
        mask = mask.tril() if self.causal else mask
        if rows.mask_nl is not None:
            mask = mask & rows.mask_nl[:, None, None]
        bias = rows.scheme.bias(rows.position_nl, rows.position_nl)
        return self.weights_of(query, seen.key_bhke, mask, bias, heads)

    def _count(self, rows: Rows) -> Tensor:
        """The tokens of each sequence so far."""
        return rows.before_n + (rows.length if rows.count_n is None else rows.count_n)

    def _dense(self, query: Tensor, seen: KeysValues, rows: Rows) -> Tensor:
        """Every key against every query, those not linked masked out."""
        size, query_nl = seen.key_bhke.shape[2], rows.position_nl
        first_n1 = (query_nl[:, :1] + rows.length) - size
        key_nk = first_n1 + torch.arange(size, device=query.device)
        most = int(query_nl.max()) // self.block + 1
        blocks_n = -(-self._count(rows) // self.block)
        linked = self.links(blocks_n, most).expand(len(query_nl), -1, -1)
        from_nlm = (query_nl // self.block)[..., None].expand(-1, -1, most)
        to_nlk = (key_nk.clamp(min=0) // self.block)[:, None].expand(-1, rows.length, -1)
        mask = linked.gather(1, from_nlm).gather(2, to_nlk) & (key_nk >= 0)[:, None]
        mask = mask & (key_nk[:, None] <= query_nl[..., None])
        return self.weigh(query, seen, mask[:, None], rows.scheme.bias(query_nl, key_nk))

    def _blocked(self, query: Tensor, seen: KeysValues, rows: Rows) -> Tensor:
        """Each block of queries against the blocks that it looks at, brought together."""
        n, heads, length, _ = query.shape
        size = min(self.block, length)  # what is shorter than a block is one
        blocks = -(-length // size)
        over = blocks * size - length
        query, key, value = (
            functional.pad(x, (0, 0, 0, over)) for x in (query, seen.key_bhke, seen.value_bhkw)
        )
        count_n = self._count(rows).expand(n)
        linked_nmm = self.links(-(-count_n // size), blocks).expand(n, -1, -1)
        # Those that are linked come first; ties are all linked, or all masked out below.
        to_nmj = linked_nmm.byte().topk(min(self.most, blocks), sorted=True).indices
        there_nmj = linked_nmm.gather(2, to_nmj)
        place_s = torch.arange(size, device=query.device)
        key_mk = (to_nmj[..., None] * size + place_s).view(n * blocks, -1)
        block_m1 = torch.arange(blocks, device=query.device)[:, None]
        query_mq = (block_m1 * size + place_s).repeat(n, 1)
        mask = there_nmj.view(n * blocks, -1).repeat_interleave(size, 1)[:, None]
        mask = mask & (key_mk < count_n.repeat_interleave(blocks)[:, None])[:, None]
        if self.causal:
            mask = mask & (key_mk[:, None] <= query_mq[..., None])
        near = KeysValues(_brought(key, to_nmj), _brought(value, to_nmj))
        queries = query.view(n, heads, blocks, size, -1).transpose(1, 2).flatten(0, 1)
        out = self.weigh(queries, near, mask[:, None], rows.scheme.bias(query_mq, key_mk))
        out = out.view(n, blocks, heads, size, -1).transpose(1, 2).flatten(2, 3)
        if self.global_blocks and not self.causal:
            first = slice(0, min(self.global_blocks * size, length))
            bias = rows.scheme.bias(rows.position_nl[:, first], rows.position_nl)
            held = None if rows.mask_nl is None else rows.mask_nl[:, None, None]
            whole = self.weigh(query[:, :, first], seen, held, bias)
            out = torch.cat([whole, out[:, :, whole.shape[2] :]], 2)
        return out[:, :, :length]


def _brought(x_nhke: Tensor, block_nmj: Tensor) -> Tensor:
    """The vectors of the blocks of each row that each of its blocks looks at: m h k e.

    Whole blocks, all their heads, are copied as rows of one matrix, in the layout in which the
    fused kernel gives gradients: to gather vector by vector took several times as long.
    """
    n, heads, _, e = x_nhke.shape
    blocks = block_nmj.shape[1]
    rows = x_nhke.transpose(1, 2).reshape(n * blocks, -1)
    row_n11 = torch.arange(n, device=rows.device)[:, None, None] * blocks
    brought = rows.index_select(0, (row_n11 + block_nmj).flatten())
    return brought.view(n * blocks, -1, heads, e).transpose(1, 2)


def _drawn(seed: int, size: int, device: torch.device) -> Int[Tensor, "m m"]:
    """A number below 2^31 for each pair of blocks, by a hash of the pair and the seed alone."""
    place = torch.arange(size, device=device)
    mixed = place[:, None] * 0x9E3779B1 + place * 0x85EBCA77 + seed * 0xC2B2AE3D + 0x27D4EB2F
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        mixed = mixed & 0xFFFFFFFF
        mixed = (mixed ^ (mixed >> shift)) * factor
    return (mixed & 0xFFFFFFFF) >> 1
