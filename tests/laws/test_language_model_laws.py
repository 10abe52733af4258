"""What must hold for decoder-only models: causality, padding, packing, cache, windows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import padded

from regard.models.build import build_language_model
from regard.models.config import DecoderConfig
from regard.models.decoder import LanguageModel

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
few = settings(max_examples=5)  # of each kind of model
tokens = st.lists(st.integers(3, 19), min_size=1, max_size=8)
texts = st.lists(tokens, min_size=1, max_size=4)


def alone(model: LanguageModel, text: list[int]) -> torch.Tensor:
    """The logits of one text without any padding or mask."""
    return model(torch.tensor([text]))[0]


@few
@given(texts=texts, side=st.sampled_from(["left", "right"]), extra=st.integers(0, 2))
def test_a_text_alone_is_the_same_in_a_batch_padded_on_either_side(
    language_model: LanguageModel, texts: list[list[int]], side: str, extra: int
) -> None:
    ids, mask = padded(texts, side, extra)
    logits = language_model(ids, mask)
    for row, text in enumerate(texts):
        expected = alone(language_model, text)
        torch.testing.assert_close(logits[row][mask[row]], expected, **CLOSE)
    if side == "right":
        torch.testing.assert_close(language_model(ids)[mask], logits[mask], **CLOSE)


@few
@given(texts=texts, padding=st.integers(0, 2))
def test_documents_packed_into_a_row_are_as_alone(
    language_model: LanguageModel, texts: list[list[int]], padding: int
) -> None:
    row = [token for text in texts for token in text] + [0] * padding
    numbers = [number for number, text in enumerate(texts) for _ in text] + [-1] * padding
    mask = None
    if padding:
        mask = torch.tensor([[number >= 0 for number in numbers]])
    logits = language_model(torch.tensor([row]), mask, torch.tensor([numbers]))[0]
    expected = torch.cat([alone(language_model, text) for text in texts])
    torch.testing.assert_close(logits[: len(row) - padding], expected, **CLOSE)


@few
@given(texts=st.lists(tokens, min_size=2, max_size=4), data=st.data())
def test_editing_a_packed_document_changes_no_logit_of_another(
    language_model: LanguageModel, texts: list[list[int]], data: st.DataObject
) -> None:
    edited = data.draw(st.integers(0, len(texts) - 1))
    documents = torch.tensor([[number for number, text in enumerate(texts) for _ in text]])
    before = torch.tensor([[token for text in texts for token in text]])
    after = torch.where(documents == edited, (before + 1) % 20, before)
    first = language_model(before, documents_bt=documents)
    second = language_model(after, documents_bt=documents)
    kept, now = first[documents != edited], second[documents != edited]
    if language_model.config.experts.number:
        # An expert's product is over all tokens given to it: as many others, other roundings.
        torch.testing.assert_close(now, kept, **CLOSE)
    else:
        assert torch.equal(now, kept)


@few
@given(texts=texts, side=st.sampled_from(["left", "right"]), data=st.data())
def test_step_by_step_or_in_chunks_is_the_same_as_all_at_once(
    language_model: LanguageModel, texts: list[list[int]], side: str, data: st.DataObject
) -> None:
    ids, mask = padded(texts, side)
    cache = language_model.start(len(texts))
    size, parts = ids.shape[1], []
    while cache.length < size:
        places = slice(cache.length, cache.length + data.draw(st.integers(1, size - cache.length)))
        whole = bool(mask[:, : places.stop].all())
        parts.append(language_model.step(ids[:, places], cache, None if whole else mask[:, places]))
    logits = language_model.project(torch.cat(parts, 1))
    expected = language_model(ids, mask)
    torch.testing.assert_close(logits[mask], expected[mask], **CLOSE)
    order = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=5))
    cache.select(torch.tensor(order))
    assert cache.rows == len(order)
    hidden = language_model.step(torch.full((len(order), 1), 3), cache)
    for row, text in zip(hidden, [texts[i] for i in order], strict=True):
        expected = alone(language_model, [*text, 3])[-1:]
        torch.testing.assert_close(language_model.project(row), expected, **CLOSE)


@few
@given(text=st.lists(st.integers(3, 19), min_size=2, max_size=8), data=st.data())
def test_later_tokens_change_nothing_before_them(
    language_model: LanguageModel, text: list[int], data: st.DataObject
) -> None:
    place = data.draw(st.integers(1, len(text) - 1))
    changed = text[:place] + [(token + 1) % 20 for token in text[place:]]
    torch.testing.assert_close(
        alone(language_model, changed)[:place], alone(language_model, text)[:place], **CLOSE
    )


def test_a_window_of_three_reaches_three_tokens_a_layer(language_model: LanguageModel) -> None:
    """The first layer looks at all, so only the second layer's own reach is seen: by gradient."""
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    last = language_model.layers[1]
    seen = []
    last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    hidden = language_model.hidden(ids)
    (gradient,) = torch.autograd.grad(hidden[0, 5].square().sum(), seen[0])
    reached = (gradient[0] != 0).any(-1)
    assert reached.tolist() == [False, False, False, True, True, True]
    last._forward_pre_hooks.clear()


@pytest.mark.parametrize("special", [math.nan, math.inf])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_nan_or_infinity_in_padding_leaks_into_no_token(
    language_model: LanguageModel, special: float, side: str
) -> None:
    ids, mask = padded([[3, 4, 5, 6], [7, 8]], side)
    expected = language_model(ids, mask)
    row = language_model.embedding.weight.data[0]
    kept = row.clone()
    try:
        row.fill_(special)
        # The padded id's own logit is spoilt where the table is the projection too.
        logits = language_model(ids, mask)
        torch.testing.assert_close(logits[mask][:, 1:], expected[mask][:, 1:], **CLOSE)
    finally:
        row.copy_(kept)


def test_in_eval_mode_nothing_is_random_and_in_training_dropout_is() -> None:
    config = DecoderConfig(d_model=8, num_heads=2, d_ff=16, num_layers=1, dropout=0.5)
    model = build_language_model(config, vocabulary=20, seed=1)
    ids = torch.tensor([[3, 4, 5]])
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))
