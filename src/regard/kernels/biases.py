"""ReLU after a linear layer in bfloat16: one pass makes its slopes and the bias's gradient.

The product itself, its slopes and its weight's gradient are PyTorch's, bit for bit. A bias's
gradient is the sum of slopes over rows in float32, which PyTorch rounds to bfloat16 and this
leaves as it is.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import torch
from torch.nn import functional

from regard.kernels.native import module, team, wanted_for
from regard.kernels.switch import trains_in_bfloat16
from regard.shapes import Float, Tensor

# Of fewer numbers a sum costs less than what stands around it here.
_SMALL: Final = 2**18


def linear_relu(
    x: Float[Tensor, "*places k"],
    weight_mk: Float[Tensor, "m k"],
    bias_m: Float[Tensor, " m"] | None,
) -> Float[Tensor, "*places m"] | None:
    """`relu(x W^T + b)`; None where it isn't for this."""
    if bias_m is None or not bias_m.requires_grad or not trains_in_bfloat16():
        return None
    fits = (
        x.dtype in (torch.float32, torch.bfloat16)
        and weight_mk.dtype == bias_m.dtype == torch.float32
        and x.ndim > 0
        and x.shape[-1] > 0
        and x.numel() // x.shape[-1] * bias_m.numel() >= _SMALL
    )
    if not fits or not wanted_for(x, weight_mk, bias_m):
        return None
    # The kernel takes the bias's gradient, so PyTorch is to take none.
    out_nm = functional.linear(x.reshape(-1, x.shape[-1]), weight_mk, bias_m.detach())
    relu = cast(Callable[..., Tensor], _ReLU.apply)
    return relu(out_nm, bias_m).view(*x.shape[:-1], len(bias_m))


class _ReLU(torch.autograd.Function):
    """The ReLU of what a layer with that bias made, in its place."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x_nm: Tensor,
        bias_m: Tensor,
    ) -> Tensor:
        ctx.mark_dirty(x_nm.relu_())
        ctx.save_for_backward(x_nm)
        return x_nm

    @staticmethod
    def backward(ctx: Any, slope_nm: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        (out_nm,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients of these are wanted
            slope_nm = slope_nm.masked_fill(out_nm <= 0, 0.0)
            return slope_nm, slope_nm.sum(0, dtype=torch.float32)
        slope_nm = slope_nm.contiguous()
        rows, columns = slope_nm.shape
        for_x = torch.empty_like(slope_nm)
        blocks = -(-rows // module().BIAS_ROWS)
        sums = torch.empty(blocks + 1, columns)
        module().bias_slopes(
            rows,
            columns,
            *(x.data_ptr() for x in (slope_nm, out_nm, for_x, sums)),
            *team(),
        )
        return for_x, sums[-1].clone()
