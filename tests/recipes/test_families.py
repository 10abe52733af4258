"""Recipes of decoders and encoders: what each family takes, and what it refuses."""

from pathlib import Path

import pytest

from regard.errors import RecipeError
from regard.models.count import parameter_count
from regard.nn.config import RotaryConfig, YarnScalingConfig
from regard.recipes.keys import recipe_keys
from regard.recipes.load import load_recipe, load_recipe_of, recipe_class
from regard.recipes.names import preset_names
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe, Recipe
from regard.recipes.write import format_recipe

GOLDEN = Path(__file__).parents[1] / "golden" / "run"


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(name, overrides)
    return str(caught.value)


def test_a_recipe_without_a_family_is_an_encoder_decoder() -> None:
    assert "family" not in (GOLDEN / "recipe.toml").read_text(encoding="utf-8")
    assert isinstance(load_recipe(GOLDEN), Recipe)
    assert load_recipe("base").family == "seq2seq"


def test_short_names_stand_for_the_recipes_for_two_cores() -> None:
    assert load_recipe("gpt") == load_recipe("gpt-mini")
    assert load_recipe("bert") == load_recipe("bert-mini")


def test_every_preset_of_a_family_is_of_its_class() -> None:
    families = {name: type(load_recipe(name)) for name in preset_names()}
    assert {name for name, kind in families.items() if kind is DecoderRecipe} == {
        "gpt-char", "gpt-mini", "llama-mini", "gpt2",
    }  # fmt: skip
    assert {name for name, kind in families.items() if kind is EncoderRecipe} == {
        "bert-mini", "bert-base",
    }  # fmt: skip
    for name in preset_names():
        recipe = load_recipe(name)
        if not isinstance(recipe, Recipe):
            assert recipe.training.label_smoothing == 0
            assert recipe.training.best_metric == "loss"


def test_gpt2_and_bert_base_have_their_published_parameters() -> None:
    assert parameter_count(load_recipe("gpt2").model, 50_257) == 124_439_808
    bert = load_recipe("bert-base").model
    # With the pooler and the head that fills masked tokens, as pretrained.
    assert parameter_count(bert, 30_522) == 109_482_240 + 768 * 769 + 2 * 768 + 30_522


def test_what_a_decoders_file_leaves_out_has_the_decoders_default(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('family = "decoder"\n[model]\nnum_layers = 3\n', encoding="utf-8")
    recipe = load_recipe_of(DecoderRecipe, str(path))
    assert recipe == DecoderRecipe().model_copy(
        update={"model": DecoderRecipe().model.model_copy(update={"num_layers": 3})}
    )
    path.write_text(format_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(path)) == recipe


def test_tables_in_tables_of_a_kind_are_laid_over_one_another(tmp_path: Path) -> None:
    rotary = [
        "model.positions.kind=rotary",
        "model.positions.scaling.kind=yarn",
        "model.positions.scaling.factor=4",
    ]
    recipe = load_recipe("gpt-mini", rotary)
    assert recipe.model.positions == RotaryConfig(scaling=YarnScalingConfig(factor=4))
    path = tmp_path / "my.toml"
    path.write_text(format_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(path)) == recipe
    changed = load_recipe(str(path), ["model.positions.scaling.beta_fast=16"])
    assert changed.model.positions == RotaryConfig(
        scaling=YarnScalingConfig(factor=4, beta_fast=16)
    )
    theta = load_recipe(str(path), ["model.positions.theta=500"]).model.positions
    assert theta == RotaryConfig(theta=500, scaling=YarnScalingConfig(factor=4))
    other = load_recipe(str(path), ["model.positions.scaling.kind=linear"]).model.positions
    assert other.scaling.kind == "linear"
    assert other.scaling.factor == 2


REFUSALS = {
    "gpt-mini family=encoder": (
        '--set family: the recipe is of the family "decoder", which cannot be changed\n'
        "  Start from a recipe of that family: see regard recipe list."
    ),
    "base family=gpt": ('--set family: expected "seq2seq", "decoder" or "encoder", got "gpt"'),
    "gpt-mini model.num_layer=3": (
        "--set model.num_layer: unknown key; did you mean model.num_layers?"
    ),
    "gpt-mini model.encoder_layers=3": (
        '--set model.encoder_layers: this key is for family = "seq2seq", '
        'and this recipe is of "decoder"'
    ),
    "gpt-mini decoding.beam=3": (
        '--set decoding.beam: this key is for family = "seq2seq", and this recipe is of "decoder"'
    ),
    "base generation.top_k=3": (
        '--set generation.top_k: this key is for family = "decoder", '
        'and this recipe is of "seq2seq"'
    ),
    "gpt-mini training.best_metric=bleu": (
        '--set training.best_metric: training.best_metric = "bleu" is not measured here; '
        'choose "loss" or "perplexity"'
    ),
    "bert-mini training.best_metric=f1": (
        '--set training.best_metric: training.best_metric = "f1" is not measured here; '
        'choose "loss", "perplexity" or "accuracy"'
    ),
    'bert-mini labels.train=["a.tsv"] training.best_metric=perplexity': (
        "--set labels.train, training.best_metric: "
        'training.best_metric = "perplexity" is not measured here; '
        'choose "loss", "accuracy" or "f1"'
    ),
    "base training.best_metric=accuracy": (
        '--set training.best_metric: training.best_metric = "accuracy" is not measured here; '
        'choose "loss", "perplexity", "bleu" or "chrf"'
    ),
    'bert-mini labels.names=["a","b","a"]': (
        '--set labels.names: names has the label "a" 2 times; each has one class'
    ),
    "gpt-mini model.window_from=2": (
        "--set model.window_from: window_from = 2 says where a window begins, and window = 0 is "
        "none; set window too"
    ),
    "gpt-mini model.window=5 model.window_from=6": (
        "--set model.window, model.window_from: window_from = 6 leaves no layer of "
        "num_layers = 6 for window = 5"
    ),
    "gpt-mini data.max_tokens=513": (
        "--set data.max_tokens: model.positions.max_positions = 512 is too few for "
        "data.max_tokens = 513"
    ),
    "gpt-mini vocabulary.bpe_dropout=0.1": (
        "--set vocabulary.bpe_dropout: vocabulary.bpe_dropout = 0.1 is for recipes of "
        "translation only"
    ),
    'bert-mini model.prediction_head=false data.text=["a"]': (
        "--set model.prediction_head: model.prediction_head = false has nothing to fill masked "
        "tokens with; set it to true, or give labels.train"
    ),
    "gpt-mini model.positions.kind=rotary model.positions.scaling.kind=yarn "
    "model.positions.scaling.low_factor=2": (
        '--set model.positions.scaling.low_factor: unknown key for kind = "yarn"; it has kind, '
        "factor, original_positions, beta_fast, beta_slow, attention_factor, truncate"
    ),
    "gpt-mini model.positions.kind=rotary model.positions.scaling.kind=yar": (
        '--set model.positions.scaling.kind: expected "none", "linear", "ntk", "yarn" or '
        '"llama3", got "yar"; did you mean "yarn"?'
    ),
}


@pytest.mark.parametrize(("line", "text"), REFUSALS.items(), ids=[line[:40] for line in REFUSALS])
def test_what_a_family_does_not_take_is_refused_with(line: str, text: str) -> None:
    name, *overrides = line.split()
    assert refusal(name, *overrides) == text


def test_a_recipe_of_another_family_is_refused_where_one_is_wanted() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe_of(Recipe, "gpt-mini")
    assert str(caught.value) == (
        'gpt-mini: this is of the family "decoder", and one of "seq2seq" is wanted\n'
        "  It goes on with a text: regard generate, or regard.load_language_model in Python."
    )


def test_a_family_is_known_without_its_values(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('family = "encoder"\n[model]\nd_model = -3\n', encoding="utf-8")
    assert recipe_class(str(path)) is EncoderRecipe


def test_keys_are_those_of_one_family_or_of_all() -> None:
    each = [set(recipe_keys(kind)) for kind in (Recipe, DecoderRecipe, EncoderRecipe)]
    assert set(recipe_keys()) == set.union(*each)
    assert "model.positions.scaling.beta_fast" in each[1]
    assert "masking.rate" in each[2] - each[1]
