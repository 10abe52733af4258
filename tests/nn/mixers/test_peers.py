"""Our sequence layers beside those of other libraries, with the same weights."""

import math

import peers
import pytest
import torch
from mixing import over

from regard.nn.attention import HeadShape, attend
from regard.nn.mixers.bigbird import BigBirdAttention
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import (
    BigBirdConfig,
    FullConfig,
    GRUConfig,
    LSTMConfig,
    MixerConfig,
    PerformerConfig,
    RNNConfig,
    WindowConfig,
)
from regard.nn.mixers.full import FullAttention
from regard.nn.mixers.linear import PerformerAttention
from regard.nn.mixers.recurrent import Recurrence
from regard.nn.mixers.window import WindowAttention

D_MODEL, HEADS = 32, 2
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def layer(config: MixerConfig, *, causal: bool, bias: bool, kv_heads: int = HEADS) -> object:
    torch.manual_seed(3)
    shape = HeadShape(
        d_model=D_MODEL,
        num_heads=HEADS,
        d_k=16,
        d_v=16,
        num_kv_heads=kv_heads,
        bias=bias,
        output_bias=bias,
    )
    made = build_mixer(config, shape, causal=causal)
    for weight in made.parameters():
        weight.data.add_(0.05 * torch.randn_like(weight))
    return made


def same(ours: object, theirs: torch.nn.Module, length: int, *, causal: bool) -> None:
    """Outputs and the gradients of the input are equal."""
    x = torch.randn(2, length, D_MODEL, requires_grad=True)
    got, wanted = over(ours, x, causal=causal), theirs(x)
    torch.testing.assert_close(got, wanted, **CLOSE)
    direction = torch.randn_like(got)
    (mine,) = torch.autograd.grad(got, x, direction)
    (other,) = torch.autograd.grad(wanted, x, direction)
    torch.testing.assert_close(mine, other, **CLOSE)


@pytest.mark.parametrize("length", [100, 300])
@pytest.mark.parametrize("causal", [True, False])
def test_full_attention_is_torchs_fused_product(length: int, causal: bool) -> None:
    ours = layer(FullConfig(), causal=causal, bias=True)
    assert isinstance(ours, FullAttention)
    same(ours, peers.ByTorch(ours, causal=causal), length, causal=causal)


def test_full_attention_is_torch_nns_multi_head_attention() -> None:
    ours = layer(FullConfig(), causal=False, bias=True)
    assert isinstance(ours, FullAttention)
    same(ours, peers.torch_multihead(ours), 300, causal=False)


@pytest.mark.parametrize("causal", [True, False])
def test_full_attention_is_that_of_x_transformers(causal: bool) -> None:
    pytest.importorskip("x_transformers")
    ours = layer(FullConfig(), causal=causal, bias=False)
    assert isinstance(ours, FullAttention)
    same(ours, peers.x_transformers(ours, causal=causal), 300, causal=causal)


@pytest.mark.parametrize("window", [33, 201])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_is_the_local_attention_of_x_transformers_author(
    window: int, causal: bool
) -> None:
    pytest.importorskip("local_attention")
    ours = layer(WindowConfig(window=window), causal=causal, bias=False)
    assert isinstance(ours, WindowAttention)
    same(ours, peers.local_attention(ours), 400, causal=causal)


@pytest.mark.parametrize("global_tokens", [0, 1, 5])
def test_a_window_is_transformers_longformer(global_tokens: int) -> None:
    """With its second projections set to the first ones, which ours has for both."""
    pytest.importorskip("transformers")
    config = WindowConfig(window=65, global_tokens=global_tokens)
    ours = layer(config, causal=False, bias=True)
    assert isinstance(ours, WindowAttention)
    same(ours, peers.longformer(ours, 384), 384, causal=False)


def test_bigbird_is_that_of_transformers_with_its_pattern_but_for_the_last_block() -> None:
    """Theirs keeps the last block global too, so ours is told so; no last block of ours sees all.

    The random blocks are given, since each library draws its own.
    """
    pytest.importorskip("transformers")
    blocks, size = 11, 8
    config = BigBirdConfig(block=size, global_blocks=1, random_blocks=2)
    ours = layer(config, causal=False, bias=True)
    assert isinstance(ours, BigBirdAttention)
    plan: list[list[int]] = []
    linked = torch.zeros(blocks, blocks, dtype=torch.bool)
    for block in range(1, blocks - 1):
        fixed = {0, block - 1, block, block + 1, blocks - 1}
        spare = [place for place in range(1, blocks - 1) if place not in fixed]
        plan.append(spare[block % 3 :: 2][:2])
        linked[block, [*fixed, *plan[-1]]] = True
    linked[0] = linked[-1] = True
    ours.most += 1
    ours.links = lambda blocks_n, most: linked[None]  # type: ignore[method-assign]
    theirs, x = peers.bigbird(ours, blocks * size, plan), torch.randn(2, blocks * size, D_MODEL)
    for module in (ours, theirs):
        module.train()  # in evaluation theirs sets the plan aside
    inner = slice(0, (blocks - 1) * size)
    got, wanted = over(ours, x, causal=False)[:, inner], theirs(x)[:, inner]
    torch.testing.assert_close(got, wanted, **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
def test_a_performer_is_performer_pytorchs_with_the_same_features(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the constants that it adds to features and sums, and that ours needs none of."""
    package = pytest.importorskip("performer_pytorch.performer_pytorch")
    exact = package.softmax_kernel
    monkeypatch.setattr(package, "softmax_kernel", lambda x, **named: exact(x, eps=0.0, **named))
    sums = package.causal_linear_attention_noncuda
    monkeypatch.setattr(
        package, "causal_linear_attention_noncuda", lambda *parts: sums(*parts, eps=0.0)
    )
    ours = layer(PerformerConfig(features=24), causal=causal, bias=False)
    assert isinstance(ours, PerformerAttention)
    same(ours, peers.performer(ours), 200, causal=causal)


@pytest.mark.parametrize("config", [RNNConfig(), LSTMConfig(), GRUConfig()], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_a_recurrent_layer_is_torch_nns_and_a_projection(config: MixerConfig, causal: bool) -> None:
    ours = layer(config, causal=causal, bias=True)
    assert isinstance(ours, Recurrence)
    same(ours, peers.torch_recurrence(ours), 40, causal=causal)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_long_causal_attention_without_a_mask_is_the_plain_form(
    kv_heads: int, bad: float | None
) -> None:
    ours = layer(FullConfig(), causal=True, bias=True, kv_heads=kv_heads)
    assert isinstance(ours, FullAttention)
    x = torch.randn(2, 300, D_MODEL)
    if bad is not None:
        x[0, 270] = bad
    query, seen = ours.project(x)
    key, value = (part.repeat_interleave(HEADS // kv_heads, 1) for part in seen[:2])
    wanted = ours.join(attend(query, key, value, torch.ones(300, 300).bool().tril()[None, None]))
    got = over(ours, x, causal=True)
    torch.testing.assert_close(got, wanted, equal_nan=True, **CLOSE)
    assert got[0, :270].isfinite().all()
    assert bad is None or got[0, 270:].isnan().all()
