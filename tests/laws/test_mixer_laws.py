"""What must hold for every sequence layer: causality, padding, packing, cache, chunk, batch."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixing import CASES, D_MODEL, WITH_SCORES, Case, make

from regard.nn import attention
from regard.nn.masks import padding_mask
from regard.nn.mixers import chunks, full, window

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
few = settings(max_examples=6)  # of each layer
lengths_of = st.lists(st.integers(1, 12), min_size=1, max_size=4)
Kind = tuple[str, str, bool]


def named(kind: Kind) -> str:
    return "-".join((*kind[:2], "causal" if kind[2] else "both"))


def made(kind: Kind) -> Iterator[Case]:
    """A layer with blocks so small that short sequences have several."""
    name, scheme, causal = kind
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "_SMALLEST_BLOCK", 1)
        patch.setattr(window, "_LARGEST_BLOCK", 3)
        patch.setattr(chunks, "CHUNK", 4)
        if name == "fused":
            patch.setattr(attention, "LONG_SEQUENCE", 0)
            patch.setattr(full, "LONG_SEQUENCE", 0)
        yield make(name, scheme, causal=causal)


@pytest.fixture(scope="module", params=CASES, ids=named)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from made(request.param)


@pytest.fixture(scope="module", params=[kind for kind in CASES if kind[2]], ids=named)
def causal(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from made(request.param)


def sequences(lengths: list[int], seed: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, D_MODEL, generator=generator).double() for n in lengths]


def padded(
    parts: list[torch.Tensor], side: str, extra: int = 0, filler: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    size = max(map(len, parts)) + extra
    mask = padding_mask(torch.tensor([len(part) for part in parts]), size)
    if side == "left":
        mask = mask.flip(1)
    x = torch.full((len(parts), size, D_MODEL), filler).double()
    x[mask] = torch.cat(parts)
    return x, mask


@few
@given(
    lengths=lengths_of,
    side=st.sampled_from(["left", "right"]),
    extra=st.integers(0, 2),
    filler=st.sampled_from([0.0, 1.0, math.nan, math.inf]),
)
def test_alone_is_the_same_as_in_a_batch_padded_on_either_side_with_anything(
    case: Case, lengths: list[int], side: str, extra: int, filler: float
) -> None:
    parts = sequences(lengths)
    x, mask = padded(parts, side, extra, filler)
    y = case(x, mask)
    for row, part in enumerate(parts):
        torch.testing.assert_close(y[row][mask[row]], case(part[None])[0], **CLOSE)


@pytest.mark.parametrize("filler", [math.nan, math.inf])
@pytest.mark.parametrize("side", ["left", "right"])
def test_no_padding_reaches_any_gradient(case: Case, side: str, filler: float) -> None:
    """What counts is the tokens' outputs; the weights' gradients are as of each row alone."""
    parts, weights = sequences([5, 9, 2]), [*case.layer.parameters()]
    alone = [case(part[None])[0].square().sum() for part in parts]
    expected = torch.autograd.grad(torch.stack(alone).sum(), weights)
    x, mask = padded(parts, side, extra=1, filler=filler)
    x.requires_grad_()
    gradients = torch.autograd.grad(case(x, mask)[mask].square().sum(), [x, *weights])
    assert (gradients[0][~mask] == 0).all()
    for got, wanted in zip(gradients[1:], expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@few
@given(lengths=lengths_of, padding=st.integers(0, 3), front=st.booleans())
def test_sequences_packed_into_a_row_are_as_alone(
    case: Case, lengths: list[int], padding: int, front: bool
) -> None:
    parts = sequences(lengths)
    numbers = [number for number, part in enumerate(parts) for _ in part]
    filler = torch.full((padding, D_MODEL), math.nan).double()
    pieces = [filler, *parts] if front else [*parts, filler]
    numbers = [-1] * padding + numbers if front else numbers + [-1] * padding
    documents = torch.tensor([numbers])
    mask = documents >= 0
    y = case(torch.cat(pieces)[None], mask if padding else None, documents)
    expected = torch.cat([case(part[None])[0] for part in parts])
    torch.testing.assert_close(y[mask], expected, **CLOSE)


@few
@given(lengths=lengths_of, side=st.sampled_from(["left", "right"]), data=st.data())
def test_step_by_step_or_in_chunks_is_the_same_as_all_at_once(
    causal: Case, lengths: list[int], side: str, data: st.DataObject
) -> None:
    parts = sequences(lengths)
    x, mask = padded(parts, side, filler=math.nan)
    cache, size, out = causal.start(len(parts)), x.shape[1], []
    while cache.length < size:
        places = slice(cache.length, cache.length + data.draw(st.integers(1, size - cache.length)))
        whole = bool(mask[:, : places.stop].all())
        out.append(causal.step(x[:, places], cache, None if whole else mask[:, places]))
    y = torch.cat(out, 1)
    for row, part in enumerate(parts):
        torch.testing.assert_close(y[row][mask[row]], causal(part[None])[0], **CLOSE)
    order = data.draw(st.lists(st.integers(0, len(parts) - 1), min_size=1, max_size=5))
    cache.select(torch.tensor(order))
    new = sequences([3] * len(order), seed=3)
    y = causal.step(torch.stack(new), cache)
    for row, (number, part) in enumerate(zip(order, new, strict=True)):
        expected = causal(torch.cat([parts[number], part])[None])[0, -3:]
        torch.testing.assert_close(y[row], expected, **CLOSE)


@few
@given(length=st.integers(2, 14), data=st.data())
def test_what_comes_later_changes_nothing_before_it(
    causal: Case, length: int, data: st.DataObject
) -> None:
    (x,) = sequences([length])
    place = data.draw(st.integers(1, length - 1))
    changed = x.clone()
    changed[place:] = data.draw(st.sampled_from([7.0, math.nan, math.inf]))
    y = causal(changed[None])[0, :place]
    torch.testing.assert_close(y, causal(x[None])[0, :place], **CLOSE)


@pytest.mark.parametrize("place", [0, 4, 11])
def test_the_gradient_reaches_what_comes_before_and_nothing_later(causal: Case, place: int) -> None:
    x = torch.stack(sequences([12])).requires_grad_()
    (gradient,) = torch.autograd.grad(causal(x)[0, place].square().sum(), x)
    assert (gradient[0, place + 1 :] == 0).all()
    assert (gradient[0, place] != 0).any()


@few
@given(length=st.integers(1, 12))
def test_a_nan_in_a_token_is_not_hidden_from_the_token_itself(case: Case, length: int) -> None:
    (x,) = sequences([length])
    x[-1] = math.nan
    assert case(x[None])[0, -1].isnan().all()


def test_float32_is_within_1e_5_however_the_sequence_is_cut(causal: Case) -> None:
    (x,) = sequences([40])
    expected = causal(x[None])
    try:
        causal.layer.float()
        causal.scheme.float()
        cache = causal.start(1)
        steps = [causal.step(part[None], cache) for part in x.float().split([1, 6, 1, 20, 12])]
        for y in (causal(x.float()[None]), torch.cat(steps, 1)):
            torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    finally:
        causal.layer.double()
        causal.scheme.double()


def test_in_mixed_precision_outputs_are_near_and_gradients_finite(case: Case) -> None:
    x, mask = padded(sequences([20, 30]), "right")
    expected = case(x, mask)[mask]
    x = x.float().requires_grad_()
    try:
        case.layer.float()
        case.scheme.float()
        with torch.autocast("cpu", torch.bfloat16):
            y = case(x, mask)[mask]
        weights = [x, *case.layer.parameters()]
        gradients = torch.autograd.grad(y.float().square().sum(), weights)
    finally:
        case.layer.double()
        case.scheme.double()
    torch.testing.assert_close(y.double(), expected, rtol=0.1, atol=0.1)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_row_without_tokens_gives_finite_outputs_and_gradients(case: Case) -> None:
    x = torch.stack(sequences([5, 5])).requires_grad_()
    mask = torch.tensor([[False] * 5, [True] * 5])
    y = case(x, mask)
    assert y.isfinite().all()
    gradients = torch.autograd.grad(y.square().sum(), [x, *case.layer.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", sorted(WITH_SCORES))
@pytest.mark.parametrize("sides", [True, False])
def test_order_matters_to_attention_only_by_the_positions(name: str, sides: bool) -> None:
    """Of full attention all places are alike; a window tells near from far by itself."""
    (x,) = sequences([9])
    order = torch.tensor([4, 2, 0, 1, 3, 8, 6, 5, 7])
    case = make(name, "rotary" if sides else "none", causal=False)
    moved = torch.allclose(case(x[order][None]), case(x[None])[:, order])
    assert moved == (name in ("full", "fused") and not sides)
