"""Layers of every kind that are computed again in the backward pass give the same gradients."""

import pytest
import torch

from regard.models.build import build_language_model
from regard.models.config import DecoderConfig
from regard.nn.config import NoPositionsConfig, PositionsConfig, RelativeConfig
from regard.nn.mixers.config import DEFAULTS, MixerKind, StackConfig
from regard.training.recompute import recompute_layers


def gradients(kind: MixerKind, positions: PositionsConfig, *, again: bool) -> list[torch.Tensor]:
    config = DecoderConfig(
        d_model=8,
        num_heads=2,
        d_ff=12,
        num_layers=3,
        positions=positions,
        decoder=StackConfig(mixer=DEFAULTS[kind]),
    )
    model = build_language_model(config, vocabulary=20, seed=1).double()
    if again:
        recompute_layers(model)
    torch.manual_seed(2)
    ids = torch.randint(20, (2, 150))
    mask = torch.ones(2, 150, dtype=torch.bool)
    mask[0, 100:] = False
    loss = model(ids, mask)[mask].square().mean()
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("kind", [kind for kind in DEFAULTS if kind != "linformer"])
@pytest.mark.parametrize("positions", [NoPositionsConfig(), RelativeConfig()], ids=str)
def test_gradients_are_those_of_layers_that_keep_what_they_made(
    kind: MixerKind, positions: PositionsConfig
) -> None:
    scored = kind in ("full", "window", "bigbird")
    if not scored:
        positions = NoPositionsConfig()
    kept, made = (gradients(kind, positions, again=again) for again in (False, True))
    for one, other in zip(kept, made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
