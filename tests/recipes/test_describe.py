"""What `regard info` says of a recipe and of a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from regard.recipes.describe import describe, format_description, to_json
from regard.recipes.load import load_recipe
from regard.recipes.write import format_recipe
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import Tokenizer
from regard.weights.run_folder import RunFolder


def test_the_parts_add_up_to_the_parameters() -> None:
    found = json.loads(to_json(describe("base", ["vocabulary.size=37000"])))
    assert found["parameters"] == 63_082_496
    assert sum(part["parameters"] for part in found["parts"]) == 63_082_496
    assert all(part["each"] * part["copies"] == part["parameters"] for part in found["parts"])
    assert found["model"]["d_k"] == found["model"]["d_v"] == 64


def test_the_text_is() -> None:
    text = format_description(
        describe("tiny", ["description=a toy", "model.encoder_layers=1", "model.decoder_layers=1"])
    )
    assert text == TINY


TINY = """\
tiny        a recipe that comes with regard
about       a toy
vocabulary  500 entries, bpe, of source and target together
model       1 encoder and 1 decoder layers, d_model 64, 2 heads of d_k 32 and d_v 32, \
d_ff 128 (relu), post-norm (layer), sinusoidal positions
parameters  115,712 (0.4 MiB in float32)

part                                     shapes (biases not shown)    each  copies  parameters
embedding (source, target) = projection  500 x 64                   32,000       1      32,000
encoder self-attention                   192 x 64, 64 x 64          16,640       1      16,640
encoder feed-forward                     128 x 64, 64 x 128         16,576       1      16,576
encoder norms                            2 x 64                        128       2         256
decoder self-attention                   192 x 64, 64 x 64          16,640       1      16,640
decoder cross-attention                  192 x 64, 64 x 64          16,640       1      16,640
decoder feed-forward                     128 x 64, 64 x 128         16,576       1      16,576
decoder norms                            2 x 64                        128       3         384
all                                                                                    115,712"""


@pytest.mark.parametrize(
    ("recipe", "changes", "told"),
    [
        ("gpt", ["model.window=64"], "learned positions, a window of 64 tokens"),
        (
            "gpt",
            ["model.window=64", "model.window_from=2"],
            "learned positions, a window of 64 tokens from layer 2 on",
        ),
        (
            "gpt-char",
            ["model.positions.scaling.kind=yarn", "model.positions.scaling.factor=4"],
            "rotary positions (yarn, factor 4), a window of 128 tokens",
        ),
        ("tiny", ["model.decoder_mixer=ssru"], "sinusoidal positions, ssru in the decoder"),
    ],
)
def test_what_is_out_of_the_ordinary_is_told(recipe: str, changes: list[str], told: str) -> None:
    lines = format_description(describe(recipe, changes)).splitlines()
    assert next(line for line in lines if line.startswith("model ")).endswith(told)


def test_a_short_name_is_that_of_a_recipe_even_beside_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt").mkdir()
    assert describe("gpt").origin == describe("base").origin == "a recipe that comes with regard"
    Path("my.toml").write_text("description = 'mine'", encoding="utf-8")
    assert describe("my.toml").origin == "a recipe file"


def test_an_adapted_run_says_what_it_adapts() -> None:
    notes = {"made": "best", "lora_base": "../base", "lora_base_sha256": "5" * 64,
             "lora_alpha": "16.0", "lora_without": '["prediction.bias"]'}  # fmt: skip
    text = format_description(replace(describe("tiny"), notes=notes))
    assert "lora" not in text
    assert "\nadapts      the model of ../base, which is needed too\n" in text


def test_a_run_has_the_vocabularies_of_its_tokenizers(tmp_path: Path) -> None:
    recipe = load_recipe("tiny", ["vocabulary.joint=false", "model.tying=none"])
    config = VocabularyConfig(size=261)
    source = Tokenizer.train(iter(["aa bb"] * 9), config)
    target = Tokenizer.train(iter(["cc dd"] * 9), VocabularyConfig(size=260))
    with RunFolder.create(tmp_path / "run") as run:
        run.write_recipe(format_recipe(recipe))
        run.write_tokenizers(source.to_bytes(), target.to_bytes())
    found = describe(str(tmp_path / "run"))
    assert found.origin == "a run folder"
    assert (found.source_vocabulary, found.target_vocabulary) == (source.size, target.size)
    assert found.source_vocabulary != found.target_vocabulary
    assert found.notes == {"model": "none saved yet"}
    embeddings = [part.parameters for part in found.parts[:3]]
    assert embeddings == [source.size * 64, target.size * 64, target.size * 64]
