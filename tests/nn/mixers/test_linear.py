import pytest
import torch
from mixing import D_MODEL, make

from regard.kernels import products
from regard.nn.attention import HeadShape, attention_weights
from regard.nn.mixers.config import PerformerConfig
from regard.nn.mixers.linear import FeatureAttention, PerformerAttention, orthogonal_rows
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def weights(layer: FeatureAttention, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of every pair, written out, and the values."""
    span = Span.whole(Positions(), x, causal=layer.causal)
    query, key, value = layer.features(x, span.rows)
    scores = query @ key.transpose(-1, -2)
    if layer.causal:
        scores = scores.tril()
    return scores / scores.sum(-1, keepdim=True), value[..., :-1]


@pytest.mark.parametrize("name", ["linear", "performer"])
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_the_quadratic_form_of_its_features(name: str, causal: bool) -> None:
    case, x = make(name, causal=causal), torch.randn(2, 150, D_MODEL).double()
    assert isinstance(case.layer, FeatureAttention)
    weights_nhll, value = weights(case.layer, x)
    torch.testing.assert_close(case(x), case.layer.join(weights_nhll @ value), **CLOSE)


@pytest.mark.parametrize("name", ["linear", "performer"])
def test_with_the_faster_products_value_and_gradients_are_those_in_float64(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("there is no oneDNN in this PyTorch")
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "_SMALL", 1)
    case = make(name, causal=False)

    def both(x: torch.Tensor) -> list[torch.Tensor]:
        x = x.clone().requires_grad_()
        out = case(x)
        return [x.detach().double() for x in (out, *torch.autograd.grad(out.square().sum(), x))]

    x = torch.randn(2, 150, D_MODEL)
    exact = both(x.double())
    case.layer.float()
    torch.testing.assert_close(both(x), exact, rtol=1e-4, atol=1e-5)


def test_linear_features_are_elu_plus_one_of_heads() -> None:
    case, x = make("linear", causal=False), torch.randn(2, 7, D_MODEL).double()
    assert isinstance(case.layer, FeatureAttention)
    query, seen = case.layer.project(x)
    made = case.layer.query_features(query)
    torch.testing.assert_close(made, torch.where(query > 0, query + 1, query.exp()), **CLOSE)
    torch.testing.assert_close(
        case.layer.key_features(seen.key_bhke),
        torch.where(seen.key_bhke > 0, seen.key_bhke + 1, seen.key_bhke.exp()),
        **CLOSE,
    )


def performer(features: int, seed: int) -> PerformerAttention:
    shape = HeadShape(d_model=D_MODEL, num_heads=1, d_k=8, d_v=8, num_kv_heads=1)
    torch.manual_seed(3)
    layer = PerformerAttention(PerformerConfig(features=features), shape, causal=False).double()
    layer.redraw(torch.Generator().manual_seed(seed))
    return layer


def test_more_features_come_nearer_to_softmax_attention() -> None:
    x = torch.randn(1, 30, D_MODEL, generator=torch.Generator().manual_seed(1)).double() / 2
    errors = []
    for features in (16, 256, 4096):
        total = 0.0
        for seed in range(5):
            layer = performer(features, seed)
            query, seen = layer.project(x)
            wanted = attention_weights(query, seen.key_bhke)
            total += float((weights(layer, x)[0] - wanted).detach().square().mean()) / 5
        errors.append(total**0.5)
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.1 / 30  # a tenth of an even weight


def test_features_multiply_to_the_exponential_of_the_score_in_the_mean() -> None:
    """Lemma 1, of the weights before they are normalised, over many draws."""
    layer = performer(20_000, 0)
    drawn = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(2)).double()
    query, key = drawn * 0.6
    product = (layer.query_features(query) * layer.key_features(key)).sum()
    alone = (layer.query_features(query) * layer.key_features(key * 0)).sum()
    score = float((query * key).sum()) * 8**-0.5
    assert float(product / alone) == pytest.approx(torch.tensor(score).exp().item(), rel=0.05)


def test_directions_are_orthogonal_in_groups_and_as_long_as_gaussian_vectors() -> None:
    rows = orthogonal_rows(50, 16, generator=torch.Generator().manual_seed(1)).double()
    for group in rows.split(16):
        products = group @ group.T
        torch.testing.assert_close(products, torch.diag(products.diagonal()), rtol=0, atol=1e-4)
    assert 12 < float(rows.square().sum(1).mean()) < 20


def test_redrawing_changes_the_outputs_and_a_seed_brings_them_back() -> None:
    case, x = make("performer", causal=True), torch.randn(1, 5, D_MODEL).double()
    layer = case.layer
    assert isinstance(layer, PerformerAttention)
    layer.redraw(torch.Generator().manual_seed(1))
    first = case(x)
    layer.redraw(torch.Generator().manual_seed(2))
    assert not torch.allclose(case(x), first)
    layer.redraw(torch.Generator().manual_seed(1))
    assert torch.equal(case(x), first)


def test_the_random_features_are_saved_with_the_weights() -> None:
    assert "directions_fe" in make("performer", causal=True).layer.state_dict()


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_large_and_small_queries_and_keys_overflow_nowhere_in_float32(size: float) -> None:
    shape = HeadShape(d_model=64, num_heads=1, d_k=64, d_v=64, num_kv_heads=1)
    torch.manual_seed(3)
    layer = PerformerAttention(PerformerConfig(), shape, causal=True)
    x = (size * torch.randn(1, 50, 64)).requires_grad_()
    y = layer(x, Span.whole(Positions(), x, causal=True))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()
