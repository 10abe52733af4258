"""Puts the models of run folders together, for PyTorch."""

from collections.abc import Mapping
from pathlib import Path

from torch import nn

from regard.errors import RunFolderError
from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.recipes.recipe import DecoderRecipe, EncoderRecipe, Recipe
from regard.serving.place import Place
from regard.shapes import Tensor
from regard.text.corpus import Tokenizers
from regard.weights.fit import misfits
from regard.weights.run_folder import RunFolder

_SHOWN = 3
_COPY_AGAIN = "Copy the folder again from where it came from, whole."


def translation_model(
    folder: RunFolder, recipe: Recipe, tokenizers: Tokenizers, place: Place
) -> Transformer:
    """The encoder-decoder of a run, on its device and in eval mode, as are the others' here.

    Raises:
        RunFolderError: the weights are damaged, or do not fit the recipe.
    """
    device = place.prepare()
    model = build_model(
        recipe.model,
        source_vocabulary=tokenizers.source.size,
        target_vocabulary=tokenizers.target.size,
        seed=recipe.training.seed,
    )
    _fill(model, folder)
    return model.to(device).eval()


def language_model(
    folder: RunFolder, recipe: DecoderRecipe, vocabulary: int, place: Place
) -> LanguageModel:
    """The decoder of a run.

    Raises:
        As `translation_model`.
    """
    device = place.prepare()
    model = build_language_model(recipe.model, vocabulary=vocabulary, seed=recipe.training.seed)
    _fill(model, folder)
    return model.to(device).eval()


def text_encoder(
    folder: RunFolder, recipe: EncoderRecipe, vocabulary: int, place: Place
) -> TextEncoder:
    """The encoder of a run.

    Raises:
        As `translation_model`.
    """
    device = place.prepare()
    model = build_encoder(
        recipe.model,
        vocabulary=vocabulary,
        seed=recipe.training.seed,
        classes=len(recipe.labels.names),
    )
    _fill(model, folder)
    return model.to(device).eval()


def _fill(model: nn.Module, folder: RunFolder) -> None:
    weights = folder.load_weights()
    _require_shapes(folder.path, model.state_dict(), weights)
    model.load_state_dict(weights)


def _require_shapes(
    path: Path, wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> None:
    differing = [
        f"{misfit.name} is {misfit.found}, and the recipe wants {misfit.wanted}"
        for misfit in misfits(weights, wanted)
    ]
    if differing:
        more = len(differing) - _SHOWN
        raise RunFolderError(
            "the weights do not fit the recipe: "
            + "; ".join(differing[:_SHOWN])
            + (f"; and {more} more" if more > 0 else ""),
            where=str(path),
            hint=_COPY_AGAIN,
        )
