"""Whether the faster forms may be used at all: REGARD_KERNELS=off says no."""

import torch
from torch.autograd import forward_ad

from regard import environment
from regard.shapes import Tensor


def switched_on() -> bool:
    """What the environment says; by default they are used where they are known to be faster.

    Raises:
        RegardError: REGARD_KERNELS is neither `on` nor `off`.
    """
    return environment.switched_on(environment.KERNELS)


def plain_on_cpu(*tensors: Tensor | None) -> bool:
    """Whether all are ordinary tensors of numbers on a CPU, outside of any tracing.

    A subclass (a shard of a weight, say), what a compiler looks at, and what `torch.func` or
    forward-mode differentiation works on belong to PyTorch.
    """
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if tracing or torch.compiler.is_compiling() or transformed():
        return False
    return all(
        tensor is None
        or (type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu")
        for tensor in tensors
    )


def trains_in_bfloat16() -> bool:
    """Whether gradients are taken, and a CPU's products are in bfloat16 by an autocast."""
    return (
        torch.is_grad_enabled()
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def transformed() -> bool:
    """Whether `torch.func` or forward-mode differentiation is at work."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active or forward_ad._current_level >= 0
