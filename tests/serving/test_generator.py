"""A language model in Python: texts, samples, streams, scores, and what is refused."""

import math
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from serving.tiny_families import ROTARY, make_language_run
from serving.tiny_runs import TEXT

import regard
from regard.decoding.generate import generate
from regard.decoding.generation import GenerationConfig
from regard.errors import DataError, ModelError, RecipeError, RegardError, RunFolderError
from regard.serving.generator import GenerationOptions, Generator
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.weights.run_folder import RunFolder

PROMPTS = ["the light", "", "das Licht ist", "Küche"]


@pytest.fixture(scope="module")
def language_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_language_run(tmp_path_factory.mktemp("runs") / "gpt")


@pytest.fixture(scope="module")
def generator(language_run: Path) -> Generator:
    return regard.load_language_model(language_run, device="cpu")


def test_a_loaded_run_goes_on_as_its_model_does(generator: Generator) -> None:
    found = generate(generator.model, generator.vocabulary, PROMPTS, generator.generation)
    assert generator.generate(PROMPTS) == [samples[0].text for samples in found]
    for ours, theirs in zip(generator.continuations(PROMPTS), found, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
    assert len(set(generator.generate(PROMPTS))) > 1
    assert not generator.model.training
    assert generator.generation == generator.recipe.generation


def test_one_prompt_or_many_one_sample_or_many(generator: Generator) -> None:
    one = generator.generate(PROMPTS[0])
    assert isinstance(one, str)
    assert generator.generate([PROMPTS[0]]) == [one]
    three = generator.generate(PROMPTS[0], samples=3)
    assert len(three) == len(set(three)) == 3
    assert three[0] == one
    assert generator.generate(PROMPTS[:1], samples=3) == [three]
    assert generator.generate([]) == []


def test_a_stream_joined_is_the_text(generator: Generator) -> None:
    for prompt in PROMPTS:
        pieces = list(generator.stream(prompt, seed=4))
        assert "".join(pieces) == generator.generate(prompt, seed=4)


def test_options_of_a_call_hold_for_that_call(generator: Generator) -> None:
    before = generator.generate(PROMPTS)
    [[short]] = generator.continuations(["the"], max_tokens=2, temperature=0.0)
    assert len(short.tokens) == 2
    assert generator.generate(PROMPTS) == before


def test_options_are_the_generation_config() -> None:
    fields = {name: field.annotation for name, field in GenerationConfig.model_fields.items()}
    assert get_type_hints(GenerationOptions) == fields


def test_scores_are_those_of_the_forward_pass(generator: Generator) -> None:
    texts = [*(text[:30] for text in TEXT), "", "a"]
    scores = generator.score(texts)
    for text, score in zip(texts, scores, strict=True):
        ids = [BOS_ID, *generator.vocabulary.encode(text), EOS_ID]
        with torch.no_grad():
            log_probs_tv = generator.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        total = sum(log_probs_tv[place, token].item() for place, token in enumerate(ids[1:]))
        assert score.log_prob == pytest.approx(total, rel=1e-5)
        assert score.tokens == len(ids) - 1
        assert score.perplexity == pytest.approx(math.exp(-score.log_prob / score.tokens))
    assert generator.score([]) == []


def test_refuses_a_text_to_score_that_is_longer_than_the_model(generator: Generator) -> None:
    with pytest.raises(ModelError) as caught:
        generator.score(["a", "x y z " * 20])
    assert str(caught.value) == (
        "text 2: the text has 122 tokens, the one before it counted, and the model has 24 "
        "positions\n  Score it in parts."
    )


def test_refuses_a_text_to_score_without_end_where_the_model_sets_none(tmp_path: Path) -> None:
    run = make_language_run(tmp_path / "rotary", positions=ROTARY)
    generator = regard.load_language_model(run)
    with pytest.raises(ModelError) as caught:
        generator.score(["a", "x y z " * 20_000])
    problem = r"^text 2: [0-9,]{6,} tokens is more than the 4,096 that can be scored at once\n"
    assert re.match(problem, str(caught.value))


def test_says_where_a_prompt_leaves_less_room_than_was_asked_for(generator: Generator) -> None:
    said: list[str] = []
    [[found]] = generator.continuations(
        ["a b c"], max_tokens=99, temperature=0.0, stop=("never",), warn=said.append
    )
    assert len(found.tokens) <= 24
    assert said[0].startswith("prompt 1: its 7 tokens and 18 more fill the model's 24 positions")


def test_refuses_runs_of_other_families_and_says_what_they_are_for(
    run_path: Path, language_run: Path
) -> None:
    with pytest.raises(RecipeError) as caught:
        regard.load_language_model(run_path, device="cpu")
    assert str(caught.value) == (
        f'{run_path}: this is of the family "seq2seq", and one of "decoder" is wanted\n'
        "  It translates: regard translate, or regard.load in Python."
    )
    with pytest.raises(RecipeError) as caught:
        regard.load(language_run, device="cpu")
    assert str(caught.value) == (
        f'{language_run}: this is of the family "decoder", and one of "seq2seq" is wanted\n'
        "  It goes on with a text: regard generate, or regard.load_language_model in Python."
    )


def test_refuses_a_vocabulary_that_does_not_fit_the_weights(tmp_path: Path) -> None:
    path = make_language_run(tmp_path / "run")
    other = regard.Tokenizer.train(iter(TEXT), VocabularyConfig())
    with RunFolder.open(path, write=True) as run:
        run.write_tokenizers(other.to_bytes())
    with pytest.raises(RunFolderError, match=r"tokenizer.json has \d+ entries, and embedding.weig"):
        regard.load_language_model(path, device="cpu")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tempperature": 1.0}, "generate: unknown option tempperature; did you mean temperature?"),
        (
            {"samples": 0},
            "generate: generation.samples: expected a whole number that is at least 1 and at most "
            "10000, got 0",
        ),
        (
            {"stop": "end"},
            'generate: generation.stop: expected a list of strings, got "end"',
        ),
        (
            {"stop": ("",)},
            "generate: generation.stop: an empty string of stop would stop before anything is "
            "drawn",
        ),
        (
            {"stop": ("\udcff",)},
            "generate: generation.stop: a string of stop holds half of a surrogate pair, which no "
            "UTF-8 can",
        ),
    ],
)
def test_refuses_options_that_make_no_sense(
    generator: Generator, options: dict[str, Any], text: str
) -> None:
    for call in (generator.generate, generator.stream):
        with pytest.raises(RegardError) as caught:
            call("x", **options)  # type: ignore[operator]
        assert str(caught.value) == text


def test_refuses_prompts_that_are_no_text(generator: Generator) -> None:
    with pytest.raises(DataError, match=r"^prompts\[1\]: character 1 is half of a surrogate pair"):
        generator.generate(["fine", "a\ud83d"])
    with pytest.raises(DataError, match=r"^prompts: character 0 is half of a surrogate pair"):
        generator.generate("\ud83d")
    with pytest.raises(DataError, match=r"^prompt: character 0 is half of a surrogate pair"):
        generator.stream("\ud83d")
