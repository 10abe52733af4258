"""Attention where each query sees one stretch of keys, and some at the front.

Blocks of queries meet the keys that they may see in steps, whose scores stay in the cache; the
backward pass computes them anew. No mask and no matrix of scores is made, nothing is copied into
another layout, and what a mask would hide is not computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import torch
from torch.nn import functional

from regard.kernels.native import module, refuse_second_gradients, team, wanted_for
from regard.shapes import Float, Int, Tensor

BLOCK: Final = 64  # queries
FEWEST: Final = 8  # places from which on it was measured faster than products of matrices
_WIDEST: Final = 512
_TYPES: Final = (torch.float32, torch.bfloat16)  # sums and scores are float32


@dataclass(frozen=True)
class Sight:
    """What each query sees: keys from its first up to its second number, and as many at the front
    as its third says; of those, the ones in the stretches that its block of queries looks at.

    Attributes:
        seen_nq3: from, up to, how many at the front.
        stretches_nmr2: from and up to, of each block, in order; empty where they are equal.
        block: how many queries are in one.
        lead: how many are in a shorter one before the others; 0 = there is none.
    """

    seen_nq3: Int[Tensor, "n q 3"]
    stretches_nmr2: Int[Tensor, "n m r 2"]
    block: int = BLOCK
    lead: int = 0

    @classmethod
    def of(
        cls,
        start_nq: Int[Tensor, "#n q"],
        end_nq: Int[Tensor, "#n q"],
        front_nq: Int[Tensor, "#n q"] | None = None,
        *,
        lead: int = 0,
    ) -> Self:
        """From the stretch of each query, which is empty where it ends before it starts.

        Some `lead` queries that see much more than the others are best in a block of their own.
        """
        front_nq = torch.zeros_like(end_nq) if front_nq is None else front_nq
        parts = (start_nq, end_nq.maximum(start_nq), front_nq)
        zero_nq = (start_nq + end_nq + front_nq) * 0  # as many rows as any of them has
        seen_nq3 = torch.stack([part + zero_nq for part in parts], -1).int()
        start_nq, end_nq, front_nq = seen_nq3.unbind(-1)
        start_nq = torch.where(end_nq > start_nq, start_nq, torch.iinfo(torch.int32).max)
        lead = min(lead, start_nq.shape[1]) % BLOCK
        before = -lead % BLOCK
        over = (before, -(before + start_nq.shape[1]) % BLOCK)
        start_nm = _blocks(start_nq, over, torch.iinfo(torch.int32).max).amin(2)
        end_nm, front_nm = (_blocks(x, over, 0).amax(2) for x in (end_nq, front_nq))
        first = torch.stack([torch.zeros_like(front_nm), front_nm], -1)
        second = torch.stack([start_nm.minimum(end_nm), end_nm], -1)
        stretches_nmr2 = torch.stack([first, second], 2)
        return cls(seen_nq3.contiguous(), stretches_nmr2.contiguous(), lead=lead)


def _blocks(x_nq: Tensor, over: tuple[int, int], filler: int) -> Tensor:
    return functional.pad(x_nq, over, value=filler).view(len(x_nq), -1, BLOCK)


def attention(
    query: Float[Tensor, "b h q e"],
    key: Float[Tensor, "b g k e"],
    value: Float[Tensor, "b g k w"],
    sight: Sight,
    scale: float,
) -> Float[Tensor, "b h q w"] | None:
    """`softmax(scale q k^T) v` of what each query sees; 0 for one that sees nothing.

    Heads of queries share those of keys, neighbours with each other. None where
    `fits` says no, and where a key or a value is not finite, which needs more care.
    """
    if not fits(query, key, value):
        return None
    flaws: list[bool] = []
    out = cast(Callable[..., Tensor], _Attention.apply)(query, key, value, sight, scale, flaws)
    return None if flaws else out


def fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether it is for these: of such a type, rows and heads for all threads, on such a CPU."""
    _, heads, queries, width = query.shape
    rows, shared, keys, value_width = value.shape
    return (
        query.dtype == key.dtype == value.dtype
        and query.dtype in _TYPES
        and min(queries, keys, rows, shared, width, value_width) > 0
        and max(width, value_width) <= _WIDEST
        and keys < 2**30
        and heads % shared == 0
        # A head of keys is one thread's, so that any number of threads gives the same bits.
        and rows * shared >= torch.get_num_threads()
        and wanted_for(query, key, value)
        and _fast()
    )


def _fast() -> bool:
    """Whether it was measured faster than PyTorch's on such a processor."""
    return str(module().isa()).startswith("avx512")


def _strided(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _places(x_bhke: Tensor) -> tuple[int, ...]:
    """What a kernel is told of vectors: where they are and how far from each other."""
    return (x_bhke.data_ptr(), *x_bhke.stride()[:3])


def _sizes(query: Tensor, value: Tensor) -> tuple[int, ...]:
    rows, heads, queries, width = query.shape
    _, shared, keys, value_width = value.shape
    return rows, shared, heads // shared, queries, keys, width, value_width


def _told(sight: Sight) -> tuple[int, ...]:
    seen, stretches = sight.seen_nq3, sight.stretches_nmr2
    return (
        sight.block,
        sight.lead,
        stretches.shape[2],
        seen.data_ptr(),
        stretches.data_ptr(),
        seen.stride(0) if len(seen) > 1 else 0,
        stretches.stride(0) if len(stretches) > 1 else 0,
    )


def _scratch(key: Tensor, value: Tensor) -> Tensor:
    """Room for each thread."""
    threads = min(torch.get_num_threads(), len(key) * key.shape[1])
    each = module().attention_scratch(key.shape[2], key.shape[3], value.shape[3])
    return torch.empty(threads * each)


class _Attention(torch.autograd.Function):
    """The output, whose vectors lie side by side place by place, all heads of each."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sight: Sight,
        scale: float,
        flaws: list[bool],
    ) -> Tensor:
        query, key, value = (_strided(x) for x in (query, key, value))
        b, heads, queries, _ = query.shape
        out_bqhw = query.new_empty(b, queries, heads, value.shape[3])
        out = out_bqhw.transpose(1, 2)
        level_bhq = torch.empty(b, heads, queries)
        flaws_bg = torch.empty(value.shape[:2])
        scratch = _scratch(key, value)
        module().attention(
            query.dtype == torch.bfloat16,
            _sizes(query, value),
            scale,
            _told(sight),
            *(_places(x) for x in (query, key, value, out)),
            *(x.data_ptr() for x in (level_bhq, flaws_bg, scratch)),
            *team(),
        )
        if bool((flaws_bg != 0).any()):
            flaws.append(True)
        ctx.save_for_backward(query, key, value, out, level_bhq)
        ctx.sight, ctx.scale = sight, scale
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        refuse_second_gradients("the attention kernel")
        query, key, value, out, level_bhq = ctx.saved_tensors
        slope = _strided(slope)
        made = _room(query, key, value)
        scratch = _scratch(key, value)
        module().attention_slopes(
            query.dtype == torch.bfloat16,
            _sizes(query, value),
            ctx.scale,
            _told(ctx.sight),
            *(_places(x) for x in (query, key, value, out)),
            level_bhq.data_ptr(),
            *(_places(x) for x in (slope, *made)),
            scratch.data_ptr(),
            *team(),
        )
        return (*made, None, None, None)


def _room(query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Where gradients go: side by side as what they are of, if that is parts of one projection."""
    if _share_memory(query, key) and query.shape[2] == key.shape[2]:
        return _side_by_side(query, key, value)
    return [*_side_by_side(query), *_side_by_side(key, value)]


def _share_memory(*tensors: Tensor) -> bool:
    return len({x.untyped_storage().data_ptr() for x in tensors}) == 1


def _side_by_side(*like: Tensor) -> list[Tensor]:
    """Room for as many, all heads of all of them beside each other, place by place."""
    widths = [x.shape[1] * x.shape[3] for x in like]
    joint = like[0].new_empty(len(like[0]), like[0].shape[2], sum(widths))
    return [
        part.view(*part.shape[:2], x.shape[1], x.shape[3]).transpose(1, 2)
        for part, x in zip(torch.split(joint, widths, -1), like, strict=True)
    ]


def parted(x: Float[Tensor, "*places d"], widths: list[int]) -> tuple[Tensor, ...]:
    """`torch.split` along the last axis, whose gradients are joined without a copy, if they can be.

    They can where they lie beside each other already, as those of `attention` do.
    """
    if not x.requires_grad or not wanted_for(x):
        return torch.split(x, widths, -1)
    return cast(Callable[..., tuple[Tensor, ...]], _Parted.apply)(x, widths)


class _Parted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x: Tensor,
        widths: list[int],
    ) -> tuple[Tensor, ...]:
        ctx.widths = widths
        return torch.split(x, widths, -1)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return _joined(slopes, ctx.widths), None


def _joined(slopes: tuple[Tensor, ...], widths: list[int]) -> Tensor:
    """Parts side by side: the tensor that they are parts of, or a copy."""
    first, whole = slopes[0], sum(widths)
    start = first.storage_offset()
    strides = torch.empty(0).new_empty(*first.shape[:-1], whole, device="meta").stride()
    beside = not torch.is_grad_enabled()
    for slope, width in zip(slopes, widths, strict=True):
        beside = (
            beside
            and _share_memory(slope, first)
            and slope.storage_offset() == start
            and slope.stride() == strides
        )
        start += width
    if not beside:
        return torch.cat(slopes, -1)
    return first.as_strided((*first.shape[:-1], whole), strides, first.storage_offset())
