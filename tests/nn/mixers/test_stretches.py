"""Attention by the kernel for stretches of keys, in float32, beside the forms without it."""

import pytest
import torch
from mixing import D_MODEL, SCHEMES

from regard.nn.attention import HeadShape
from regard.nn.masks import padding_mask, token_stretches
from regard.nn.mixers.bigbird import BigBirdAttention
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import BigBirdConfig, FullConfig, MixerConfig, WindowConfig
from regard.nn.mixers.span import Span
from regard.nn.mixers.window import WindowAttention
from regard.nn.positions import Positions, build_positions

LAYERS: list[MixerConfig] = [
    FullConfig(),
    WindowConfig(window=20),
    WindowConfig(window=7, global_tokens=3),
    WindowConfig(window=90, global_tokens=70),
    BigBirdConfig(block=16, window=2, random_blocks=1),
    BigBirdConfig(block=64, window=3, global_blocks=2),
    BigBirdConfig(block=128, window=1, global_blocks=1),
]
DOCUMENTS = torch.tensor([[0] * 60 + [1] * 1 + [4] * 239, [2] * 100 + [3] * 200])


def passed(
    layer: torch.nn.Module, x: torch.Tensor, scheme: torch.nn.Module, **told: object
) -> list[torch.Tensor]:
    x = x.to(next(layer.parameters()).dtype).requires_grad_()
    mask = told.get("mask_bq")
    y = layer(x, Span.whole(scheme, x, **told))  # type: ignore[arg-type]
    y = y if mask is None else y[mask]
    return [y, *torch.autograd.grad(y.square().mean(), [x, *layer.parameters()])]


@pytest.mark.parametrize("told", ["alone", "right", "left", "packed", "packed and padded"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("config", LAYERS, ids=str)
def test_outputs_and_gradients_are_those_of_the_other_forms_in_float64(
    config: MixerConfig, causal: bool, told: str, used: list[bool]
) -> None:
    shape = HeadShape(d_model=D_MODEL, num_heads=4, d_k=4, d_v=6, num_kv_heads=2)
    torch.manual_seed(1)
    layer = build_mixer(config, shape, causal=causal)
    scheme = build_positions(
        SCHEMES["rotary"], d_model=D_MODEL, num_heads=4, head_dim=4, bidirectional=not causal
    )
    x, mask, documents = torch.randn(2, 300, D_MODEL), None, None
    if told in ("right", "left"):
        mask = padding_mask(torch.tensor([171, 300]), 300)
        mask = mask.flip(1) if told == "left" else mask
    elif told != "alone":
        documents = DOCUMENTS
        mask = torch.arange(300).expand(2, -1) >= 17 if told == "packed and padded" else None
    given = {"mask_bq": mask, "documents_bq": documents, "causal": causal}
    narrow = passed(layer, x, scheme, **given)
    assert used == [True]
    wide = passed(layer.double(), x, scheme.double(), **given)
    for got, wanted in zip(narrow, wide, strict=True):
        scale = float(wanted.detach().abs().max())
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5 * (1 + scale))


@pytest.mark.parametrize("scheme", ["alibi", "relative"])
def test_what_is_added_to_scores_leaves_it_to_the_other_forms(
    scheme: str, used: list[bool]
) -> None:
    shape = HeadShape(d_model=D_MODEL, num_heads=4, d_k=4, d_v=6, num_kv_heads=2)
    positions = build_positions(
        SCHEMES[scheme], d_model=D_MODEL, num_heads=4, head_dim=4, bidirectional=True
    )
    for config in LAYERS:
        layer = build_mixer(config, shape, causal=False)
        passed(layer, torch.randn(2, 40, D_MODEL), positions, causal=False)
    assert not used


def test_dropout_of_weights_leaves_it_to_the_other_forms(used: list[bool]) -> None:
    shape = HeadShape(d_model=D_MODEL, num_heads=4, d_k=4, d_v=6, num_kv_heads=2, dropout=0.5)
    layer = build_mixer(FullConfig(), shape, causal=True)
    scheme = build_positions(
        SCHEMES["none"], d_model=D_MODEL, num_heads=4, head_dim=4, bidirectional=False
    )
    passed(layer, torch.randn(2, 40, D_MODEL), scheme, causal=True)
    assert not used
    passed(layer.eval(), torch.randn(2, 40, D_MODEL), scheme, causal=True)
    assert used == [True]


def test_stretches_are_of_documents_without_a_gap() -> None:
    def of(mask: list[int] | None, documents: list[int] | None) -> list[list[int]] | None:
        found = token_stretches(
            None if mask is None else torch.tensor([mask]).bool(),
            None if documents is None else torch.tensor([documents]),
            5,
        )
        return None if found is None else [x[0].tolist() for x in found]

    assert of(None, None) == [[0] * 5, [5] * 5]
    assert of([0, 1, 1, 1, 0], None) == [[0, 1, 1, 1, 4], [0, 4, 4, 4, 4]]
    assert of(None, [3, 3, 5, 9, 9]) == [[0, 0, 2, 3, 3], [2, 2, 3, 5, 5]]
    assert of([0, 1, 1, 1, 0], [-1, 7, 7, 8, -1]) == [[0, 1, 1, 3, 4], [0, 3, 3, 4, 4]]
    assert of([0] * 5, None) == [[0] * 5, [0] * 5]
    assert of([1, 1, 0, 1, 1], None) is None
    assert of(None, [1, 1, 2, 1, 1]) is None
    assert of([1, 1, 0, 1, 1], [1, 1, 1, 2, 2]) == [[0, 0, 2, 3, 3], [2, 2, 2, 5, 5]]


@pytest.mark.parametrize("config", LAYERS[1:], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_the_keys_that_a_kernel_looks_at_are_in_proportion_to_the_length(
    config: MixerConfig, causal: bool
) -> None:
    def looked_at(length: int) -> int:
        shape = HeadShape(d_model=D_MODEL, num_heads=4, d_k=4, d_v=6, num_kv_heads=2)
        layer = build_mixer(config, shape, causal=causal)
        assert isinstance(layer, WindowAttention | BigBirdAttention)
        sight = layer.sight(Span.whole(Positions(), torch.zeros(1, length, 1), causal=causal).rows)
        assert sight is not None
        return int((sight.stretches_nmr2[..., 1] - sight.stretches_nmr2[..., 0]).sum())

    assert 0 < looked_at(8192) < 2.2 * looked_at(4096)


@pytest.mark.parametrize("config", LAYERS, ids=str)
def test_what_comes_later_changes_not_a_bit_before_it(
    config: MixerConfig, used: list[bool]
) -> None:
    shape = HeadShape(d_model=D_MODEL, num_heads=4, d_k=4, d_v=6, num_kv_heads=2)
    layer = build_mixer(config, shape, causal=True)
    x = torch.randn(1, 200, D_MODEL)
    first = layer(x, Span.whole(Positions(), x, causal=True))
    x[:, 130:] = 100.0
    second = layer(x, Span.whole(Positions(), x, causal=True))
    assert torch.equal(first[:, :130], second[:, :130])
    assert used == [True, True]
