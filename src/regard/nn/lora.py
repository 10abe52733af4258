"""Low-rank adaptation: what is trained is a small sum beside matrices that stay as they are."""

from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.nn.utils import parametrize

from regard.nn.config import LoraConfig
from regard.shapes import Float, Tensor

_TARGETS = {
    "attention": ("self_attention", "cross_attention"),
    "feed_forward": ("feed_forward",),
    "both": ("self_attention", "cross_attention", "feed_forward"),
}
_INSIDE = ".parametrizations.weight."
_FACTORS = ("lora_a", "lora_b")


def low_rank_sum(
    weight: Float[Tensor, "o i"], a: Float[Tensor, "r i"], b: Float[Tensor, "o r"], alpha: float
) -> Float[Tensor, "o i"]:
    """`W + alpha / r * B A`, in the type of the weight.

    Source: Hu et al. 2021, arXiv:2106.09685, equation 3.
    """
    with torch.autocast(weight.device.type, enabled=False):
        return weight + (b @ a) * (alpha / len(a))


class LowRank(nn.Module):
    """A matrix with its low-rank sum; at first the sum is zero, as B is."""

    def __init__(self, weight: Float[Tensor, "o i"], config: LoraConfig) -> None:
        super().__init__()
        out, inside = weight.shape
        self.alpha = config.alpha
        self.a = nn.Parameter(weight.new_empty(config.rank, inside))
        self.b = nn.Parameter(weight.new_zeros(out, config.rank))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def forward(self, weight: Float[Tensor, "o i"]) -> Float[Tensor, "o i"]:
        """The matrix that the model computes with."""
        return low_rank_sum(weight, self.a, self.b, self.alpha)


def adapt(
    model: nn.Module, config: LoraConfig, *, seed: int, trained: tuple[str, ...] = ()
) -> None:
    """Freeze a model and give its matrices low-rank sums, in place.

    Args:
        model: a model with all its weights.
        config: the rank, and which matrices.
        seed: of the first A; torch's generator stays as it was.
        trained: names of parts that are trained in full all the same, such as a new classifier.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in trained)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for linear in list(_adapted(model, config)):
            parametrize.register_parametrization(
                linear, "weight", LowRank(linear.weight.detach(), config)
            )


def merge(model: nn.Module) -> None:
    """Make plain matrices of those with low-rank sums; the model's outputs keep every bit."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def is_factor(name: str) -> bool:
    """Whether a parameter's name is that of a factor of a low-rank sum."""
    return _INSIDE in name and not name.endswith(".original")


def saved_name(name: str) -> str:
    """The name that a parameter of an adapted model has in files.

    `X.parametrizations.weight.0.a` is `X.weight.lora_a`, and the matrix as it was is `X.weight`.
    """
    owner, inside, kind = name.partition(_INSIDE)
    if not inside:
        return name
    kind = kind.rpartition(".")[2]
    return f"{owner}.weight" if kind == "original" else f"{owner}.weight.lora_{kind}"


def merged_weights(
    base: Mapping[str, Tensor], adapter: Mapping[str, Tensor], alpha: float
) -> dict[str, Tensor]:
    """The weights of a model, given those it was adapted from and what was trained, by file names.

    Raises:
        KeyError: a factor has no matrix in `base`, or not its other factor; names it.
    """
    weights = dict(base)
    for name, tensor in adapter.items():
        owner, _, kind = name.rpartition(".")
        if kind not in _FACTORS:
            weights[name] = tensor
        elif kind == "lora_a":
            weights[owner] = low_rank_sum(base[owner], tensor, adapter[f"{owner}.lora_b"], alpha)
        elif f"{owner}.lora_a" not in adapter:
            raise KeyError(f"{owner}.lora_a")
    return weights


def _adapted(model: nn.Module, config: LoraConfig) -> Iterator[nn.Linear]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and any(
            part in _TARGETS[config.targets] for part in name.split(".")
        ):
            yield module
