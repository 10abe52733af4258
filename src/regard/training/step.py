"""One optimizer step: forward, backward, clipping, update, moving average."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard.models.encoder import TextEncoder
from regard.shapes import Tensor
from regard.text.pools import key_of
from regard.training.config import TrainingConfig
from regard.training.ema import MovingAverage
from regard.training.feed import StepBatch
from regard.training.losses import LossSums
from regard.training.optimizers import build_optimizer, set_learning_rate
from regard.training.precision import Precision, autocast
from regard.training.processes import ALONE, Processes
from regard.training.recompute import recompute_layers
from regard.training.routing import Routers
from regard.training.sharding import WholeModel, local
from regard.training.tally import StepFigures, Tally

# The loss of a part of the kind that the batches give.
Loss = Callable[[nn.Module, Any, float], LossSums]


class _Loss(nn.Module):
    """A loss as a module's forward pass, which is what torch's averaging of gradients wraps."""

    def __init__(self, model: nn.Module, loss: Loss, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self._loss = loss
        self._label_smoothing = label_smoothing
        self.routers = Routers(model)

    def forward(self, part: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - of the loss's kind
        """What is minimised, and detached figures: the two sums, then those of experts if any."""
        with self.routers.watched():
            sums = self._loss(self.model, part, self._label_smoothing)
        figures = torch.stack((sums.smoothed.detach(), sums.nll))
        added, load = self.routers.take(part)
        if added is None or load is None:
            return sums.smoothed, figures
        return sums.smoothed + added, torch.cat((figures, load.to(figures.dtype)))


class Stepper:
    """Holds what changes at every step: the model, its optimizer and its moving average.

    Where several processes train one model, each takes the gradients of its share of a batch,
    and then all do the same step with their sum. What is random is drawn in each from a seed of
    its own at every step, so that a training can go on with any number of processes. Where
    each keeps its share of the weights, which `cut` tells, the main one has `whole`, the model to
    fill with all.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        *,
        device: torch.device,
        precision: Precision,
        loss: Loss,
        processes: Processes = ALONE,
    ) -> None:
        self.model = model
        self.cut = processes.count > 1 and config.parallel == "shard"
        self.whole = WholeModel(model) if self.cut and processes.main else None
        self._config = config
        self._device = device
        self._precision: Precision = precision
        self._processes = processes
        if config.activation_checkpointing:
            recompute_layers(model)
        # An encoder has heads of which a loss uses one.
        bare = _Loss(model, loss, config.label_smoothing)
        self.routers = bare.routers
        self._loss = processes.wrapped(
            bare,
            device,
            unused=isinstance(model, TextEncoder),
            cut=self.cut,
        )
        # Of the weights as they are now: where they are cut, of this process's share.
        self.optimizer = build_optimizer(model, config.optimizer)
        self.average = MovingAverage(model, config.ema_decay) if config.ema_decay else None

    def take(self, batch: StepBatch, step: int, rate: float, tally: Tally) -> None:
        """Do step number `step` with learning rate `rate`.

        Each part's loss is divided by the targets of the whole step, so that the gradient is that
        of one big batch, whatever the parts are. Where the loss or the gradient is not finite,
        weights and optimizer stay as they are, which the tally tells when it is looked at.
        """
        self.optimizer.zero_grad(set_to_none=True)
        count = self._processes.count
        if count > 1:
            seed = key_of(self._config.seed, "step", step, self._processes.rank)
            torch.manual_seed(seed >> 1)
        sums = []
        for place, part in enumerate(batch.parts, 1):
            here = part.to(self._device)
            last = place == len(batch.parts)
            weight = float(place <= len(batch.counting))
            # Gradients are averaged once, after the last part; times their number gives the sum.
            # Shares of them are after each part: no process keeps the whole gradient.
            at_once = last or count == 1 or self.cut
            with nullcontext() if at_once else self._averaging.no_sync():
                with autocast(self._precision, self._device):
                    minimised, figures = self._loss(here)
                loss = minimised * (weight * count) / batch.targets
                loss.backward()
            sums.append(figures * weight)
        figures = self._processes.total(torch.stack(sums).sum(0))
        total = LossSums(figures[0], figures[1])
        norm = self._clip()
        tally.add(StepFigures(step, total, norm, batch.targets, batch.rows_b, figures[2:]))
        set_learning_rate(self.optimizer, rate)
        # Where this is 1 the fused step changes nothing, and no GPU has to be waited for.
        finite = torch.isfinite(norm) & torch.isfinite(total.smoothed)
        self.optimizer.found_inf = (~finite).to(torch.float32)  # type: ignore[attr-defined]
        self.optimizer.step()
        if self.average:
            self.average.update(step)

    @property
    def _averaging(self) -> DistributedDataParallel:
        return cast(DistributedDataParallel, self._loss)

    def _clip(self) -> Tensor:
        """The norm of the whole gradient before clipping; clips when the recipe says so."""
        weights = [weight for weight in self.model.parameters() if weight.grad is not None]
        gradients = [local(weight.grad) for weight in weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.cut:
            norm = self._processes.total(norm.square()).sqrt()
        if self._config.clip_norm:
            # As torch's clip_grads_with_norm_ does it, which takes no shares.
            scale = torch.clamp(self._config.clip_norm / (norm + 1e-6), max=1.0)
            torch._foreach_mul_(gradients, scale)
        return norm
