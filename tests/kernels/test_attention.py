"""Attention to stretches of keys, beside the plain form in float64."""

import math

import pytest
import torch

from regard.errors import RegardError
from regard.kernels import attention as kernel
from regard.kernels.attention import Sight, attention, parted
from regard.nn.attention import attend, attend_fast

SHAPES = [  # rows, heads, heads of keys, places, widths of keys and of values
    (1, 2, 2, 64, 16, 16),
    (2, 4, 2, 130, 64, 64),
    (3, 2, 1, 77, 8, 3),
    (1, 3, 3, 1, 1, 1),
    (1, 2, 2, 530, 24, 80),
]


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_fast", lambda: True)


def sights(rows: int, size: int) -> dict[str, Sight]:
    place = torch.arange(size)[None]
    none = torch.zeros_like(place)
    generator = torch.Generator().manual_seed(size)
    start, end, front = (
        torch.randint(0, size + 1, (rows, size), generator=generator) for _ in range(3)
    )
    return {
        "all": Sight.of(none, none + size),
        "past": Sight.of(none, place + 1),
        "window": Sight.of((place - 9).clamp(min=0), (place + 5).clamp(max=size)),
        "front": Sight.of((place - 40).clamp(min=0), place + 1, (place + 1).clamp(max=3)),
        "lead": Sight.of(none, torch.where(place < 5, size, 2), lead=5),
        "nothing": Sight.of(none, none),
        "any": Sight.of(start, end),
        "any and front": Sight.of(start, end, front % 20),
    }


def mask_of(sight: Sight, keys: int) -> torch.Tensor:
    key = torch.arange(keys)
    start, end, front = (x[..., None] for x in sight.seen_nq3.unbind(-1))
    return ((key >= start) & (key < end) | (key < front))[:, None]


def case(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """q, k, v, in the layout of a projection."""
    b, heads, shared, size, width, value_width = shape
    torch.manual_seed(sum(shape))
    sizes = ((heads, width), (shared, width), (shared, value_width))
    joint = torch.randn(b, size, sum(h * e for h, e in sizes))
    parts = torch.split(joint, [h * e for h, e in sizes], -1)
    return [
        part.unflatten(-1, hs).transpose(1, 2).detach().requires_grad_()
        for part, hs in zip(parts, sizes, strict=True)
    ]


def plain(inputs: list[torch.Tensor], mask: torch.Tensor, scale: float) -> torch.Tensor:
    query, key, value = inputs
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    return attend(query, key, value, mask, scale=scale)


@pytest.mark.parametrize("kind", sights(1, 1))
@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradients_are_those_of_the_plain_form_in_float64(
    isa: str, shape: tuple[int, ...], kind: str
) -> None:
    inputs, sight = case(shape), sights(shape[0], shape[3])[kind]
    out = attention(*inputs, sight, 0.3)
    assert out is not None
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = plain(wide, mask_of(sight, shape[3]), 0.3)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    outer = torch.randn(out.shape)
    mine = torch.autograd.grad(out, inputs, outer)
    theirs = torch.autograd.grad(exact, wide, outer.double())
    for got, wanted in zip(mine, theirs, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("queries", [1, 24, 131])
@pytest.mark.parametrize("keys", [1, 17, 300])
def test_queries_and_keys_need_not_be_as_many(isa: str, queries: int, keys: int) -> None:
    (query, *_), (_, key, value) = case((2, 4, 2, queries, 24, 24)), case((2, 4, 2, keys, 24, 24))
    inputs = [query, key, value]
    start, end = torch.tensor([[0], [keys // 3]]), torch.tensor([[keys // 2], [keys]])
    sight = Sight.of(start.expand(-1, queries), end.expand(-1, queries))
    out = attention(*inputs, sight, 0.3)
    assert out is not None
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = plain(wide, mask_of(sight, keys), 0.3)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    mine = torch.autograd.grad(out.square().sum(), inputs)
    theirs = torch.autograd.grad(exact.square().sum(), wide)
    largest = max(float(wanted.abs().max()) for wanted in theirs)
    for got, wanted in zip(mine, theirs, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=2e-6 * (1 + largest))


def off(found: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    """By how much each is off, in root mean square."""
    pairs = zip(found, exact, strict=True)
    return [float((x.double() - y).square().mean().sqrt()) for x, y in pairs]


@pytest.mark.parametrize("kind", sights(1, 1))
@pytest.mark.parametrize("shape", SHAPES)
def test_in_bfloat16_it_is_as_near_to_float64_as_products_of_matrices_are(
    isa: str, shape: tuple[int, ...], kind: str
) -> None:
    inputs = [x.detach().bfloat16().requires_grad_() for x in case(shape)]
    sight = sights(shape[0], shape[3])[kind]
    out = attention(*inputs, sight, 0.3)
    assert out is not None
    assert out.dtype == torch.bfloat16
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = plain(wide, mask := mask_of(sight, shape[3]), 0.3)
    torch.testing.assert_close(out.double(), exact, rtol=2**-8, atol=1e-5)
    outer = torch.randn(out.shape).bfloat16()
    mine = torch.autograd.grad(out, inputs, outer)
    theirs = torch.autograd.grad(exact, wide, outer.double())
    sharing = shape[1] // shape[2]
    shared = [inputs[0], *(x.repeat_interleave(sharing, 1) for x in inputs[1:])]
    products = torch.autograd.grad(attend_fast(*shared, mask, scale=0.3), inputs, outer)
    # Past a step of 256 keys what a query's slopes and weights make comes from the rounded output.
    by = 1.05 if shape[3] <= 256 else 3
    for error, other in zip(off([*mine], [*theirs]), off([*products], [*theirs]), strict=True):
        assert error <= by * other + 1e-5


def test_only_the_stretches_of_a_block_are_looked_at(isa: str) -> None:
    inputs = case((1, 1, 1, 128, 16, 16))
    seen = torch.tensor([0, 128, 0], dtype=torch.int32).expand(1, 128, 3).contiguous()
    stretches = torch.tensor([[[[16, 48], [96, 128]], [[0, 16], [0, 0]]]], dtype=torch.int32)
    out = attention(*inputs, Sight(seen, stretches), 0.3)
    mask = torch.zeros(1, 1, 128, 128, dtype=torch.bool)
    mask[..., :64, 16:48] = mask[..., :64, 96:] = mask[..., 64:, :16] = True
    assert out is not None
    torch.testing.assert_close(out, plain(inputs, mask, 0.3), rtol=1e-5, atol=1e-5)


def test_large_scores_overflow_nowhere(isa: str) -> None:
    inputs = [30 * x for x in case((1, 2, 2, 130, 64, 64))]
    sight = sights(1, 130)["past"]
    out = attention(*inputs, sight, 1.0)
    assert out is not None
    wide = plain([x.double() for x in inputs], mask_of(sight, 130), 1.0)
    torch.testing.assert_close(out.double(), wide, rtol=1e-2, atol=1e-2)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), inputs))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", [1, 2])
def test_a_key_or_value_that_is_not_finite_is_left_to_others(
    isa: str, part: int, bad: float, kind: torch.dtype
) -> None:
    inputs = [x.detach().to(kind) for x in case((2, 4, 2, 130, 64, 64))]
    with torch.no_grad():
        inputs[part][1, 1, 129, 63] = bad
    assert attention(*inputs, sights(2, 130)["window"], 0.3) is None


def test_a_nan_in_a_query_is_its_own(isa: str) -> None:
    inputs = case((1, 2, 2, 130, 64, 64))
    with torch.no_grad():
        inputs[0][0, 1, 70] = math.nan
    out = attention(*inputs, sights(1, 130)["past"], 0.3)
    assert out is not None
    assert out[0, 1, 70].isnan().all()
    assert out.isnan().sum() == 64


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_any_number_of_threads_gives_the_same_bits(
    isa: str, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[torch.Tensor]:
        inputs = [x.detach().to(kind).requires_grad_() for x in case((2, 4, 2, 130, 64, 64))]
        out = attention(*inputs, sights(2, 130)["any and front"], 0.3)
        assert out is not None
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    alone = run()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(*pair) for pair in zip(alone, run(), strict=True))


def test_other_types_and_more_threads_than_heads_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs, sight = case((1, 2, 2, 64, 16, 16)), sights(1, 64)["all"]
    assert attention(*(x.double() for x in inputs), sight, 0.3) is None
    assert attention(inputs[0], *(x.bfloat16() for x in inputs[1:]), sight, 0.3) is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert attention(*inputs, sight, 0.3) is None


@pytest.mark.parametrize("turned", [False, True])
def test_parts_are_those_of_split_and_so_is_their_gradient(turned: bool) -> None:
    widths = [32, 16, 16]
    x = torch.randn(2, 70, sum(widths)).requires_grad_()

    def run(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        heads = [part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in parts]
        if turned:
            heads[0] = heads[0] * 2
        out = attention(*heads, sights(2, 70)["past"], 0.3)
        if out is None:
            pytest.skip("there are no native kernels here")
        return out.square().sum()

    mine, theirs = run(parted(x, widths)), run(torch.split(x, widths, -1))
    gradients = (torch.autograd.grad(y, x)[0] for y in (mine, theirs))
    assert torch.equal(*gradients)


def test_gradients_of_keys_and_values_lie_as_those_of_a_projection_would() -> None:
    """So that what made both takes them without a copy, whatever made the queries."""
    query = torch.randn(2, 2, 30, 16).requires_grad_()
    x = torch.randn(2, 70, 64).requires_grad_()
    heads = [part.unflatten(-1, (2, 16)).transpose(1, 2) for part in parted(x, [32, 32])]
    out = attention(query, *heads, sights(2, 30)["past"], 0.3)
    if out is None:
        pytest.skip("there are no native kernels here")
    key, value = torch.autograd.grad(out.sum(), heads)
    assert key.stride() == value.stride() == (70 * 64, 16, 64, 1)
    assert value.data_ptr() - key.data_ptr() == 32 * key.element_size()


def test_parts_that_are_not_used_have_no_gradient() -> None:
    x = torch.randn(2, 7, 12).requires_grad_()
    first, _, last = parted(x, [4, 4, 4])
    (gradient,) = torch.autograd.grad((first * last).sum(), x)
    assert torch.equal(gradient[..., 4:8], torch.zeros(2, 7, 4))
    assert torch.equal(gradient[..., :4], x.detach()[..., 8:])


def test_gradients_of_gradients_are_refused(isa: str) -> None:
    inputs = case((1, 2, 1, 40, 8, 8))
    out = attention(*inputs, sights(1, 40)["past"], 0.3)
    assert out is not None
    with pytest.raises(RegardError, match="no gradients of gradients"):
        torch.autograd.grad(out.square().sum(), inputs[0], create_graph=True)
