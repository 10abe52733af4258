"""A moving average of the weights, which validates, translates and is saved in their place."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from regard.shapes import Tensor
from regard.training.sharding import cut_as, local


class MovingAverage:
    """`average = decay * average + (1 - decay) * weight` after every step.

    Early on the decay is `(1 + step) / (10 + step)` where that is less, so that the first
    weights, which know nothing, are soon forgotten. Weights that are not trained have none.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        self.weights = {
            name: weight.detach().clone(memory_format=torch.preserve_format)
            for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights as they are after `step`, the first of which is 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages = [local(average) for average in self.weights.values()]
        weights = [local(weight) for weight in self._weights.values()]
        torch._foreach_lerp_(averages, weights, 1 - decay)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take the averages from a checkpoint."""
        for name, average in self.weights.items():
            average.copy_(cut_as(weights[name], average))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model hold the averages inside the `with` block, and its own weights after.

        Not for weights that are cut over processes.
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, weight in self._weights.items():
            weight.data, self.weights[name] = self.weights[name], weight.data
