"""The residual connection around a sublayer, with dropout, and with the norm that may follow it."""

from torch import nn

from regard.kernels.residual import residual, residual_norm
from regard.nn.dropout import Dropout, dropped_of_256
from regard.shapes import Float, Tensor


def add(
    x: Float[Tensor, "*places d"], y: Float[Tensor, "*places d"], dropout: Dropout
) -> Float[Tensor, "*places d"]:
    """`x + dropout(y)`, on a CPU by a native kernel while training."""
    dropped = _dropped(dropout)
    out = None if dropped == 0 else residual(x, y, dropped)
    return x + dropout(y) if out is None else out


def add_and_norm(
    x: Float[Tensor, "*places d"],
    y: Float[Tensor, "*places d"],
    dropout: Dropout,
    norm: nn.Module,
) -> Float[Tensor, "*places d"]:
    """`norm(x + dropout(y))`, on a CPU by a native kernel while training, if a layer norm."""
    dropped = _dropped(dropout)
    plain = type(norm) is nn.LayerNorm and norm.elementwise_affine and not _is_watched(norm)
    if dropped and plain and isinstance(norm, nn.LayerNorm) and norm.bias is not None:
        out = residual_norm(x, y, dropped, norm.weight, norm.bias, norm.eps)
        if out is not None:
            return out
    z: Tensor = norm(add(x, y, dropout))
    return z


def _dropped(dropout: Dropout) -> int:
    """How many in 256 a kernel is to drop; 0 where the module itself has to be called."""
    if not dropout.training or not dropout.probability or _is_watched(dropout):
        return 0
    return dropped_of_256(dropout.probability)


def _is_watched(module: nn.Module) -> bool:
    """Whether somebody has hooks on it, who waits for its call."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    return any((*hooks, module._backward_hooks, module._backward_pre_hooks))
