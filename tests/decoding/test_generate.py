"""Going on with texts: batches, seeds, limits, penalties, and the model's own forward pass."""

import math
from typing import Any

import pytest
import torch
from decoding.tiny import LINES, tokenizer
from decoding.tiny_language import language_model
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from regard.decoding.generate import Continuation, generate, prompt_ids, stream
from regard.decoding.generation import GenerationConfig
from regard.decoding.next_token import penalised
from regard.errors import ModelError
from regard.models.decoder import LanguageModel
from regard.text.tokenizer import BOS_ID, EOS_ID

PROMPTS = ["", *LINES, "Licht é 🙂"]
METHODS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"samples": 3, "temperature": 1.5},
    {"samples": 2, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.3},
    {"temperature": 0.0, "repetition_penalty": 2.0, "stop": ("t", "on")},
]


def run(
    prompts: list[str], model: LanguageModel | None = None, **config: Any
) -> list[list[Continuation]]:
    batch_tokens = config.pop("batch_tokens", 2**16)
    return generate(
        model or language_model(),
        tokenizer(),
        prompts,
        GenerationConfig(**{"max_tokens": 10, **config}),
        batch_tokens=batch_tokens,
    )


def same(found: list[Continuation], expected: list[Continuation]) -> bool:
    """The same but for the rounding of sums in another order."""
    return all(
        (a.prompt, a.text, a.tokens, a.finish) == (b.prompt, b.text, b.tokens, b.finish)
        and a.log_prob == pytest.approx(b.log_prob, rel=1e-9)
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("config", METHODS)
def test_a_prompt_goes_on_the_same_alone_and_in_any_batch(config: dict[str, Any]) -> None:
    model = language_model(end=4.0)
    together = run(PROMPTS, model, **config)
    texts = [[each.text for each in found] for found in together]
    assert len({text for found in texts for text in found}) > 5
    for prompt, found in zip(PROMPTS, together, strict=True):
        assert same(run([prompt], model, **config)[0], found)
    for size in (1, 30, 60):
        again = run(PROMPTS[::-1], model, batch_tokens=size, **config)[::-1]
        assert all(map(same, again, together))


def test_what_is_drawn_ends_for_each_of_the_three_reasons() -> None:
    found = run(PROMPTS, language_model(end=4.0), samples=4, stop=("e",))
    assert {each.finish for samples in found for each in samples} == {"end", "stop", "length"}
    for samples in found:
        for each in samples:
            assert EOS_ID not in each.tokens
            assert (len(each.tokens) == 10) >= (each.finish == "length")
            assert "e" not in each.text


def forward(ids: list[int], model: LanguageModel | None = None) -> torch.Tensor:
    with torch.no_grad():
        return (model or language_model())(torch.tensor([ids]))[0]


def test_greedy_takes_the_likeliest_of_the_models_forward_pass() -> None:
    for prompt, [found] in zip(PROMPTS, run(PROMPTS, temperature=0.0), strict=True):
        ids = [BOS_ID, *tokenizer().encode(prompt)]
        logits_tv = forward([*ids, *found.tokens])[len(ids) - 1 :]
        logits_tv[:, :EOS_ID] = -torch.inf
        ended = found.finish == "end"
        drawn = [*found.tokens, EOS_ID] if ended else list(found.tokens)
        assert logits_tv[: len(drawn)].argmax(-1).tolist() == drawn
        log_probs = forward([*ids, *found.tokens])[len(ids) - 1 :].log_softmax(-1)
        total = sum(log_probs[place, token].item() for place, token in enumerate(drawn))
        assert found.log_prob == pytest.approx(total, rel=1e-9)


def test_a_long_prompt_is_read_in_parts_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = run(PROMPTS, samples=2)
    monkeypatch.setattr("regard.decoding.reading._PART", 3)
    assert all(map(same, run(PROMPTS, samples=2), whole))


def test_prompt_and_text_read_right_together() -> None:
    for prompt, [found] in zip(PROMPTS, run(PROMPTS), strict=True):
        ids = tokenizer().encode(prompt)
        assert prompt + found.text == tokenizer().decode([*ids, *found.tokens])


def test_the_first_samples_do_not_depend_on_how_many_there_are() -> None:
    one, many = (run(PROMPTS, samples=count) for count in (1, 3))
    for few, more in zip(one, many, strict=True):
        assert same(few, more[:1])
        assert len({each.tokens for each in more}) == 3


def test_samples_differ_by_seed_and_are_the_same_for_the_same_seed() -> None:
    assert run(["the"], seed=3) == run(["the"], seed=3)
    drawn = {run(["the"], seed=seed)[0][0].tokens for seed in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize("config", METHODS)
def test_a_stream_gives_the_text_of_the_first_sample_in_pieces(config: dict[str, Any]) -> None:
    for prompt in PROMPTS:
        settings = GenerationConfig(**{"max_tokens": 10, **config})
        pieces = list(stream(language_model(), tokenizer(), prompt, settings))
        assert "" not in pieces
        assert "".join(pieces) == run([prompt], **config)[0][0].text
    assert len(list(stream(language_model(), tokenizer(), "the", GenerationConfig()))) > 20


def test_a_stream_draws_no_more_than_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, steps = language_model(), []
    step = model.step
    monkeypatch.setattr(model, "step", lambda *given: (steps.append(1), step(*given))[1])
    pieces = stream(model, tokenizer(), "the", GenerationConfig(max_tokens=99))
    assert not steps
    next(pieces)
    assert len(steps) < 5


def test_a_model_in_training_draws_as_in_evaluation_and_stays_in_training() -> None:
    model = language_model()
    expected = run(PROMPTS)
    try:
        model.train()
        assert run(PROMPTS) == expected
        assert model.training
    finally:
        model.eval()


@settings(max_examples=10)
@given(st.floats(0.2, 5.0), st.integers(0, 999))
def test_the_penalty_is_that_of_transformers_on_the_same_logits(penalty: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(4, 20, generator=generator, dtype=torch.float64)
    ids = torch.randint(20, (4, 9), generator=generator)
    seen = torch.zeros(4, 20, dtype=torch.bool).scatter_(1, ids, True)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, logits)
    torch.testing.assert_close(penalised(logits, seen, penalty), expected, rtol=0, atol=0)


def test_tokens_are_drawn_by_the_shares_of_transformers_own_chain() -> None:
    config = {
        "temperature": 1.7, "top_k": 12, "top_p": 0.93, "min_p": 0.1, "repetition_penalty": 1.4,
    }  # fmt: skip
    ids = [BOS_ID, *tokenizer().encode("the door is open")]
    logits = forward(ids)[-1:].clone()
    # Control tokens are never drawn; there they would only take a share.
    logits[:, [0, 1]] = -torch.inf
    given_ids = torch.tensor([ids])
    for processor in (
        RepetitionPenaltyLogitsProcessor(1.4),
        TemperatureLogitsWarper(1.7),
        TopKLogitsWarper(12),
        TopPLogitsWarper(0.93),
        MinPLogitsWarper(0.1),
    ):
        logits = processor(given_ids, logits)
    expected = logits.softmax(-1)[0]
    found = run(["the door is open"], max_tokens=1, samples=4000, **config)[0]
    drawn = torch.tensor([each.tokens[0] if each.tokens else EOS_ID for each in found])
    counts = drawn.bincount(minlength=len(expected)).double()
    kept = expected > 0
    assert kept.sum() > 2
    assert counts[~kept].sum() == 0
    wanted = 4000 * expected[kept]
    assert ((counts[kept] - wanted) ** 2 / wanted).sum() < 3.5 * kept.sum()


def test_the_penalty_counts_the_prompt_and_what_was_drawn() -> None:
    [[plain]] = run(["the door"], temperature=0.0, max_tokens=30)
    [[lowered]] = run(["the door"], temperature=0.0, max_tokens=30, repetition_penalty=100)
    assert len(set(plain.tokens)) < 30
    prompt = set(tokenizer().encode("the door"))
    assert len(set(lowered.tokens)) == 30
    assert not prompt & set(lowered.tokens)


def test_rows_of_the_model_that_are_no_tokens_are_never_drawn() -> None:
    model = LanguageModel(language_model().config, vocabulary=tokenizer().size + 50).double()
    assert model.output_bias is not None
    with torch.no_grad():
        model.output_bias[tokenizer().size :] = 50.0
        model.output_bias[:EOS_ID] = 50.0
    for config in METHODS[:2]:
        for [found, *_] in run(PROMPTS, model, **config):
            assert all(EOS_ID < token < tokenizer().size for token in found.tokens)


@pytest.mark.parametrize("samples", [1, 3])
def test_it_stops_where_the_models_positions_end_and_says_so(samples: int) -> None:
    model = language_model(max_positions=8)
    lengths = [len(ids) for ids in prompt_ids(tokenizer(), PROMPTS)]
    short = [prompt for prompt, size in zip(PROMPTS, lengths, strict=True) if size <= 8]
    assert len({size for size in lengths if size <= 8}) > 2
    said: list[str] = []
    found = generate(
        model,
        tokenizer(),
        short,
        GenerationConfig(max_tokens=20, samples=samples),
        warn=said.append,
    )
    for prompt, chains in zip(short, found, strict=True):
        room = 9 - len(prompt_ids(tokenizer(), [prompt])[0])
        assert all((len(each.tokens), each.finish) == (room, "length") for each in chains)
        assert same(run([prompt], model, max_tokens=20, samples=samples)[0], chains)
    assert said[0] == (
        "prompt 1: its 1 token and 8 more fill the model's 8 positions; no more than these are "
        "drawn"
    )
    assert len(said) == len(short)


def test_a_prompt_that_is_too_long_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = language_model(max_positions=8)
    monkeypatch.setattr(model, "step", None)
    for call in (
        lambda: run(["a", "a b c d e f g h i j k"], model),
        lambda: stream(model, tokenizer(), "a b c d e f g h i j k", GenerationConfig()),
    ):
        with pytest.raises(ModelError) as caught:
            call()
        problem = str(caught.value).partition(": ")[2]
        assert problem.startswith("the prompt has 22 tokens, and the model has 8 positions\n")
    assert str(caught.value).startswith("prompt 1: ")


def test_a_model_whose_output_is_not_a_number_is_refused() -> None:
    model = LanguageModel(language_model().config, vocabulary=tokenizer().size).double()
    with torch.no_grad():
        model.embedding.weight[5] = torch.nan
        model.layers[0].feed_forward.output.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not a number"):
        run(["the"], model)


def test_nothing_is_asked_for_and_nothing_comes() -> None:
    assert run([]) == []


@pytest.mark.parametrize("penalty", [1e-300, 0.0, 100.5])
def test_refuses_a_penalty_out_of_bounds(penalty: float) -> None:
    with pytest.raises(ValidationError):
        GenerationConfig(repetition_penalty=penalty)


@pytest.mark.parametrize("penalty", [0.01, 100])
def test_a_penalty_at_its_bounds_gives_text(penalty: float) -> None:
    [[found]] = run(["the door"], max_tokens=5, repetition_penalty=penalty)
    assert math.isfinite(found.log_prob)


def test_refuses_a_stop_string_that_no_utf8_can_hold() -> None:
    with pytest.raises(ValidationError, match="a string of stop holds half of a surrogate pair"):
        GenerationConfig(stop=("a", "\udcff"))


def test_refuses_an_empty_stop_string() -> None:
    with pytest.raises(ValidationError, match="an empty string of stop would stop before"):
        GenerationConfig(stop=("a", ""))
