import torch

from regard.nn.config import LayerNormConfig, RMSNormConfig
from regard.nn.norms import build_norm


def test_layer_norm_has_mean_0_and_variance_1_with_the_eps_of_the_config() -> None:
    x = torch.randn(4, 8).double()
    norm = build_norm(LayerNormConfig(eps=0.5), 8).double()
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 0.5).sqrt()
    torch.testing.assert_close(norm(x), expected)
    assert sum(p.numel() for p in norm.parameters()) == 16


def test_rms_norm_has_mean_square_1_with_the_eps_of_the_config() -> None:
    x = torch.randn(4, 8).double()
    norm = build_norm(RMSNormConfig(eps=0.5), 8).double()
    expected = x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt()
    torch.testing.assert_close(norm(x), expected)
    assert sum(p.numel() for p in norm.parameters()) == 8
