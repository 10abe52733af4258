"""The numbers of positions, found without torch, are those that torch finds."""

import numpy as np
import pytest
import torch

from regard.engine.positions import alibi_slopes, relative_limits, rotary_amplitude, rotary_rates
from regard.nn import positions, rotary
from regard.nn.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoScalingConfig,
    NTKScalingConfig,
    RelativeConfig,
    RotaryConfig,
    RotaryScalingConfig,
    YarnScalingConfig,
)

SCALINGS: list[RotaryScalingConfig] = [
    NoScalingConfig(),
    LinearScalingConfig(factor=8.0),
    NTKScalingConfig(factor=4.0),
    YarnScalingConfig(factor=4.0, original_positions=4096),
    YarnScalingConfig(factor=40.0, original_positions=512, truncate=False, attention_factor=1.0),
    YarnScalingConfig(original_positions=2),
    Llama3ScalingConfig(),
    Llama3ScalingConfig(factor=32.0, original_positions=256, low_factor=2.0),
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 1_234.5])
@pytest.mark.parametrize("dim", [2, 20, 64, 128])
def test_rotary_rates_are_torchs_to_a_few_units_of_the_last_place(
    scaling: RotaryScalingConfig, theta: float, dim: int
) -> None:
    config = RotaryConfig(theta=theta, scaling=scaling)
    ours, theirs = rotary_rates(config, dim), rotary.rotary_rates(config, dim).numpy()
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=0)
    amplitude = rotary.Phases(config, dim).at(torch.zeros(1, 1, dtype=torch.long)).cos_bqr[0, 0, 0]
    assert rotary_amplitude(config) == pytest.approx(float(amplitude), rel=1e-6)


@pytest.mark.parametrize("heads", [*range(1, 18), 24, 40])
def test_slopes_are_torchs(heads: int) -> None:
    assert alibi_slopes(heads).tolist() == positions.alibi_slopes(heads).tolist()


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(32, 128), (4, 3), (8, 5), (8, 12), (12, 999), (64, 256)]
)
def test_distances_fall_into_the_buckets_that_torch_puts_them_into(
    buckets: int, max_distance: int, bidirectional: bool
) -> None:
    config = RelativeConfig(buckets=buckets, max_distance=max_distance)
    scheme = positions.RelativePositions(config, 1, bidirectional=bidirectional)
    scheme.weight.data = torch.arange(buckets, dtype=torch.float32)[:, None]
    distances = torch.arange(2 * max_distance)
    wanted = scheme.bias(distances[-1:][None], distances.flip(0)[None])[0, 0, 0]
    limits = relative_limits(config, bidirectional=bidirectional)
    side = buckets // 2 if bidirectional else buckets
    exact = side // 2
    assert len(limits) == side - exact - 1
    far = exact + np.searchsorted(limits, distances, "right")
    assert np.where(distances < exact, distances, far).tolist() == wanted.int().tolist()
