"""Run folders with a tiny model of random weights, which are made in no time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.models.build import build_model
from regard.recipes.load import load_recipe
from regard.recipes.write import format_recipe
from regard.shapes import Tensor
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary
from regard.weights.run_folder import RunFolder

TEXT = (
    "the light in the kitchen is on",
    "turn off the light, please!",
    "das Licht in der Küche ist an",
    "mach bitte das Licht aus! Danke; und 123 mehr.",
)
SHAPE = (
    "vocabulary.size=280",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_ff=32",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "data.max_tokens=24",
    "decoding.max_extra_tokens=3",
    "training.device=cpu",
)


def tokenizer(size: int = 280, text: Sequence[str] = TEXT) -> Tokenizer:
    return Tokenizer.train(iter(text), VocabularyConfig(size=size))


def make_run(
    path: Path,
    *,
    seed: int = 1,
    changes: Sequence[str] = (),
    source: Vocabulary | None = None,
    target: Vocabulary | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a run; `target` only if it has a vocabulary of its own."""
    recipe = load_recipe("tiny", [*SHAPE, *changes])
    source = source or tokenizer()
    model = build_model(
        recipe.model,
        source_vocabulary=source.size,
        target_vocabulary=(target or source).size,
        seed=seed,
    )
    with RunFolder.create(path) as run:
        run.write_recipe(format_recipe(recipe))
        run.write_tokenizers(source.to_bytes(), target and target.to_bytes())
        run.write_model(weights if weights is not None else model.state_dict())
    return path
