"""Layers that keep only their input, and do their forward pass again for the backward one."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_layers(model: nn.Module) -> None:
    """Let each layer of a model's stacks forget what it made, wherever gradients are taken.

    The memory for what lies between the layers' weights is then that of one layer, and a step
    takes about a third more arithmetic. Losses and gradients are the same, dropout included.

    Source: Chen et al. 2016, arXiv:1604.06174.
    """
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                layer.forward = _recomputed(layer, layer.forward)


def _recomputed(layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - those of any layer
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    return call
