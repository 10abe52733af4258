"""Sequence layers as recipes name them: refused where they can't work, trained where they can."""

from pathlib import Path

import pytest

import regard
from regard.engine.support import refusal
from regard.errors import ModelError, RecipeError
from regard.models.config import TransformerConfig
from regard.nn.mixers.config import DEFAULTS, StackConfig, WindowConfig
from regard.recipes.bring import export_run
from regard.recipes.describe import describe, format_description
from regard.recipes.load import load_recipe, load_recipe_of
from regard.recipes.recipe import Recipe
from regard.recipes.run import train
from regard.recipes.write import format_recipe
from regard.training.progress import SilentReporter
from regard.weights.run_folder import RunFolder

NAMES = ", ".join(f'"{kind}"' for kind in [*DEFAULTS][:-1]) + f' or "{[*DEFAULTS][-1]}"'
REFUSED = {
    "llama-mini model.window=0 model.decoder.mixer.kind=linear": (
        '--set model.decoder.mixer.kind: decoder.mixer.kind = "linear" never computes the scores '
        'that positions.kind = "rotary" acts on; set positions.kind to "none", "sinusoidal" or '
        '"learned"'
    ),
    "base model.decoder.mixer.kind=linformer": (
        '--set model.decoder.mixer.kind: decoder.mixer.kind = "linformer" sees both sides, and a '
        "decoder sees the past only; it is for encoders"
    ),
    "base model.encoder.mixer.kind=linformer model.encoder.mixer.length=256": (
        "--set model.encoder.mixer.length: model.encoder.mixer.length = 256 is too few for "
        "data.max_tokens = 256 and the end token"
    ),
    "base model.decoder.mixer.kind=mamba model.num_heads=3 model.d_k=8 model.d_v=8": (
        "--set model.num_heads: decoder.mixer.expand * d_model = 1024 is not divisible by "
        "num_heads = 3"
    ),
    "bert-mini model.encoder.mixer.kind=ssru": (
        '--set model.encoder.mixer.kind: encoder.mixer.kind = "ssru" sees the past only, and an '
        "encoder sees both sides; it is for decoders"
    ),
    "bert-mini model.encoder.mixer.kind=window model.encoder.mixer.window=600": (
        "--set model.encoder.mixer.window: encoder.mixer.window = 600 is wider than any "
        "sequence: positions.max_positions = 512"
    ),
    "bert-mini model.encoder.mixer.kind=window model.encoder.mixer.dilation=8": (
        "--set model.encoder.mixer.dilation: encoder.mixer.window = 128 with mixer.dilation = 8 "
        "is wider than any sequence: positions.max_positions = 512"
    ),
    "bert-mini model.encoder.mixer.kind=convolution model.encoder.mixer.width=513": (
        "--set model.encoder.mixer.width: encoder.mixer.width = 513 is wider than any "
        "sequence: positions.max_positions = 512"
    ),
    "gpt-char model.decoder.mixer.kind=window": (
        '--set model.decoder.mixer.kind: window = 128 and decoder.mixer.kind = "window" both say '
        "what the layers have; set window to 0"
    ),
    "base model.decoder_mixer=ssru model.decoder.mixer.kind=window": (
        "--set model.decoder_mixer, model.decoder.mixer.kind: "
        'decoder_mixer = "ssru" and decoder.mixer.kind = "window" both say what the layers have; '
        "set one of them"
    ),
    "llama-mini model.decoder.mixer.kind=ssru model.window=0": (
        '--set model.decoder.mixer.kind: positions.kind = "rotary" acts on the scores of '
        'attention, and no layer has any; set positions.kind to "none", "sinusoidal" or "learned"'
    ),
    'tiny model.decoder.pattern=["ssru","full","full","full","full"]': (
        "--set model.decoder.pattern: decoder.pattern names 5 layers, and decoder_layers = 2"
    ),
    'base model.decoder.mixer.kind=window model.decoder.pattern=["ssru","full"]': (
        "--set model.decoder.mixer.kind, model.decoder.pattern: "
        'pattern has no layer of mixer.kind = "window"; name it there too'
    ),
    'base model.decoder.pattern=["windw"]': (
        f'--set model.decoder.pattern: expected a list of {NAMES}, got "windw"'
    ),
    "base model.decoder.mixer.kind=windw": (
        f'--set model.decoder.mixer.kind: expected {NAMES}, got "windw"; did you mean "window"?'
    ),
    "base model.decoder.mixer.window=7": (
        '--set model.decoder.mixer.window: unknown key for kind = "full"; it has kind'
    ),
}


@pytest.mark.parametrize("changes", REFUSED)
def test_what_cannot_work_is_refused_when_the_recipe_is_read(changes: str) -> None:
    name, *overrides = changes.split()
    with pytest.raises(RecipeError) as caught:
        load_recipe(name, overrides)
    assert str(caught.value) == REFUSED[changes]


def test_a_recipe_with_layers_of_several_kinds_is_written_out_and_read_back(
    tmp_path: Path,
) -> None:
    recipe = load_recipe(
        "gpt-mini",
        [
            "model.decoder.mixer.kind=window",
            "model.decoder.mixer.window=9",
            'model.decoder.pattern=["window", "full"]',
        ],
    )
    (tmp_path / "r.toml").write_text(format_recipe(recipe), encoding="utf-8")
    assert load_recipe(tmp_path / "r.toml") == recipe


def test_info_names_the_layers_and_counts_them() -> None:
    text = format_description(describe("tiny", ['model.decoder.pattern=["ssru", "full"]']))
    assert 'model.decoder.pattern = ["ssru", "full"]' in text
    assert "decoder SSRU" in text
    assert "decoder self-attention" in text


WINDOWED = StackConfig(mixer=WindowConfig())


def test_the_engine_names_what_it_lacks() -> None:
    config = TransformerConfig(encoder=WINDOWED)
    assert refusal(config) == 'model.encoder.mixer.kind = "window"'


KINDS = [kind for kind in DEFAULTS if kind not in ("full", "linformer")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_translation_recipe_trains_with_it_and_its_run_loads(kind: str, tmp_path: Path) -> None:
    text = tmp_path / "pairs.tsv"
    text.write_text("the light\tdas Licht\nthe door is new\tdie Tür ist neu\n", encoding="utf-8")
    both = [] if kind in ("ssru", "mamba") else [f"model.encoder.mixer.kind={kind}"]
    recipe = load_recipe_of(
        Recipe,
        "tiny",
        [
            f'data.tsv=["{text}"]',
            "vocabulary.size=270",
            "model.d_model=16",
            "model.d_ff=16",
            "training.max_steps=3",
            "training.batch_tokens=60",
            "training.device=cpu",
            f"model.decoder.mixer.kind={kind}",
            *both,
        ],
    )
    train(recipe, tmp_path / "run", reporter=SilentReporter())
    folder = RunFolder.open(tmp_path / "run")
    model = load_recipe_of(Recipe, tmp_path / "run").model
    assert (model.encoder, model.decoder) == (recipe.model.encoder, recipe.model.decoder)
    assert folder.load_weights()
    for name in ("huggingface", "ctranslate2"):
        with pytest.raises(ModelError) as caught:
            export_run(tmp_path / "run", tmp_path / "out", name)
        assert f'model.decoder.mixer.kind = "{kind}"' in str(caught.value)
    assert len(regard.load(tmp_path / "run").translate(["the light", ""])) == 2
