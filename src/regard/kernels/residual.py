"""`x + dropout(y)`, alone or with the layer norm after it, in one pass forward and one backward.

What is dropped is not stored: it follows from a seed, drawn from PyTorch's generator, and the place
of an element, and is worked out again in the backward pass.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import torch

from regard.kernels.native import module, refuse_second_gradients, team, wanted_for
from regard.shapes import Float, Tensor

_NARROW: Final = (torch.float32, torch.bfloat16)
_LOWEST: Final = -(2**63)


def residual(
    x: Float[Tensor, "*places d"], y: Float[Tensor, "*places d"], dropped: int
) -> Float[Tensor, "*places d"] | None:
    """`x` plus `y` of which `dropped` in 256 are 0; None where it isn't for this."""
    if not _fits(x, y, dropped) or not wanted_for(x, y):
        return None
    return cast(Callable[..., Tensor], _Residual.apply)(x, y, dropped, _seed())


def residual_norm(
    x: Float[Tensor, "*places d"],
    y: Float[Tensor, "*places d"],
    dropped: int,
    weight_d: Float[Tensor, " d"],
    bias_d: Float[Tensor, " d"],
    epsilon: float,
) -> Float[Tensor, "*places d"] | None:
    """The layer norm of `residual`; None where it isn't for this."""
    vectors = (weight_d, bias_d)
    fits = all(v.dtype == torch.float32 and v.shape == x.shape[-1:] for v in vectors)
    if not fits or not _fits(x, y, dropped) or not wanted_for(x, y, weight_d, bias_d):
        return None
    apply = cast(Callable[..., Tensor], _ResidualNorm.apply)
    return apply(x, y, dropped, _seed(), weight_d, bias_d, epsilon)


def _fits(x: Tensor, y: Tensor, dropped: int) -> bool:
    kinds = x.dtype == torch.float32 and y.dtype in _NARROW
    return kinds and x.shape == y.shape and x.ndim > 0 and x.shape[-1] > 0 and 0 <= dropped < 256


def _seed() -> int:
    return int(torch.empty((), dtype=torch.int64).random_(_LOWEST, None)) - _LOWEST


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


class _Residual(torch.autograd.Function):
    """`x + dropout(y)`."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x: Tensor,
        y: Tensor,
        dropped: int,
        seed: int,
    ) -> Tensor:
        ctx.dropped, ctx.seed, ctx.kind = dropped, seed, y.dtype
        out, _, _, _ = _forward(x, y, dropped, seed, None)
        return out

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        refuse_second_gradients("the residual kernel")
        slopes = slopes.contiguous()
        for_y = torch.empty_like(slopes, dtype=ctx.kind)
        module().residual_slopes(
            _rows(slopes),
            slopes.shape[-1],
            slopes.data_ptr(),
            ctx.kind == torch.bfloat16,
            ctx.seed,
            ctx.dropped,
            for_y.data_ptr(),
            *(0, 0, 0, 0, 0, 0),
            *team(),
        )
        return slopes, for_y, None, None


class _ResidualNorm(torch.autograd.Function):
    """The layer norm of `x + dropout(y)`."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x: Tensor,
        y: Tensor,
        dropped: int,
        seed: int,
        weight_d: Tensor,
        bias_d: Tensor,
        epsilon: float,
    ) -> Tensor:
        ctx.dropped, ctx.seed, ctx.kind = dropped, seed, y.dtype
        weight_d = weight_d.contiguous()
        norm = (weight_d, bias_d.contiguous(), epsilon)
        added, out, mean_n, inverse_n = _forward(x, y, dropped, seed, norm)
        ctx.save_for_backward(added, mean_n, inverse_n, weight_d)
        return cast(Tensor, out)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        refuse_second_gradients("the residual kernel")
        added, mean_n, inverse_n, weight_d = ctx.saved_tensors
        slopes = slopes.contiguous()
        rows, d = _rows(slopes), slopes.shape[-1]
        for_x = torch.empty_like(added)
        for_y = torch.empty_like(added, dtype=ctx.kind)
        blocks = -(-rows // module().RESIDUAL_ROWS)
        sums = torch.empty(blocks + 1, 2, d)
        module().residual_slopes(
            rows,
            d,
            slopes.data_ptr(),
            ctx.kind == torch.bfloat16,
            ctx.seed,
            ctx.dropped,
            for_y.data_ptr(),
            weight_d.data_ptr(),
            added.data_ptr(),
            mean_n.data_ptr(),
            inverse_n.data_ptr(),
            for_x.data_ptr(),
            sums.data_ptr(),
            *team(),
        )
        for_weight, for_bias = sums[-1].clone()
        return for_x, for_y, None, None, for_weight, for_bias, None


def _forward(
    x: Tensor,
    y: Tensor,
    dropped: int,
    seed: int,
    norm: tuple[Tensor, Tensor, float] | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """The sum and its norm, with the mean and the inverse deviation of each row."""
    x, y = x.contiguous(), y.contiguous()
    rows = _rows(x)
    vectors = (None, None) if norm is None else norm[:2]
    added = torch.empty_like(x)
    out = None if norm is None else torch.empty_like(x)
    mean_n, inverse_n = torch.empty(2, 0 if norm is None else rows)
    module().residual(
        rows,
        x.shape[-1],
        x.data_ptr(),
        y.data_ptr(),
        y.dtype == torch.bfloat16,
        seed,
        dropped,
        added.data_ptr(),
        *(0 if tensor is None else tensor.data_ptr() for tensor in (out, *vectors)),
        0.0 if norm is None else norm[2],
        mean_n.data_ptr(),
        inverse_n.data_ptr(),
        *team(),
    )
    return added, out, mean_n, inverse_n
