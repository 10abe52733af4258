"""Float32 products of matrices by the library that is faster on this processor.

PyTorch gives float32 products to MKL, which on processors that Intel did not make leaves AVX-512
alone. oneDNN, which comes with PyTorch too and does its bfloat16 products, uses it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

import torch
from torch.nn import functional

from regard.kernels.switch import plain_on_cpu, switched_on
from regard.machine import cpu_model
from regard.shapes import Float, Tensor

# With fewer rows MKL is as fast or faster.
_FEW_ROWS: Final = 16
# Of products in a batch, those of fewer multiplications are as fast or faster all at once by MKL.
_SMALL: Final = 2**22


@cache
def onednn_is_faster() -> bool:
    """Whether float32 products are oneDNN's here.

    By a rule, and not by a measurement at every start, since the two differ in their last bits:
    a run and its continuation must choose alike. On an AMD EPYC with AVX-512 (Zen 5) oneDNN was
    measured 2.1 to 2.3 times as fast, see docs/kernels.md.
    """
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return (
        "AMD" in cpu_model()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and there
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def summary() -> str:
    """Whose float32 products are, for a person to read."""
    return "oneDNN" if onednn_is_faster() and switched_on() else "PyTorch's choice"


def product(left_nk: Float[Tensor, "n k"], right_km: Float[Tensor, "k m"]) -> Float[Tensor, "n m"]:
    """`left_nk @ right_km`; where oneDNN does it, without gradients."""
    wanted = _is_onednns(left_nk, right_km, None) and not (
        torch.is_grad_enabled() and (left_nk.requires_grad or right_km.requires_grad)
    )
    return _linear(left_nk, right_km.t(), None) if wanted else left_nk @ right_km


def add_product(total_nm: Tensor, left_nk: Tensor, right_km: Tensor) -> None:
    """Add `left_nk @ right_km` to a total that may be of a wider type; without gradients."""
    if total_nm.dtype == left_nk.dtype and not _is_onednns(left_nk, right_km, None):
        total_nm.addmm_(left_nk, right_km)
    else:
        total_nm += product(left_nk, right_km)


def linear(
    x: Float[Tensor, "*places k"],
    weight_mk: Float[Tensor, "m k"],
    bias_m: Float[Tensor, " m"] | None = None,
) -> Float[Tensor, "*places m"]:
    """The same as `torch.nn.functional.linear`, gradients and their gradients included."""
    if torch.is_autocast_enabled("cpu") or not _is_onednns(x, weight_mk, bias_m):
        return functional.linear(x, weight_mk, bias_m)
    apply = cast(Callable[..., Tensor], _Linear.apply)
    return apply(x.reshape(-1, x.shape[-1]), weight_mk, bias_m).view(*x.shape[:-1], -1)


def batched(
    left_bnk: Float[Tensor, "*b n k"], right_bkm: Float[Tensor, "*b k m"]
) -> Float[Tensor, "*b n m"]:
    """The same as `left_bnk @ right_bkm`, gradients and their gradients included.

    Where oneDNN is faster it does one large matrix after the other.
    """
    (n, k), m = left_bnk.shape[-2:], right_bkm.shape[-1]
    wanted = (
        left_bnk.dim() > 2
        and n * k * m >= _SMALL
        and not torch.is_autocast_enabled("cpu")
        and _is_onednns(left_bnk, right_bkm, None)
    )
    if not wanted:
        return left_bnk @ right_bkm
    apply = cast(Callable[..., Tensor], _Batched.apply)
    return apply(left_bnk, right_bkm)


class Linear(torch.nn.Linear):
    """`torch.nn.Linear` by `linear`."""

    def forward(self, input: Float[Tensor, "*places k"]) -> Float[Tensor, "*places m"]:
        """Each vector of `input` through the matrix, plus the bias."""
        return linear(input, self.weight, self.bias)


def _is_onednns(x: Tensor, weight_mk: Tensor, bias_m: Tensor | None) -> bool:
    return (
        x.dtype == weight_mk.dtype == torch.float32
        and (bias_m is None or bias_m.dtype == torch.float32)
        and onednn_is_faster()
        and x.numel() >= _FEW_ROWS * x.shape[-1] > 0
        and weight_mk.numel() > 0
        and plain_on_cpu(x, weight_mk, bias_m)
        and switched_on()
    )


def _linear(x_nk: Tensor, weight_mk: Tensor, bias_m: Tensor | None) -> Tensor:
    x_nk, weight_mk = _apart(x_nk), _apart(weight_mk)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x_nk, weight_mk, bias_m, "none", [], "")
    return out


def _apart(x_nk: Tensor) -> Tensor:
    """The matrix, copied if its rows lie over each other (as in windows over a sequence)."""
    (rows, columns), (down, along) = x_nk.shape, x_nk.stride()
    by_rows, by_columns = along == 1 and down >= columns, down == 1 and along >= rows
    return x_nk if by_rows or by_columns else x_nk.contiguous()


class _Linear(torch.autograd.Function):
    """`x W^T + b` with its three gradients."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x_nk: Tensor,
        weight_mk: Tensor,
        bias_m: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x_nk, weight_mk)
        return _linear(x_nk, weight_mk, bias_m)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x_nk, weight_mk = ctx.saved_tensors
        (slope_nm,) = slopes
        for_x, for_weight, for_bias = ctx.needs_input_grad
        # Where gradients of gradients are wanted, `product` leaves these to PyTorch.
        return (
            product(slope_nm, weight_mk) if for_x else None,
            product(slope_nm.t(), x_nk) if for_weight else None,
            slope_nm.sum(0) if for_bias else None,
        )


class _Batched(torch.autograd.Function):
    """Products of as many matrices as there are, with their two gradients."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        left_bnk: Tensor,
        right_bkm: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(left_bnk, right_bkm)
        (n, k), m = left_bnk.shape[-2:], right_bkm.shape[-1]
        pairs = zip(left_bnk.flatten(0, -3), right_bkm.flatten(0, -3), strict=True)
        # A sum over many is faster with the wider matrix as the weight.
        turned = k > n > m
        out_bnm = left_bnk.new_empty(left_bnk.shape[:-2] + ((m, n) if turned else (n, m)))
        for out_nm, (left_nk, right_km) in zip(out_bnm.flatten(0, -3), pairs, strict=True):
            x, weight = (right_km.t(), left_nk) if turned else (left_nk, right_km.t())
            out_nm.copy_(_linear(x, weight, None))
        return out_bnm.mT if turned else out_bnm

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        left_bnk, right_bkm = ctx.saved_tensors
        (slope_bnm,) = slopes
        for_left, for_right = ctx.needs_input_grad
        # These are differentiable in their turn.
        return (
            batched(slope_bnm, right_bkm.mT) if for_left else None,
            batched(left_bnk.mT, slope_bnm) if for_right else None,
        )
