"""Whether a module may be passed over for a kernel that does its work."""

from torch import nn


def is_watched(module: nn.Module) -> bool:
    """Whether somebody has hooks on it, who waits for its call."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    return any((*hooks, module._backward_hooks, module._backward_pre_hooks))
