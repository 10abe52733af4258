"""The residual connection around a sublayer, with dropout, and the norm before or after it.

On a CPU native kernels do this while training. Under an autocast to bfloat16 a sublayer that does
nothing but products with what it reads has bfloat16 from the norm at once, the very numbers that
the autocast would make of the norm's.
"""

import torch
from torch import nn

from regard.kernels.residual import Affine, Branched, residual, residual_norm
from regard.kernels.residual import norm as native_norm
from regard.kernels.switch import trains_in_bfloat16
from regard.nn.attention import MultiHeadAttention
from regard.nn.dropout import Dropout, dropped_of_256
from regard.nn.feed_forward import FeedForward, GatedFeedForward
from regard.nn.hooks import is_watched
from regard.nn.mixers.full import FullAttention
from regard.shapes import Float, Tensor

# What only puts a matrix, `input`, on what it reads.
_BY_PRODUCTS = (FeedForward, FullAttention, GatedFeedForward, MultiHeadAttention)


def add(
    x: Float[Tensor, "*places d"], y: Float[Tensor, "*places d"], dropout: Dropout
) -> Float[Tensor, "*places d"]:
    """`x + dropout(y)`."""
    dropped = _dropped(dropout)
    out = None if dropped == 0 else residual(x, y, dropped)
    return x + dropout(y) if out is None else out


def norm_for(x: Float[Tensor, "*places d"], norm: nn.Module, reader: nn.Module) -> Branched:
    """`x` to add to, and `norm(x)` for the sublayer `reader`."""
    affine = _affine(norm)
    if affine is not None and _is_learning(x, *affine[:2]):
        both = native_norm(x, affine, narrow=_reads_narrow(reader))
        if both is not None:
            return both
    return x, norm(x)


def add_then_norm_for(
    x: Float[Tensor, "*places d"],
    y: Float[Tensor, "*places d"],
    dropout: Dropout,
    norm: nn.Module,
    reader: nn.Module,
) -> Branched:
    """`z = x + dropout(y)` to add to, and `norm(z)` for the next sublayer, `reader`."""
    dropped, affine = _dropped(dropout), _affine(norm)
    if dropped and affine is not None and _is_learning(x, y, *affine[:2]):
        narrow = _reads_narrow(reader)
        both = residual_norm(x, y, dropped, affine, norm_first=True, narrow=narrow)
        if both is not None:
            return both
    return norm_for(add(x, y, dropout), norm, reader)


def add_and_norm(
    x: Float[Tensor, "*places d"],
    y: Float[Tensor, "*places d"],
    dropout: Dropout,
    norm: nn.Module,
    reader: nn.Module | None = None,
) -> Branched:
    """`z = norm(x + dropout(y))` to add to, and the same for the next sublayer, if any."""
    dropped, affine = _dropped(dropout), _affine(norm)
    if dropped and affine is not None:
        narrow = reader is not None and _reads_narrow(reader)
        both = residual_norm(x, y, dropped, affine, narrow=narrow)
        if both is not None:
            return both
    z: Tensor = norm(add(x, y, dropout))
    return z, z


def _dropped(dropout: Dropout) -> int:
    """How many in 256 a kernel is to drop; 0 where the module itself has to be called."""
    if not dropout.training or not dropout.probability or is_watched(dropout):
        return 0
    return dropped_of_256(dropout.probability)


def _affine(norm: nn.Module) -> Affine | None:
    """A layer norm's numbers; None where the module itself has to be called."""
    if type(norm) is not nn.LayerNorm or norm.bias is None or is_watched(norm):
        return None
    return Affine(norm.weight, norm.bias, norm.eps) if norm.training else None


def _is_learning(*tensors: Tensor) -> bool:
    """Whether gradients are taken of one of them."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _reads_narrow(reader: nn.Module) -> bool:
    """Whether a sublayer would do nothing with what it reads but to cast it to bfloat16."""
    if type(reader) not in _BY_PRODUCTS or not trains_in_bfloat16():
        return False
    matrix = reader.input
    return isinstance(matrix, nn.Linear) and not is_watched(reader) and not is_watched(matrix)
