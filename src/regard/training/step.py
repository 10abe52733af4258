"""One optimizer step: forward, backward, clipping, update, moving average."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.shapes import Tensor
from regard.training.config import TrainingConfig
from regard.training.ema import MovingAverage
from regard.training.feed import StepBatch
from regard.training.losses import LossSums
from regard.training.optimizers import build_optimizer, set_learning_rate
from regard.training.precision import Precision, autocast
from regard.training.tally import StepFigures, Tally

# The loss of a part of the kind that the batches give.
Loss = Callable[[nn.Module, Any, float], LossSums]


class Stepper:
    """Holds what changes at every step: the model, its optimizer and its moving average."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        *,
        device: torch.device,
        precision: Precision,
        loss: Loss,
    ) -> None:
        self.model = model
        self.optimizer = build_optimizer(model, config.optimizer)
        self.average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self._config = config
        self._device = device
        self._precision: Precision = precision
        self._loss = loss

    def take(self, batch: StepBatch, step: int, rate: float, tally: Tally) -> None:
        """Do step number `step` with learning rate `rate`.

        Each part's loss is divided by the targets of the whole step, so that the gradient is that
        of one big batch, whatever the parts are. Where the loss or the gradient is not finite,
        weights and optimizer stay as they are, which the tally tells when it is looked at.
        """
        self.optimizer.zero_grad(set_to_none=True)
        sums = []
        for part in batch.parts:
            here = part.to(self._device)
            with autocast(self._precision, self._device):
                part_sums = self._loss(self.model, here, self._config.label_smoothing)
            loss = part_sums.smoothed / batch.targets
            loss.backward()  # type: ignore[no-untyped-call]
            sums.append(LossSums(part_sums.smoothed.detach(), part_sums.nll))
        total = LossSums(
            torch.stack([one.smoothed for one in sums]).sum(),
            torch.stack([one.nll for one in sums]).sum(),
        )
        norm = self._clip()
        tally.add(StepFigures(step, total, norm, batch.targets, batch.rows_b))
        set_learning_rate(self.optimizer, rate)
        # Where this is 1 the fused step changes nothing, and no GPU has to be waited for.
        finite = torch.isfinite(norm) & torch.isfinite(total.smoothed)
        self.optimizer.found_inf = (~finite).to(torch.float32)  # type: ignore[attr-defined]
        self.optimizer.step()
        if self.average:
            self.average.update(step)

    def _clip(self) -> Tensor:
        """The norm of the whole gradient before clipping; clips when the recipe says so."""
        weights = [weight for weight in self.model.parameters() if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(
            [weight.grad for weight in weights if weight.grad is not None]
        )
        if self._config.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(weights, self._config.clip_norm, norm)
        return norm
