"""The first weights and the vocabulary of a run, where they come from another run."""

from collections.abc import Mapping
from typing import cast

from torch import nn

from regard.counts import counted
from regard.errors import RecipeError, RunFolderError, command
from regard.recipes.load import OneRecipe, load_recipe
from regard.recipes.names import typed
from regard.recipes.recipe import AnyRecipe, EncoderRecipe, Recipe
from regard.recipes.refusals import FREE
from regard.shapes import Tensor
from regard.text.config import VocabularyConfig
from regard.weights.fit import misfits
from regard.weights.run_folder import RunFolder

_FREE = FREE | {"prediction_head", "classifier_pooling"}


def borrows(recipe: AnyRecipe) -> bool:
    """Whether the first weights and a vocabulary come from other runs."""
    if isinstance(recipe, Recipe) and (recipe.init_encoder or recipe.init_decoder):
        return True
    return bool(recipe.init)


def with_vocabulary_of(run: RunFolder, recipe: OneRecipe) -> OneRecipe:
    """The recipe with the vocabulary's settings of a run, so that it says what is used.

    Raises:
        RecipeError: the run is of another family, or its vocabulary has no merges to skip.
    """
    theirs = _recipe_of(run, recipe).vocabulary
    kept = with_dropout_of(recipe.vocabulary, theirs, where=f"--init {run.path}")
    return cast(OneRecipe, recipe.model_copy(update={"vocabulary": kept}))


def with_dropout_of(
    ours: VocabularyConfig, theirs: VocabularyConfig, *, where: str
) -> VocabularyConfig:
    """The settings of a run's vocabulary, with the chance of skipped merges that is asked for.

    Raises:
        RecipeError: it has no merges to skip; `where` says which run it is of.
    """
    if ours.bpe_dropout and theirs.kind != "bpe":
        raise RecipeError(
            f'the vocabulary there is of the kind "{theirs.kind}", and vocabulary.bpe_dropout = '
            f'{ours.bpe_dropout} needs "bpe"',
            where=where,
            hint="Add --set vocabulary.bpe_dropout=0.",
        )
    return theirs.model_copy(update={"bpe_dropout": ours.bpe_dropout})


def require_same_shape(run: RunFolder, recipe: AnyRecipe) -> AnyRecipe:
    """The recipe of a run to start from, whose model has the shape of the recipe's.

    Raises:
        RecipeError: the run is of another family, or its model is another.
        RunFolderError: its weights are packed for the engine.
    """
    run.require_plain()
    theirs = _recipe_of(run, recipe)
    shapes = theirs.model.resolved().model_dump(), recipe.model.resolved().model_dump()
    differing = [key for key in shapes[1] if key not in _FREE and shapes[0][key] != shapes[1][key]]
    if differing:
        key = differing[0]
        raise RecipeError(
            f"model.{key} = {shapes[1][key]} here, and {shapes[0][key]} in the run to start from"
            + (f" (and {counted(len(differing) - 1, 'more key')})" if differing[1:] else ""),
            where=f"--init {run.path}",
            hint="Train with the recipe of that run: "
            + command("train", typed(run.path), "--init", run.path, "--out", "RUN"),
        )
    return theirs


def start_from(run: RunFolder, recipe: AnyRecipe, model: nn.Module) -> tuple[str, ...]:
    """Give the model the weights of a run that has the same shape.

    A classifier may start from an encoder without one, and leaves alone what filled masked
    tokens; it keeps the classifier of a run with the same labels.

    Returns:
        The parts of the model that stay as they were made: heads that the run has not.

    Raises:
        RecipeError: the model is another.
        RunFolderError: the weights are not those of the run's recipe.
    """
    theirs = require_same_shape(run, recipe)
    weights: Mapping[str, Tensor] = run.load_weights()
    own: dict[str, Tensor] = {}
    if isinstance(recipe, EncoderRecipe) and isinstance(theirs, EncoderRecipe):
        heads = _new_heads(recipe, theirs)
        weights = {name: value for name, value in weights.items() if not name.startswith(heads)}
        own = {name: v for name, v in model.state_dict().items() if name.startswith(heads)}
    weights = {**weights, **own}
    for misfit in misfits(weights, model.state_dict()):
        raise RunFolderError(
            f"{misfit.name} is {misfit.found}, and the recipe wants {misfit.wanted}",
            where=str(run.path),
        )
    model.load_state_dict(weights)
    return tuple(dict.fromkeys(name.partition(".")[0] for name in own))


def _recipe_of(run: RunFolder, recipe: AnyRecipe) -> AnyRecipe:
    theirs = load_recipe(run.path)
    if theirs.family != recipe.family:
        raise RecipeError(
            f'the run is of the family "{theirs.family}", and the recipe of "{recipe.family}"',
            where=f"--init {run.path}",
        )
    return theirs


def _new_heads(recipe: EncoderRecipe, theirs: EncoderRecipe) -> tuple[str, ...]:
    """What the names of heads begin with that the run has not, or for something else."""
    heads = ["prediction.", "classifier."]
    if theirs.model.prediction_head and recipe.model.prediction_head:
        heads.remove("prediction.")
    if theirs.labels.names and theirs.labels.names == recipe.labels.names:
        heads.remove("classifier.")
    return tuple(heads)
