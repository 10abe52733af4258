"""How the work of a layer grows: counted in numbers that its operations make, not in time."""

from typing import Any

import pytest
import torch
from mixing import D_MODEL
from torch.utils._python_dispatch import TorchDispatchMode

from regard.nn.attention import HeadShape
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    GRUConfig,
    LinearConfig,
    LinformerConfig,
    MambaConfig,
    MixerConfig,
    PerformerConfig,
    SSRUConfig,
    WindowConfig,
)
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

LINEAR: list[MixerConfig] = [
    WindowConfig(window=64),
    WindowConfig(window=16, dilation=4, global_tokens=4),
    BigBirdConfig(block=16),
    LinformerConfig(length=2048, rank=16),
    LinearConfig(),
    PerformerConfig(features=16),
    GRUConfig(),
    SSRUConfig(),
    ConvolutionConfig(),
    MambaConfig(),
]


class Made(TorchDispatchMode):
    """Counts the numbers in all that operations give."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.numbers += tensor.numel()
        return out


def made(config: MixerConfig, length: int, *, causal: bool) -> int:
    """The numbers made in a forward and backward pass over so many tokens."""
    shape = HeadShape(d_model=D_MODEL, num_heads=2, d_k=4, d_v=4, num_kv_heads=2)
    layer = build_mixer(config, shape, causal=causal)
    x = torch.randn(1, length, D_MODEL, requires_grad=True)
    with Made() as counted:
        layer(x, Span.whole(Positions(), x, causal=causal)).sum().backward()
    return counted.numbers


@pytest.mark.parametrize("config", LINEAR, ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_work_and_memory_of_training_are_in_proportion_to_the_length(
    config: MixerConfig, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_KERNELS", "off")  # what a kernel makes within itself has no count
    assert made(config, 2048, causal=causal) < 2.1 * made(config, 1024, causal=causal)


def test_that_of_full_attention_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_KERNELS", "off")
    long, short = (made(FullConfig(), length, causal=False) for length in (256, 128))
    assert long > 3.5 * short
