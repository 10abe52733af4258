"""`x + dropout(y)`, its layer norm, and either alone, in one pass forward and one backward.

What is dropped is not stored: it follows from a seed, drawn from PyTorch's generator, and the place
of an element, and is worked out again in the backward pass.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

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


class Affine(NamedTuple):
    """A layer norm's gain, bias and epsilon."""

    weight_d: Float[Tensor, " d"]
    bias_d: Float[Tensor, " d"]
    epsilon: float


# What is added to next, and what goes into the next sublayer.
Branched = tuple[Float[Tensor, "*places d"], Float[Tensor, "*places d"]]


def residual_norm(
    x: Float[Tensor, "*places d"],
    y: Float[Tensor, "*places d"],
    dropped: int,
    affine: Affine,
    *,
    norm_first: bool = False,
    narrow: bool = False,
) -> Branched | None:
    """The layer norm of `residual`, twice; None where it isn't for this.

    Args:
        x: what is added to.
        y: what is added.
        dropped: how many in 256 of it are dropped.
        affine: the norm.
        norm_first: the first of the two is the sum itself.
        narrow: the second of the two is in bfloat16, rounded as a cast of it would be.
    """
    if not _fits(x, y, dropped) or not _fits_norm(x, affine):
        return None
    if not wanted_for(x, y, affine.weight_d, affine.bias_d):
        return None
    return _both(x, y, dropped, _seed(), affine, norm_first, narrow)


def norm(x: Float[Tensor, "*places d"], affine: Affine, *, narrow: bool) -> Branched | None:
    """`x` and its layer norm, in bfloat16 if `narrow`; None where it isn't for this.

    The slopes of the two are added in the pass that takes them back through the norm.
    """
    fits = x.dtype == torch.float32 and x.ndim > 0 and x.shape[-1] > 0 and _fits_norm(x, affine)
    if not fits or not wanted_for(x, affine.weight_d, affine.bias_d):
        return None
    return _both(x, None, 0, 0, affine, True, narrow)


def _both(
    x: Tensor,
    y: Tensor | None,
    dropped: int,
    seed: int,
    affine: Affine,
    norm_first: bool,
    narrow: bool,
) -> Branched:
    apply = cast(Callable[..., tuple[Tensor, Tensor | None]], _Norm.apply)
    first, second = apply(x, y, dropped, seed, *affine, norm_first, narrow)
    return first, first if second is None else second


def _fits(x: Tensor, y: Tensor, dropped: int) -> bool:
    kinds = x.dtype == torch.float32 and y.dtype in _NARROW
    return kinds and x.shape == y.shape and x.ndim > 0 and x.shape[-1] > 0 and 0 <= dropped < 256


def _fits_norm(x: Tensor, affine: Affine) -> bool:
    vectors = affine[:2]
    return all(v.dtype == torch.float32 and v.shape == x.shape[-1:] for v in vectors)


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
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        module().residual(
            _rows(x),
            x.shape[-1],
            *(x.data_ptr(), y.data_ptr(), y.dtype == torch.bfloat16),
            *(seed, dropped, out.data_ptr()),
            *(0, 0, 0, 0, 0.0, 0, 0),
            *team(),
        )
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
            *(0, 0, 0, 0, 0, 0, 0, 0),
            *team(),
        )
        return slopes, for_y, None, None


class _Norm(torch.autograd.Function):
    """The layer norm of `x + dropout(y)` or of `x`."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x: Tensor,
        y: Tensor | None,
        dropped: int,
        seed: int,
        weight_d: Tensor,
        bias_d: Tensor,
        epsilon: float,
        norm_first: bool,
        narrow: bool,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.dropped, ctx.seed, ctx.kind = dropped, seed, None if y is None else y.dtype
        ctx.norm_first, ctx.narrow = norm_first, narrow
        given, weight_d, bias_d = x.contiguous(), weight_d.contiguous(), bias_d.contiguous()
        y = None if y is None else y.contiguous()
        added = given if y is None else torch.empty_like(given)
        wide = None if norm_first and narrow else torch.empty_like(given)
        halved = torch.empty_like(given, dtype=torch.bfloat16) if narrow else None
        mean_n, inverse_n = torch.empty(2, _rows(given))
        module().residual(
            _rows(given),
            given.shape[-1],
            *(given.data_ptr(), _address(y), ctx.kind == torch.bfloat16),
            *(seed, dropped, added.data_ptr()),
            *(_address(wide), _address(halved), weight_d.data_ptr(), bias_d.data_ptr()),
            *(epsilon, mean_n.data_ptr(), inverse_n.data_ptr()),
            *team(),
        )
        ctx.save_for_backward(added, mean_n, inverse_n, weight_d)
        if not norm_first:
            return wide, halved
        return x if y is None else added, halved if narrow else wide

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        refuse_second_gradients("the residual kernel")
        added, mean_n, inverse_n, weight_d = ctx.saved_tensors
        first, second = (None if x is None else x.contiguous() for x in slopes)
        of_sum, wide = (first, None) if ctx.norm_first else (None, first)
        wide, halved = (wide, second) if ctx.narrow else (second if ctx.norm_first else wide, None)
        if wide is None and halved is None:  # nobody read the norm
            wide = torch.zeros_like(added)
        rows, d = _rows(added), added.shape[-1]
        for_x = torch.empty_like(added)
        for_y = None if ctx.kind is None else torch.empty_like(added, dtype=ctx.kind)
        blocks = -(-rows // module().RESIDUAL_ROWS)
        sums = torch.empty(blocks + 1, 2, d)
        module().residual_slopes(
            rows,
            d,
            *(_address(of_sum), ctx.kind == torch.bfloat16),
            *(ctx.seed, ctx.dropped, _address(for_y)),
            *(x.data_ptr() for x in (weight_d, added, mean_n, inverse_n)),
            *(_address(wide), _address(halved), for_x.data_ptr(), sums.data_ptr()),
            *team(),
        )
        for_weight, for_bias = sums[-1].clone()
        return for_x, for_y, None, None, for_weight, for_bias, None, None, None


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
