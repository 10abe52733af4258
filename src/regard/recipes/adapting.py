"""Where a model is changed for a training that does not change all of it."""

from torch import nn

from regard.errors import RecipeError
from regard.nn.lora import adapt, saved_name
from regard.recipes.recipe import AnyRecipe
from regard.weights.adapted import adapter_notes
from regard.weights.run_folder import RunFolder


def require_start(recipe: AnyRecipe) -> None:
    """Refuse an adaptation of nothing.

    Raises:
        RecipeError: there are no trained weights to adapt.
    """
    if recipe.lora.rank and not recipe.init:
        raise RecipeError(
            f"lora.rank = {recipe.lora.rank} adapts a model that is trained already",
            where="lora.rank",
            hint="Name its run with --init RUN.",
        )


def prepare_adaptation(recipe: AnyRecipe, model: nn.Module, new: tuple[str, ...] = ()) -> None:
    """Freeze a model that has its first weights, as far as the recipe asks for that.

    Args:
        recipe: says how.
        model: the model.
        new: the parts that have no weights from the run that it starts from, which are trained.

    Raises:
        RecipeError: there are no trained weights to adapt.
    """
    require_start(recipe)
    if recipe.lora.rank:
        adapt(model, recipe.lora, seed=recipe.training.seed, trained=new)


def model_notes(recipe: AnyRecipe, model: nn.Module, folder: RunFolder) -> dict[str, str]:
    """What the model file must say of the weights that it does not hold."""
    if not recipe.lora.rank:
        return {}
    names = {saved_name(name) for name in model.state_dict()}
    return adapter_notes(RunFolder.open(recipe.init), folder.path, recipe.lora.alpha, names)
