"""The Python side: loading runs, translating and scoring, and what is refused."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import tokenizers
import torch
from serving.tiny_runs import TEXT, make_run, tokenizer
from tokenizers.models import Unigram

import regard
from regard.decoding.config import DecodingConfig
from regard.decoding.translate import translate
from regard.errors import DataError, RegardError, RunFolderError
from regard.models.build import build_model
from regard.recipes.load import load_recipe
from regard.serving.translator import DecodingOptions, Translator
from regard.text.foreign import tokenizers_vocabulary
from regard.text.vocabulary import read_vocabulary
from regard.weights.run_folder import RunFolder


def test_a_loaded_run_translates_as_its_model_does(translator: Translator) -> None:
    expected = translate(
        [translator.model],
        [translator.tokenizers.source],
        translator.tokenizers.target,
        TEXT,
        translator.recipe.decoding,
        trained_length=24,
    )
    assert translator.translate(TEXT) == [translation.text for translation in expected]
    assert len(set(translator.translate(TEXT))) > 1


def test_a_single_string_gives_a_single_string(translator: Translator) -> None:
    assert translator.translate(TEXT[0]) == translator.translate([TEXT[0]])[0]
    assert translator.translate([]) == []
    assert translator.translate(" \t") == ""


def test_a_line_break_in_a_string_is_read_as_a_space(translator: Translator) -> None:
    texts = translator.translate(["the light\nis on", "the light is on"])
    assert texts[0] == texts[1]
    assert "\n" not in texts[0]


def test_the_model_is_a_plain_module_in_eval_mode(translator: Translator) -> None:
    assert isinstance(translator.model, torch.nn.Module)
    assert not translator.model.training
    assert translator.model.config == translator.recipe.model
    assert translator.models == (translator.model,)


def test_options_of_a_call_hold_for_that_call(translator: Translator) -> None:
    before = translator.translations(TEXT)
    listed = translator.translations(TEXT, n_best=3)
    assert [len(translation.hypotheses) for translation in listed] == [3] * len(TEXT)
    assert [each.text for each in listed] == [each.text for each in before]
    assert translator.translations(TEXT) == before
    (short,) = translator.translations(["the light"], max_tokens=2, beam=1)
    assert len(short.tokens) <= 2


def test_a_sample_scores_its_log_probability_whatever_the_recipe_says(tmp_path: Path) -> None:
    changes = ["decoding.beam=3", "decoding.alpha=2.0", "decoding.coverage=0.5"]
    translator = regard.load(make_run(tmp_path / "run", changes=changes), device="cpu")
    for found in translator.translations(TEXT, method="sample", n_best=2):
        assert [each.score for each in found.hypotheses] == [
            each.log_prob for each in found.hypotheses
        ]
    assert translator.decoding.alpha == 2.0


def test_a_line_break_in_a_string_parts_words_and_ends_nothing(translator: Translator) -> None:
    broken = translator.translations(["the light\nin the kitchen"], attention=True)[0]
    [whole] = translator.translations(["the light in the kitchen"], attention=True)
    assert broken.text == whole.text
    assert broken.attention_ts is not None
    assert whole.attention_ts is not None
    assert broken.attention_ts.shape == whole.attention_ts.shape  # every source token was looked at


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_prefix_longer_than_the_model_was_trained_on_is_refused(
    engine: str, run_path: Path
) -> None:
    translator = regard.load(run_path, engine=engine)
    for words in (30, 50_000):
        with pytest.raises(DataError) as caught:
            translator.translations(["on", "off"], prefixes=["", "an " * words], first_line=7)
        assert re.fullmatch(
            r"prefix of line 8: [0-9,]+ tokens is more than the 24 that the model was trained on\n"
            r"  Give a shorter one\.",
            str(caught.value),
        )


def test_a_prefix_begins_the_translation(translator: Translator) -> None:
    texts = translator.translations(["the light", "the light"], prefixes=["das", ""])
    assert texts[0].text.startswith("das")
    assert texts[1].text == translator.translate("the light")


def test_options_are_the_decoding_config(translator: Translator) -> None:
    fields = {name: field.annotation for name, field in DecodingConfig.model_fields.items()}
    assert get_type_hints(DecodingOptions) == fields


def test_scores_are_of_the_line_alone(translator: Translator) -> None:
    pairs = [(TEXT[0], TEXT[2]), (TEXT[1], TEXT[3]), (TEXT[0], "")]
    scores = translator.score(pairs)
    for pair, score in zip(pairs, scores, strict=True):
        (alone,) = translator.score([pair])
        assert alone.tokens == score.tokens
        assert alone.log_prob == pytest.approx(score.log_prob, abs=1e-4)
    assert scores[2].tokens == 1


def test_an_ensemble_of_a_run_with_itself_is_the_run(
    run_path: Path, translator: Translator
) -> None:
    twice = regard.load([run_path, run_path], device="cpu")
    assert twice.translate(TEXT) == translator.translate(TEXT)
    assert len(twice.models) == 2


def test_an_ensemble_may_differ_in_source_vocabulary_and_length(
    run_path: Path, translator: Translator, tmp_path: Path
) -> None:
    target = translator.tokenizers.target
    other = make_run(
        tmp_path / "other",
        seed=2,
        source=tokenizer(270, TEXT[:2]),
        target=target,
        changes=["vocabulary.joint=false", "model.tying=two_way", "data.max_tokens=20"],
    )
    both = regard.load([run_path, other], device="cpu")
    assert both.trained_length == 20
    assert both.translate(TEXT) != translator.translate(TEXT)
    (mixed,) = both.score([(TEXT[0], TEXT[2])])
    singles = [
        regard.load(path, device="cpu").score([(TEXT[0], TEXT[2])])[0].log_prob
        for path in (run_path, other)
    ]
    assert min(singles) - 1 < mixed.log_prob


def test_a_run_named_like_a_preset_is_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    assert regard.load("base", device="cpu").recipe.model.d_model == 16


def test_threads_are_set(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    regard.load(run_path, device="cpu", threads=3, engine="torch")
    assert asked == [3]


def refused(error: type[RegardError], *paths: Path | str, **options: str) -> str:
    with pytest.raises(error) as caught:
        regard.load(paths, **options)
    return str(caught.value)


def test_refuses_a_vocabulary_that_does_not_fit_the_weights(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    with RunFolder.open(path, write=True) as run:
        run.write_tokenizers(tokenizer(275).to_bytes())
    assert refused(RunFolderError, path) == (
        f"{path}: the vocabulary does not fit the weights: tokenizer.json has 275 entries, and "
        "source_embedding.weight has 280 rows\n"
        "  Copy the folder again from where it came from, whole."
    )


def test_refuses_a_target_vocabulary_that_does_not_fit_the_weights(tmp_path: Path) -> None:
    changes = ["vocabulary.joint=false", "model.tying=two_way"]
    path = make_run(tmp_path / "run", changes=changes, target=tokenizer(270))
    with RunFolder.open(path, write=True) as run:
        run.write_tokenizers(tokenizer(280).to_bytes(), tokenizer(275).to_bytes())
    assert refused(RunFolderError, path) == (
        f"{path}: the vocabulary does not fit the weights: tokenizer.target.json has 275 "
        "entries, and target_embedding.weight has 270 rows\n"
        "  Copy the folder again from where it came from, whole."
    )


def test_refuses_weights_that_do_not_fit_the_recipe(tmp_path: Path) -> None:
    config = load_recipe("tiny", ["model.d_model=16", "model.num_heads=2"]).model
    other = build_model(config, source_vocabulary=280, target_vocabulary=280, seed=1)
    path = make_run(tmp_path / "run", weights=other.state_dict())
    assert refused(RunFolderError, path) == (
        f"{path}: the weights do not fit the recipe: "
        "decoder_layers.0.feed_forward.input.bias is (128,), and the recipe wants (32,); "
        "decoder_layers.0.feed_forward.input.weight is (128, 16), and the recipe wants (32, 16); "
        "decoder_layers.0.feed_forward.output.weight is (16, 128), and the recipe wants (16, 32); "
        "and 33 more\n  Copy the folder again from where it came from, whole."
    )


def test_says_which_weights_are_missing_or_too_many(tmp_path: Path, translator: Translator) -> None:
    weights = translator.model.state_dict()
    table = weights.pop("decoder_layers.0.feed_forward.input.bias")
    path = make_run(tmp_path / "run", weights={**weights, "extra": table})
    assert refused(RunFolderError, path) == (
        f"{path}: the weights do not fit the recipe: "
        "decoder_layers.0.feed_forward.input.bias is missing, and the recipe wants (32,); "
        "extra is (32,), and the recipe wants nothing\n"
        "  Copy the folder again from where it came from, whole."
    )


def test_refuses_an_ensemble_with_two_target_vocabularies(run_path: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", source=tokenizer(270))
    assert refused(RunFolderError, run_path, other) == (
        f"{other}: its target vocabulary (270 entries) is not that of {run_path} (280 entries)\n"
        "  An ensemble averages probabilities of tokens, so the runs must share them: "
        "train one with --init of the other."
    )


def test_refuses_an_ensemble_that_ends_with_another_token(run_path: Path, tmp_path: Path) -> None:
    pieces = [("<pad>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("▁", -2.0), ("a", -2.0), ("▁a", -1.0)]
    library = tokenizers.Tokenizer(Unigram(pieces, unk_id=3))
    library.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])

    def run(name: str, start: int, eos: int) -> Path:
        data = tokenizers_vocabulary(library.to_str().encode(), pad=0, start=start, eos=eos)
        return make_run(tmp_path / name, source=read_vocabulary(data))

    first, again, other, swapped = (
        run(name, *ids) for name, *ids in (
            ("a", 1, 2), ("again", 1, 2), ("start", 0, 2), ("end", 2, 1)
        )
    )  # fmt: skip
    regard.load([first, again], device="cpu")
    for wrong in (other, swapped):
        assert refused(RunFolderError, first, wrong).startswith(
            f"{wrong}: its target vocabulary has other start, end or control tokens than that of "
            f"{first}\n  An ensemble averages"
        )


def test_refuses_what_is_no_run_or_no_device(run_path: Path, tmp_path: Path) -> None:
    assert refused(RunFolderError, tmp_path / "no") == (
        f"{tmp_path / 'no'}: there is no such run folder"
    )
    assert refused(RegardError) == "load: expected one run folder or more, got none"
    assert refused(RegardError, run_path, device="gpu") == (
        'device: expected "auto", "cpu", "cuda" or "cuda:N", got "gpu"'
    )
    assert refused(RegardError, run_path, device="cuda:99").startswith(
        'device: "cuda:99" is not there: torch sees '
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"beem": 3}, "translate: unknown option beem; did you mean beam?"),
        (
            {"beam": 0},
            "translate: decoding.beam: expected a whole number that is at least 1 and at most "
            "10000, got 0",
        ),
        ({"n_best": 5}, "translate: decoding: n_best = 5 is more than beam = 4"),
        ({"temperature": 9.0}, 'translate: temperature = 9.0 needs method = "sample"'),
        (
            {"top_k": 3, "top_p": 0.5, "min_p": 0.1, "seed": 1},
            "translate: top_k = 3 and top_p = 0.5 and min_p = 0.1 and seed = 1 need "
            'method = "sample"',
        ),
        ({"method": "sample", "beam": 4}, 'translate: beam = 4 needs method = "beam"'),
        ({"method": "sample", "alpha": 1.0}, 'translate: alpha = 1.0 needs method = "beam"'),
    ],
)
def test_refuses_options_that_make_no_sense(
    translator: Translator, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(RegardError) as caught:
        translator.translate(["x"], **options)  # type: ignore[arg-type]
    assert str(caught.value) == text


def test_refuses_strings_that_are_no_text(translator: Translator) -> None:
    with pytest.raises(DataError) as caught:
        translator.translate(["fine", "a\ud83d"])
    assert str(caught.value) == (
        "lines[1]: character 1 is half of a surrogate pair (U+D83D), which UTF-8 cannot hold\n"
        '  Read text with errors="replace", or mend it where it comes from.'
    )
    with pytest.raises(DataError, match=r'^lines: expected a list of strings, got one; write \["'):
        translator.translations("Hello")
    with pytest.raises(DataError, match=r"^got 2 lines and 1 prefix$"):
        translator.translations(["a", "b"], prefixes=["x"])


def test_refuses_what_is_no_list_and_no_pair(run_path: Path) -> None:
    """In a process of its own, since the test run's own checks of types come first here."""
    script = f"""
import regard
from pathlib import Path

translator = regard.load({str(run_path)!r})
for value in (None, 3, b"x", Path("x")):
    for call in (translator.translate, translator.score):
        try:
            call(value)
        except regard.RegardError as error:
            print(error)
for pair in ("ab", ("a",), ("a", "b", "c"), 3):
    try:
        translator.score([("a", "b"), pair])
    except regard.RegardError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    kinds = ("NoneType", "int", "bytes", "PosixPath")
    assert done.stdout.splitlines() == [
        *(
            f"{name}: expected a list of {wanted}, got {kind}"
            for kind in kinds
            for name, wanted in (("lines", "strings"), ("pairs", "pairs of strings"))
        ),
        *["pairs[1]: expected a source and a target"] * 4,
    ]


def test_takes_any_iterable(translator: Translator) -> None:
    pairs = [("light", "Licht"), ("off", "aus")]
    assert translator.score(pair for pair in pairs) == translator.score(pairs)
    assert translator.score(zip(*zip(*pairs, strict=True), strict=True)) == translator.score(pairs)
    sources = [source for source, _ in pairs]
    assert translator.translate(source for source in sources) == translator.translate(sources)


def test_a_loaded_model_tells_its_weights_of_attention(translator: Translator) -> None:
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6]])
    with regard.recorded_attention(translator.model, heads=[0]) as found:
        translator.model(source, target)
    assert found["decoder_layers.0.cross_attention"].shape == (1, 1, 2, 3)
    assert found["encoder_layers.0.self_attention"].shape == (1, 1, 3, 3)
