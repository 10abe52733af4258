"""All that a checkpoint holds, taken from a training and given back to it to the bit."""

import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy
import torch
from torch import nn

from regard.errors import RunFolderError
from regard.nn.lora import saved_name
from regard.shapes import Tensor
from regard.training.config import Metric
from regard.training.ema import MovingAverage
from regard.training.sharding import cut_as, gathered
from regard.weights.fit import misfits

TensorGroups = dict[str, dict[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Best:
    """The best validation so far."""

    step: int
    value: float


@dataclass(slots=True)
class Window:
    """Sums since the last line of the log; over target tokens, in nats, and in seconds."""

    smoothed: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Position:
    """Where training stands.

    `epoch` and `batch` say which batch comes next; `validated` is the last step with a
    validation, `stale` the validations since the best one, `seconds` the wall time so far.
    `skipped` counts the steps that changed nothing since their loss or gradient was not finite,
    and `skipped_in_row` those of them since the last that did.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    validated: int = 0
    best: Best | None = None
    stale: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_row: int = 0
    window: Window = field(default_factory=Window)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """From what `to_json` gave."""
        plain = dict(values)
        best = plain.pop("best")
        window = Window(**plain.pop("window"))
        return cls(**plain, best=Best(**best) if best else None, window=window)

    def take_validation(self, metric: Metric, value: float) -> bool:
        """Note a validation at this step; say whether its weights are the ones to keep.

        They are if no earlier figure is better; of equals the later, which was trained longer.
        An equal figure is no progress, though: `stale` grows. One that is not a number is never
        the best.
        """
        self.validated = self.step
        self.stale += 1
        if math.isnan(value):
            return False
        sign = -1 if metric in ("loss", "perplexity") else 1
        gain = sign * (value - self.best.value) if self.best else math.inf
        if gain > 0:
            self.stale = 0
        if gain >= 0:
            self.best = Best(self.step, value)
        return gain >= 0


def model_tensors(model: nn.Module, average: MovingAverage | None) -> dict[str, Tensor]:
    """The weights to use, without those that are not trained: the moving averages if any."""
    tensors = trained_tensors(model)
    return {**tensors, **average.weights} if average else tensors


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model without the weights that are frozen, which are elsewhere already."""
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


def file_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same by the names that weights have in a run's model file."""
    return {saved_name(name): tensor for name, tensor in tensors.items()}


def take_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, average: MovingAverage | None
) -> TensorGroups:
    """The tensors of a checkpoint; they are those of the training itself, not copies."""
    groups: TensorGroups = {
        "model": trained_tensors(model),
        "optimizer": {
            f"{name}.{key}": value
            for name, weight in model.named_parameters()
            for key, value in optimizer.state.get(weight, {}).items()
        },
        "random": _torch_random(),
    }
    if average:
        groups["ema"] = model_tensors(model, average)
    return groups


def gathered_groups(
    groups: Mapping[str, Mapping[str, Tensor]], *, keep: bool, device: torch.device | None = None
) -> TensorGroups:
    """The same of tensors that are cut over processes, all of which must call this together.

    One tensor at a time is put together, and copied to the device (the CPU where none is given)
    in those processes that are to `keep` it; the others get nothing.
    """
    kept: TensorGroups = {group: {} for group in groups}
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            whole = gathered(tensor.detach())
            if keep:
                kept[group][name] = whole.to(device or "cpu", copy=True)
    return kept


def copied(groups: Mapping[str, Mapping[str, Tensor]]) -> TensorGroups:
    """The same on the CPU in memory of their own; names that share a tensor share its copy."""
    copies: dict[tuple[object, ...], Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if not tensor.numel():
            return tensor.detach().to("cpu", copy=True)
        if key not in copies:
            copies[key] = tensor.detach().to("cpu", copy=True)
        return copies[key]

    return {
        group: {name: copy(tensor) for name, tensor in tensors.items()}
        for group, tensors in groups.items()
    }


def give_tensors(
    groups: Mapping[str, Mapping[str, Tensor]],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
) -> None:
    """Put a checkpoint's tensors back in place, on the devices that the weights are on.

    Raises:
        RunFolderError: the weights are not of this model.
    """
    _give_model(groups["model"], model)
    for name, weight in model.named_parameters():
        state = {
            key.removeprefix(f"{name}."): _placed(value, weight)
            for key, value in groups["optimizer"].items()
            if key.rpartition(".")[0] == name
        }
        if state:
            optimizer.state[weight] = state
    if average:
        # A run that takes up averaging only now starts the average from its weights.
        average.load(groups["ema"] if "ema" in groups else groups["model"])
    torch.set_rng_state(groups["random"]["cpu"])
    if "cuda" in groups["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(groups["random"]["cuda"])


def take_random() -> dict[str, Any]:
    """The states of Python's and NumPy's global generators, as JSON values."""
    version, numbers, gauss = random.getstate()
    name, keys, place, has_gauss, cached = numpy.random.get_state(legacy=True)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [name, [int(key) for key in keys], place, has_gauss, cached],
    }


def give_random(values: Mapping[str, Any]) -> None:
    """Put the states of `take_random` back."""
    version, numbers, gauss = values["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, place, has_gauss, cached = values["numpy"]
    key_array = numpy.array(keys, dtype=numpy.uint32)
    numpy.random.set_state((name, key_array, place, has_gauss, cached))


def _torch_random() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _give_model(tensors: Mapping[str, Tensor], model: nn.Module) -> None:
    for misfit in misfits(tensors, trained_tensors(model)):
        raise RunFolderError(
            f"the checkpoint's {misfit.name} is {misfit.found}, and the model wants "
            f"{misfit.wanted}",
            hint="Resume with the model settings that the run was started with.",
        )
    here = model.state_dict()
    cut = {name: cut_as(tensor, here[name]) for name, tensor in tensors.items()}
    model.load_state_dict(cut, strict=False)  # what is frozen is in place


def _placed(value: Tensor, weight: Tensor) -> Tensor:
    """What an optimizer keeps of a weight, where the weight is; but its one number of steps."""
    return cut_as(value, weight) if value.shape == weight.shape else value.to(weight.device)
