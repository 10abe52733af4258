"""What must hold for every kind of model: causality, padding, batch, cache, masked slots."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import padded

from regard.models.transformer import Transformer
from regard.nn.config import NoPositionsConfig
from regard.nn.positions import Positions

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
few = settings(max_examples=5)  # of each kind of model
Pairs = list[tuple[list[int], list[int]]]
tokens = st.lists(st.integers(3, 19), min_size=1, max_size=7)
pairs = st.lists(st.tuples(tokens, tokens), min_size=1, max_size=4)


def alone(model: Transformer, source: list[int], target: list[int]) -> torch.Tensor:
    """The logits of one pair without any padding or mask."""
    return model(torch.tensor([source]), torch.tensor([target]))[0]


@few
@given(
    pairs=pairs,
    source_side=st.sampled_from(["left", "right"]),
    target_side=st.sampled_from(["left", "right"]),
    extra=st.integers(0, 2),
)
def test_a_pair_alone_is_the_same_in_a_batch_padded_on_either_side(
    model: Transformer, pairs: Pairs, source_side: str, target_side: str, extra: int
) -> None:
    sources, source_mask = padded([source for source, _ in pairs], source_side, extra)
    targets, target_mask = padded([target for _, target in pairs], target_side, extra)
    logits = model(sources, targets, source_mask, target_mask)
    for row, (source, target) in enumerate(pairs):
        expected = alone(model, source, target)
        torch.testing.assert_close(logits[row][target_mask[row]], expected, **CLOSE)
    if target_side == "right":
        without_mask = model(sources, targets, source_mask)
        torch.testing.assert_close(without_mask[target_mask], logits[target_mask], **CLOSE)


@few
@given(pairs=pairs, data=st.data())
def test_step_by_step_or_in_chunks_is_the_same_as_all_at_once(
    model: Transformer, pairs: Pairs, data: st.DataObject
) -> None:
    sources, source_mask = padded([source for source, _ in pairs], "right")
    targets, target_mask = padded([target for _, target in pairs], "right")
    memory = model.encode(sources, source_mask)
    expected = model.decode(targets, memory, source_mask)
    cache = model.start(memory, source_mask)
    size, parts = targets.shape[1], []
    while cache.length < size:
        added = data.draw(st.integers(1, size - cache.length))
        chunk = targets[:, cache.length : cache.length + added]
        hidden, weights = model.step(chunk, cache, attention=True)
        parts.append(hidden)
        assert (weights.masked_fill(source_mask[:, None], 0.0) == 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(torch.cat(parts, 1)[target_mask], expected[target_mask], **CLOSE)


@few
@given(pairs=pairs, data=st.data())
def test_rows_padded_on_the_left_decode_step_by_step_as_alone(
    model: Transformer, pairs: Pairs, data: st.DataObject
) -> None:
    sources, source_mask = padded([source for source, _ in pairs], "left")
    targets, target_mask = padded([target for _, target in pairs], "left")
    cache = model.start(model.encode(sources, source_mask), source_mask)
    size, parts = targets.shape[1], []
    while cache.length < size:
        places = slice(cache.length, cache.length + data.draw(st.integers(1, size - cache.length)))
        whole = bool(target_mask[:, : places.stop].all())
        mask = None if whole else target_mask[:, places]
        parts.append(model.step(targets[:, places], cache, mask)[0])
    logits = model.project(torch.cat(parts, 1))
    for row, (source, target) in enumerate(pairs):
        expected = alone(model, source, target)
        torch.testing.assert_close(logits[row][target_mask[row]], expected, **CLOSE)
    order = data.draw(st.permutations(range(len(pairs))))
    cache.select(torch.tensor(order))
    hidden, _ = model.step(torch.full((len(pairs), 1), 3), cache)
    for row, (source, target) in zip(hidden, [pairs[i] for i in order], strict=True):
        expected = alone(model, source, [*target, 3])[-1:]
        torch.testing.assert_close(model.project(row), expected, **CLOSE)


@few
@given(pairs=pairs, data=st.data())
def test_rows_reordered_repeated_and_left_out_go_on_as_if_they_had_been_so_from_the_start(
    model: Transformer, pairs: Pairs, data: st.DataObject
) -> None:
    sources, source_mask = padded([source for source, _ in pairs], "right")
    memory = model.encode(sources, source_mask)
    cache = model.start(memory, source_mask)
    sentences, histories = list(range(len(pairs))), [[] for _ in pairs]
    for _ in range(data.draw(st.integers(1, 4))):
        rows = st.lists(st.integers(0, len(sentences) - 1), min_size=1, max_size=6)
        chosen = data.draw(rows)
        cache.select(torch.tensor(chosen))
        sentences = [sentences[row] for row in chosen]
        histories = [histories[row] for row in chosen]
        new = data.draw(st.lists(st.integers(3, 19), min_size=len(chosen), max_size=len(chosen)))
        histories = [[*history, token] for history, token in zip(histories, new, strict=True)]
        hidden, weights = model.step(torch.tensor(new)[:, None], cache, attention=True)
        mask = source_mask[sentences]
        expected = model.decode(torch.tensor(histories), memory[sentences], mask)
        torch.testing.assert_close(hidden[:, 0], expected[:, -1], **CLOSE)
        assert weights.shape == (len(chosen), 1, sources.shape[1])
        assert (weights[:, 0].masked_fill(mask, 0.0) == 0).all()


@few
@given(target=st.lists(st.integers(3, 19), min_size=2, max_size=7), data=st.data())
def test_later_tokens_change_nothing_before_them(
    model: Transformer, target: list[int], data: st.DataObject
) -> None:
    place = data.draw(st.integers(1, len(target) - 1))
    size = len(target) - place
    changed = target[:place] + data.draw(st.lists(st.integers(3, 19), min_size=size, max_size=size))
    source = [3, 4, 5]
    torch.testing.assert_close(
        alone(model, source, changed)[:place], alone(model, source, target)[:place], **CLOSE
    )


@few
@given(place=st.integers(0, 5))
def test_the_gradient_reaches_all_tokens_up_to_its_place_and_none_after(
    model: Transformer, place: int
) -> None:
    source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7, 8, 9, 10, 11]])
    hidden = model.decode(target, model.encode(source))
    weight = model.target_embedding.weight
    (gradient,) = torch.autograd.grad(hidden[0, place].square().sum(), weight)
    reached = (gradient[target[0]] != 0).any(-1)
    assert reached.tolist() == [i <= place for i in range(6)]


@pytest.mark.parametrize("special", [math.nan, math.inf])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_nan_or_infinity_in_padding_leaks_into_no_token(
    model: Transformer, special: float, side: str
) -> None:
    sources, source_mask = padded([[3, 4, 5, 6], [7, 8]], side)
    targets, target_mask = padded([[9, 10], [11, 12, 13]], side)
    expected = model(sources, targets, source_mask, target_mask)
    rows = [model.source_embedding.weight.data[0], model.target_embedding.weight.data[0]]
    kept = [row.clone() for row in rows]
    try:
        for row in rows:
            row.fill_(special)
        logits = model(sources, targets, source_mask, target_mask)
        torch.testing.assert_close(logits[target_mask], expected[target_mask], **CLOSE)
        cache = model.start(model.encode(sources, source_mask), source_mask)
        parts = [model.step(targets[:, i, None], cache, target_mask[:, i, None]) for i in range(3)]
        stepped = model.project(torch.cat([hidden for hidden, _ in parts], 1))
        torch.testing.assert_close(stepped[target_mask], expected[target_mask], **CLOSE)
    finally:
        for row, values in zip(rows, kept, strict=True):
            row.copy_(values)


@pytest.mark.parametrize("special", [math.nan, math.inf])
def test_a_nan_in_a_token_spoils_that_place_and_those_after_it_and_is_not_hidden(
    model: Transformer, special: float
) -> None:
    source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7, 8, 9, 10, 11, 12]])
    expected = model(source, target)
    row = model.target_embedding.weight.data[11]
    kept = row.clone()
    try:
        row.fill_(special)
        logits = model(source, target)
    finally:
        row.copy_(kept)
    torch.testing.assert_close(logits[:, :5], expected[:, :5], **CLOSE)
    assert logits[:, 5:].isnan().all()


def test_a_nan_in_a_source_token_is_seen_by_every_target(model: Transformer) -> None:
    memory = model.encode(torch.tensor([[3, 4, 5], [6, 7, 8]]))
    memory[0, 1] = math.nan
    mask = torch.ones(2, 3, dtype=torch.bool)
    targets = torch.tensor([[9, 10], [11, 12]])
    hidden = model.decode(targets, memory, mask)
    assert hidden[0].isnan().all()
    assert hidden[1].isfinite().all()
    stepped, _ = model.step(targets, model.start(memory, mask))
    assert stepped[0].isnan().all()
    torch.testing.assert_close(stepped[1], hidden[1], **CLOSE)


def test_a_source_without_tokens_gives_finite_logits_and_gradients(model: Transformer) -> None:
    sources, mask = torch.tensor([[0, 0], [3, 4]]), torch.tensor([[False, False], [True, True]])
    logits = model(sources, torch.tensor([[5, 6], [7, 8]]), mask)
    assert logits.isfinite().all()
    gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    torch.testing.assert_close(logits[1], alone(model, [3, 4], [7, 8]), **CLOSE)


def test_eval_mode_has_no_randomness(model: Transformer) -> None:
    source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7]])
    torch.manual_seed(1)
    first = model(source, target)
    state = torch.get_rng_state()
    assert torch.equal(first, model(source, target))
    assert torch.equal(torch.get_rng_state(), state)


def test_order_matters_only_by_the_positions(model: Transformer) -> None:
    ids, order = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([4, 2, 0, 1, 3])
    with_positions = model.encode(ids)
    told = not isinstance(model.config.positions, NoPositionsConfig)
    assert told != torch.allclose(model.encode(ids[:, order]), with_positions[:, order])
    kept = model.source_positions
    try:
        model.source_positions = Positions()
        without = model.encode(ids)
        torch.testing.assert_close(model.encode(ids[:, order]), without[:, order], **CLOSE)
    finally:
        model.source_positions = kept
