"""The first weights and the vocabulary of a run, where they come from another run."""

from collections.abc import Mapping
from typing import TypeVar

from torch import nn

from regard.errors import RecipeError, RunFolderError, command
from regard.recipes.load import load_recipe
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EncoderRecipe, Recipe
from regard.shapes import Tensor
from regard.weights.fit import misfits
from regard.weights.run_folder import RunFolder

OneRecipe = TypeVar("OneRecipe", Recipe, DecoderRecipe, EncoderRecipe)

_FREE = {"dropout", "attention_dropout", "activation_dropout", "prediction_head"}


def borrows(recipe: AnyRecipe) -> bool:
    """Whether the first weights and a vocabulary come from other runs."""
    if isinstance(recipe, Recipe) and (recipe.init_encoder or recipe.init_decoder):
        return True
    return bool(recipe.init)


def with_vocabulary_of(run: RunFolder, recipe: OneRecipe) -> OneRecipe:
    """The recipe with the vocabulary's settings of a run, so that it says what is used.

    Raises:
        RecipeError: the run is of another family.
    """
    theirs = _recipe_of(run, recipe).vocabulary
    kept = {"bpe_dropout": recipe.vocabulary.bpe_dropout if theirs.kind == "bpe" else 0.0}
    return recipe.model_copy(update={"vocabulary": theirs.model_copy(update=kept)})


def start_from(run: RunFolder, recipe: AnyRecipe, model: nn.Module) -> None:
    """Give the model the weights of a run that has the same shape.

    A classifier may start from an encoder without one, and leaves alone what filled masked
    tokens; it keeps the classifier of a run with the same labels.

    Raises:
        RecipeError: the model is another.
        RunFolderError: the weights are not those of the run's recipe.
    """
    theirs = _recipe_of(run, recipe)
    shapes = theirs.model.resolved().model_dump(), recipe.model.resolved().model_dump()
    differing = [key for key in shapes[1] if key not in _FREE and shapes[0][key] != shapes[1][key]]
    if differing:
        key = differing[0]
        raise RecipeError(
            f"model.{key} = {shapes[1][key]} here, and {shapes[0][key]} in the run to start from"
            + (f" (and {len(differing) - 1} more keys differ)" if len(differing) > 1 else ""),
            where=f"--init {run.path}",
            hint="Train with the recipe of that run: "
            + command("train", run.path, "--init", run.path, "--out", "RUN"),
        )
    weights: Mapping[str, Tensor] = run.load_weights()
    if isinstance(recipe, EncoderRecipe) and isinstance(theirs, EncoderRecipe):
        weights = _with_heads(weights, recipe, theirs, model)
    for misfit in misfits(weights, model.state_dict()):
        raise RunFolderError(
            f"{misfit.name} is {misfit.found}, and the recipe wants {misfit.wanted}",
            where=str(run.path),
        )
    model.load_state_dict(dict(weights))


def _recipe_of(run: RunFolder, recipe: AnyRecipe) -> AnyRecipe:
    theirs = load_recipe(run.path)
    if theirs.family != recipe.family:
        raise RecipeError(
            f'the run is of the family "{theirs.family}", and the recipe of "{recipe.family}"',
            where=f"--init {run.path}",
        )
    return theirs


def _with_heads(
    weights: Mapping[str, Tensor],
    recipe: EncoderRecipe,
    theirs: EncoderRecipe,
    model: nn.Module,
) -> dict[str, Tensor]:
    """The weights with the model's own heads where the run's are none or for something else."""
    heads = ["prediction.", "classifier."]
    if theirs.model.prediction_head and recipe.model.prediction_head:
        heads.remove("prediction.")
    if theirs.labels.names and theirs.labels.names == recipe.labels.names:
        heads.remove("classifier.")
    ours: dict[str, Tensor] = model.state_dict()
    kept = {name: value for name, value in weights.items() if not name.startswith(tuple(heads))}
    own = {name: value for name, value in ours.items() if name.startswith(tuple(heads))}
    return {**kept, **own}
