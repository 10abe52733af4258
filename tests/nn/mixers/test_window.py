import pytest
import torch
from mixing import D_MODEL, HEADS, SCHEMES, Case, make

from regard.nn.attention import HeadShape, attend
from regard.nn.config import NoPositionsConfig
from regard.nn.mixers.config import WindowConfig
from regard.nn.mixers.window import WindowAttention
from regard.nn.positions import build_positions

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def layer(config: WindowConfig, scheme: str, *, causal: bool) -> Case:
    shape = HeadShape(d_model=D_MODEL, num_heads=HEADS, d_k=4, d_v=3, num_kv_heads=2)
    torch.manual_seed(1)
    positions = build_positions(
        SCHEMES.get(scheme, NoPositionsConfig()),
        d_model=D_MODEL,
        num_heads=HEADS,
        head_dim=4,
        bidirectional=not causal,
    )
    window = WindowAttention(config, shape, causal=causal).double()
    return Case("window", window, positions.double(), causal)


def plain(case: Case, x: torch.Tensor) -> torch.Tensor:
    """The plain form with the pattern as a mask."""
    window, places = case.layer, torch.arange(x.shape[1])[None]
    assert isinstance(window, WindowAttention)
    query, seen = window.project(x, case.scheme.rotation(places))
    key, value = (part.repeat_interleave(2, 1) for part in (seen.key_bhke, seen.value_bhkw))
    mask = window.pattern(x.shape[1])[None, None]
    return window.join(attend(query, key, value, mask, bias=case.scheme.bias(places, places)))


CONFIGS = [
    WindowConfig(window=1),
    WindowConfig(window=7),
    WindowConfig(window=70, global_tokens=3),
    WindowConfig(window=5, dilation=9, global_tokens=2),
    WindowConfig(window=2, dilation=4),
    WindowConfig(window=1000, global_tokens=1),
    WindowConfig(window=2**20, global_tokens=2),
    WindowConfig(window=5, dilation=2**20, global_tokens=2),
    WindowConfig(window=2**20, dilation=400),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_the_plain_form_with_its_pattern_as_mask_and_so_are_its_gradients(
    config: WindowConfig, scheme: str, causal: bool
) -> None:
    case = layer(config, scheme, causal=causal)
    x = torch.randn(2, 333, D_MODEL).double().requires_grad_()
    wanted, got = plain(case, x), case(x)
    torch.testing.assert_close(got, wanted, **CLOSE)
    weights = [x, *case.layer.parameters()]
    direction = torch.randn_like(got)
    for mine, theirs in zip(
        torch.autograd.grad(got, weights, direction),
        torch.autograd.grad(wanted, weights, direction),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, **CLOSE)


@pytest.mark.parametrize("width", [1, 4, 5])
@pytest.mark.parametrize("causal", [True, False])
def test_a_query_far_from_the_ends_sees_as_many_keys_as_the_window_says(
    width: int, causal: bool
) -> None:
    window = layer(WindowConfig(window=width, dilation=2), "none", causal=causal).layer
    assert isinstance(window, WindowAttention)
    seen = window.pattern(41)
    assert int(seen[20].sum()) == width
    assert bool(seen[20, 20])


@pytest.mark.parametrize("tokens", [8, 100, 1000])
def test_its_state_is_no_larger_than_documented_however_long_the_past_is(tokens: int) -> None:
    case = make("both", causal=True)  # window 3, dilation 3, 3 global tokens, 2 heads of 4 and 3
    cache = case.start(2)
    case.step(torch.randn(2, tokens, D_MODEL).double(), cache)
    numbers = sum(tensor.numel() for tensor in cache.pasts[0].tensors)
    assert numbers == 2 * ((3 - 1) * 3 + 3) * 2 * (4 + 3)
