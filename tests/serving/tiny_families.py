"""Run folders of decoders and encoders, tiny and of random weights."""

from collections.abc import Sequence
from pathlib import Path

from serving.tiny_runs import TEXT

from regard.models.build import build_encoder, build_language_model
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe
from regard.recipes.write import format_recipe
from regard.shapes import Tensor
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import EOS_ID, Tokenizer
from regard.weights.run_folder import RunFolder

SHAPE = (
    "vocabulary.size=290",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_ff=32",
    "model.num_layers=1",
    "data.max_tokens=24",
    "training.device=cpu",
)
LEARNED = 'model.positions={kind="learned", max_positions=24}'
ROTARY = 'model.positions={kind="rotary"}'
LABELS = ("colour", "number", "place")


def make_language_run(
    path: Path,
    *,
    positions: str = LEARNED,
    changes: Sequence[str] = (),
    end: float = 1.4,
    seed: int = 1,
) -> Path:
    """A language model that goes on for some tokens, and then often ends, with `end` 0 never."""
    file = path.with_suffix(".toml")
    file.write_text('family = "decoder"\n')
    recipe = load_recipe_of(
        DecoderRecipe, file, [*SHAPE, positions, "generation.max_tokens=8", *changes]
    )
    vocabulary = Tokenizer.train(iter(TEXT), VocabularyConfig(size=290))
    model = build_language_model(recipe.model, vocabulary=vocabulary.size, seed=seed)
    weights = model.state_dict()
    weights["embedding.weight"] = 30 * weights["embedding.weight"]
    weights["embedding.weight"][EOS_ID] *= end
    _write(path, format_recipe(recipe), vocabulary, weights)
    return path


def make_encoder_run(
    path: Path,
    *,
    positions: str = LEARNED,
    changes: Sequence[str] = (),
    labels: Sequence[str] = LABELS,
    seed: int = 1,
) -> Path:
    """An encoder with a prediction head and, with labels, a classifier."""
    file = path.with_suffix(".toml")
    names = ", ".join(f'"{label}"' for label in labels)
    file.write_text(f'family = "encoder"\n[labels]\nnames = [{names}]\n')
    recipe = load_recipe_of(EncoderRecipe, file, [*SHAPE, positions, *changes])
    vocabulary = Tokenizer.train(iter(TEXT), VocabularyConfig(size=290), mask=True)
    model = build_encoder(recipe.model, vocabulary=vocabulary.size, seed=seed, classes=len(labels))
    weights = {name: 5 * weight for name, weight in model.state_dict().items()}
    _write(path, format_recipe(recipe), vocabulary, weights)
    return path


def _write(path: Path, recipe: str, vocabulary: Tokenizer, weights: dict[str, Tensor]) -> None:
    with RunFolder.create(path) as run:
        run.write_recipe(recipe)
        run.write_tokenizers(vocabulary.to_bytes())
        run.write_model(weights)
