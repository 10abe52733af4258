"""From lines to translations: order, blank and long lines, batches, windows, alignments."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from decoding.tiny import LINES, model, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.config import DecodingConfig
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.search import search
from regard.decoding.step import Step
from regard.decoding.translate import Translation, translate
from regard.errors import ModelError
from regard.models.transformer import Transformer
from regard.text.tokenizer import BOS_ID, EOS_ID, Tokenizer

METHODS: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 3, "n_best": 3},
    {"method": "sample", "n_best": 2},
    {"beam": 3, "coverage": 0.3, "no_repeat_ngram": 2},
]


def run(
    lines: Sequence[str],
    *,
    models: Sequence[Transformer] = (),
    trained_length: int = 99,
    prefixes: Sequence[str] | None = None,
    more: dict[str, Any] | None = None,
    **config: Any,
) -> list[Translation]:
    models = models or [model()]
    width = {} if config.get("method") == "sample" else {"beam": 3}
    return translate(
        models,
        [tokenizer()] * len(models),
        tokenizer(),
        lines,
        DecodingConfig(**{"max_extra_tokens": 6, **width, **config}),
        trained_length=trained_length,
        prefixes=prefixes,
        **(more or {}),
    )


def same(found: Translation, expected: Translation) -> bool:
    """The same but for the rounding of sums in another order."""
    pairs = list(zip(found.hypotheses, expected.hypotheses, strict=True))
    return all(
        (a.text, a.tokens, a.finished) == (b.text, b.tokens, b.finished)
        and math.isclose(a.score, b.score, rel_tol=1e-9)
        and math.isclose(a.log_prob, b.log_prob, rel_tol=1e-9)
        for a, b in pairs
    )


@pytest.mark.parametrize("config", METHODS)
def test_a_line_translates_the_same_alone_and_in_any_batch(config: dict[str, Any]) -> None:
    together = run(LINES, **config)
    assert len({found.text for found in together}) > 5
    for line, found in zip(LINES, together, strict=True):
        assert same(run([line], **config)[0], found)
    backwards = run(LINES[::-1], batch_tokens=30, **config)[::-1]
    for found, again in zip(together, backwards, strict=True):
        assert same(again, found)


@settings(max_examples=8)
@given(st.lists(st.sampled_from([*LINES, "", " ", "\u2028\t", "\x85"]), max_size=12))
def test_every_line_gets_one_answer_in_order_and_blank_lines_blank_ones(lines: list[str]) -> None:
    alone = dict(zip(LINES, run(LINES), strict=True))
    found = run(lines)
    assert len(found) == len(lines)
    for line, answer in zip(lines, found, strict=True):
        if line.strip():
            assert same(answer, alone[line])
        else:
            assert (answer.text, answer.tokens, answer.finished) == ("", (), True)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces each search was asked for, as they come."""
    sizes: list[int] = []

    def counted(step: Step, *, batch: int, **options: Any) -> list[list[Hypothesis]]:
        sizes.append(batch)
        return search(step, batch=batch, **options)

    monkeypatch.setattr("regard.decoding.translate.search", counted)
    return sizes


def test_blank_lines_cost_no_decoding(batches: list[int]) -> None:
    found = run(["", "  "])
    assert [answer.text for answer in found] == ["", ""]
    assert batches == []


def test_batches_hold_no_more_tokens_than_they_may_and_are_of_like_length(
    batches: list[int],
) -> None:
    lines = ["a", *["close the window, please"] * 9, "Licht", "a"]
    run(lines, beam=2, batch_tokens=60)
    tokens = len(tokenizer().encode(lines[1])) + 1
    size = 30 // tokens
    assert batches[: 9 // size] == [size] * (9 // size)
    assert sum(batches) == len(lines)


class Newlines(Tokenizer):
    """Decodes every text to one with line breaks in it."""

    def __init__(self) -> None:
        super().__init__(tokenizer()._library)

    def decode(self, ids: Sequence[int]) -> str:
        return "x\ny\r\nz"


def test_a_line_break_in_a_translation_becomes_a_space() -> None:
    [found] = translate(
        [model()], [tokenizer()], Newlines(), ["a"], DecodingConfig(), trained_length=9
    )
    assert found.text == "x y  z"


def test_a_line_longer_than_the_model_was_trained_on_is_translated_in_pieces() -> None:
    parts = ["open the door.", "Close the window!", "Is it on?"]
    warnings: list[str] = []
    limit = max(len(tokenizer().encode(part)) for part in parts)
    lines = ["a", "", " ".join(parts), "Licht"]
    found = run(lines, trained_length=limit, more={"warn": warnings.append, "first_line": 40})
    tokens = len(tokenizer().encode(lines[2]))
    assert warnings == [
        f"line 42: {tokens} tokens is more than the {limit} that the model was trained on; "
        "translated in 3 pieces"
    ]
    pieces = run(parts, trained_length=limit)
    assert found[2].text == " ".join(piece.text for piece in pieces if piece.text)
    assert found[2].tokens == tuple(token for piece in pieces for token in piece.tokens)
    assert found[2].log_prob == pytest.approx(sum(piece.log_prob for piece in pieces))
    assert found[2].finished == all(piece.finished for piece in pieces)
    assert same(found[3], run(["Licht"])[0])


def test_a_line_longer_than_a_table_of_positions_is_translated_in_pieces() -> None:
    small = model(3, max_positions=8, end=0.0)
    line = "the door is open " * 5
    warnings: list[str] = []
    for config in ({"beam": 1}, {"beam": 3}):
        [found] = run([line], models=[small], more={"warn": warnings.append}, **config)
        assert not found.finished
        assert found.text
    assert "more than the 7 that" in warnings[0]


def test_a_prefix_opens_the_translation_of_its_line() -> None:
    prefixes = ["the door", "", "Licht an;"]
    found = run(LINES[:3], prefixes=prefixes)
    for answer, prefix in zip(found, prefixes, strict=True):
        assert answer.text.startswith(prefix)
        ids = tokenizer().encode(prefix)
        assert list(answer.tokens[: len(ids)]) == ids
    assert same(found[1], run(LINES[1:2])[0])


def test_of_a_line_in_pieces_only_the_first_takes_the_prefix() -> None:
    [found] = run([LINES[6]], trained_length=6, prefixes=["the"])
    free = run(["Is it on?"])[0]
    assert found.text.startswith("the")
    assert found.text.endswith(free.text)
    assert found.text.count("the") == 1 + free.text.count("the")


def test_an_ensemble_of_twins_is_the_model_and_of_others_is_not() -> None:
    alone, other = run(LINES), run(LINES, models=[model(56)])
    for found, expected in zip(run(LINES, models=[model(), model()]), alone, strict=True):
        assert same(found, expected)
    mixed = run(LINES, models=[model(), model(56)])
    assert [m.text for m in mixed] not in ([a.text for a in alone], [o.text for o in other])


def _log_prob(models: Sequence[Transformer], line: str, answer: Translation) -> float:
    source = torch.tensor([[*tokenizer().encode(line), EOS_ID]])
    target = torch.tensor([[BOS_ID, *answer.tokens]])
    wanted = torch.tensor([*answer.tokens, EOS_ID] if answer.finished else answer.tokens)
    with torch.no_grad():
        mean = torch.stack([one(source, target)[0].softmax(-1) for one in models]).mean(0)
    return float(mean[: len(wanted)].gather(1, wanted[:, None]).log().sum())


@pytest.mark.parametrize("config", METHODS)
def test_log_probabilities_are_those_of_the_whole_model_without_a_cache(
    config: dict[str, Any],
) -> None:
    for models in ([model()], [model(), model(56)]):
        found = run(LINES, models=models, **config)
        assert any(answer.finished for answer in found)
        for line, answer in zip(LINES, found, strict=True):
            assert answer.log_prob == pytest.approx(_log_prob(models, line, answer))


@pytest.mark.parametrize("config", METHODS[1:3])
def test_attention_and_alignment_come_on_request_with_the_right_sizes(
    config: dict[str, Any],
) -> None:
    lines = [*LINES, ""]
    asked = {"alignments": True, "attention": True}
    found = run(lines, trained_length=6, more=asked, **config)
    unasked = run(lines, trained_length=6, **config)
    for line, answer, plain in zip(lines, found, unasked, strict=True):
        assert same(answer, plain)
        assert (plain.alignment, plain.attention_ts, plain.source_tokens) == (None, None, ())
        assert answer.alignment is not None
        for source, target in answer.alignment:
            assert 0 <= source < len(line.split())
            assert 0 <= target < len(answer.text.split())
        if line:
            assert answer.attention_ts is not None
            shape = (len(answer.target_tokens), len(answer.source_tokens))
            assert answer.attention_ts.shape == shape
            assert len(answer.tokens) == shape[0]
            rows = answer.attention_ts.sum(1)
            np.testing.assert_allclose(rows, 1)
    words = {target for _, target in found[6].alignment or ()}
    assert words == set(range(len(found[6].text.split())))
    assert len(found[6].pharaoh.split()) == len(found[6].alignment or ())


def test_dropout_is_off_while_translating_and_as_it_was_after() -> None:
    trained = model()
    trained.train()
    try:
        assert [found.text for found in run(LINES)] == [found.text for found in run(LINES)]
        assert trained.training
    finally:
        trained.eval()
    run(LINES[:1])
    assert not trained.training


def test_no_lines_give_no_translations() -> None:
    assert run([]) == []


def test_prefixes_that_are_not_one_a_line_are_refused() -> None:
    with pytest.raises(ValueError, match="1 prefix for 2 lines"):
        run(["a", "b"], prefixes=["x"])


def test_a_prefix_longer_than_a_table_of_positions_is_refused() -> None:
    with pytest.raises(ModelError):
        run(["a"], models=[model(3, max_positions=8, end=0.0)], prefixes=["the door is open " * 3])
