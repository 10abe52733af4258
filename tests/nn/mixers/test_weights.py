"""Weights on request: those of the plain form, whatever form computes the layer."""

import pytest
import torch
from mixing import BOTH_SIDES_ONLY, D_MODEL, HEADS, LAYERS, SCHEMES, WITH_SCORES, Case, make

from regard.errors import ModelError
from regard.nn.attention import Heads, attention_weights
from regard.nn.mixers.bigbird import BigBirdAttention
from regard.nn.mixers.span import Span
from regard.nn.mixers.window import WindowAttention

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ATTENTION = sorted(WITH_SCORES | {"linear", "performer", "linformer"})
KINDS = [
    (name, scheme, causal)
    for name in ATTENTION
    for scheme in (SCHEMES if name in WITH_SCORES else ["none"])
    for causal in (True, False)
    if not (causal and name in BOTH_SIDES_ONLY)
]


def vectors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, D_MODEL, generator=torch.Generator().manual_seed(1)).double()


def used(
    case: Case,
    x: torch.Tensor,
    mask: torch.Tensor | None = None,
    documents: torch.Tensor | None = None,
    heads: list[int] | None = None,
) -> torch.Tensor:
    span = Span.whole(case.scheme, x, mask, documents, causal=case.causal)
    return case.layer.weights(x, span, heads)


def applied(case: Case, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """What comes out of a layer that weighs its values so."""
    layer = case.layer
    assert isinstance(layer, Heads)
    values = layer.project(x)[1].value_bhkw
    shared = values.repeat_interleave(layer.num_heads // layer.num_kv_heads, 1)
    return layer.join(weights @ shared)


@pytest.mark.parametrize(("name", "scheme", "causal"), KINDS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_the_values_weighed_by_them_are_what_the_layer_gives(
    name: str, scheme: str, causal: bool, kv_heads: int, length: int
) -> None:
    case, x = make(name, scheme, causal=causal, kv_heads=kv_heads), vectors(2, length)
    torch.testing.assert_close(applied(case, used(case, x), x), case(x), **CLOSE)


@pytest.mark.parametrize(("name", "scheme", "causal"), KINDS)
def test_packed_and_padded_places_have_the_weights_of_each_sequence_alone(
    name: str, scheme: str, causal: bool
) -> None:
    case, parts = make(name, scheme, causal=causal), [vectors(5), vectors(8)]
    filler = torch.full((2, D_MODEL), torch.nan).double()
    x = torch.cat([filler, *parts])[None]
    documents = torch.tensor([[-1] * 2 + [0] * 5 + [1] * 8])
    packed = used(case, x, documents >= 0, documents)
    expected = torch.zeros_like(packed)
    expected[..., 2:7, 2:7] = used(case, parts[0][None])
    expected[..., 7:, 7:] = used(case, parts[1][None])
    torch.testing.assert_close(packed, expected, **CLOSE)
    for side in (slice(0, 5), slice(3, 8)):
        mask = torch.zeros(2, 8, dtype=torch.bool)
        mask[0, side], mask[1] = True, True
        batch = torch.full((2, 8, D_MODEL), torch.nan).double()
        batch[0, side], batch[1] = parts
        found = used(case, batch, mask)
        torch.testing.assert_close(found[0][:, side, side], used(case, parts[0][None])[0], **CLOSE)
        assert (found[0][:, ~mask[0]] == 0).all()
        assert (found[0][..., ~mask[0]] == 0).all()
        torch.testing.assert_close(found[1], used(case, parts[1][None])[0], **CLOSE)


@pytest.mark.parametrize("name", ATTENTION)
def test_chosen_heads_are_those_of_all_in_the_order_asked_for(name: str) -> None:
    case, x = make(name, causal=name not in BOTH_SIDES_ONLY), vectors(2, 9)
    whole = used(case, x)
    assert whole.shape == (2, HEADS, 9, 9)
    torch.testing.assert_close(used(case, x, heads=[3, 0]), whole[:, [3, 0]], rtol=0, atol=1e-15)
    with pytest.raises(ModelError) as caught:
        used(case, x, heads=[4])
    assert str(caught.value) == "heads = [4]: they have the numbers 0 to 3"


@pytest.mark.parametrize("name", sorted(set(ATTENTION) - {"linformer"}))
@pytest.mark.parametrize("causal", [True, False])
def test_each_row_sums_to_one_over_what_is_seen(name: str, causal: bool) -> None:
    case, x = make(name, causal=causal), vectors(1, 9)
    weights = used(case, x)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)
    layer = case.layer
    if isinstance(layer, WindowAttention | BigBirdAttention):
        assert ((weights > 0) == layer.pattern(9)).all()
    elif causal:
        assert ((weights > 0) == torch.ones(9, 9).tril().bool()).all()


def test_those_of_full_attention_are_the_plain_form_s() -> None:
    case, x = make("full", "rotary", causal=True, kv_heads=4), vectors(2, 9)
    assert isinstance(case.layer, Heads)
    span = Span.whole(case.scheme, x, causal=True)
    query, seen = case.layer.project(x, span.rotation)
    expected = attention_weights(query, seen.key_bhke, span.mask)
    assert torch.equal(used(case, x), expected)


@pytest.mark.parametrize("name", sorted(set(LAYERS) - set(ATTENTION)))
def test_layers_without_attention_say_that_they_have_no_weights(name: str) -> None:
    case, x = make(name, causal=True), vectors(1, 3)
    with pytest.raises(ModelError, match="layer has no weights of attention"):
        used(case, x)
