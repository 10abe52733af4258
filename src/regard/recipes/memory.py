"""Whether this machine can hold a model and train it, known from the recipe alone."""

from collections.abc import Iterator
from typing import Final

from regard.errors import ModelError, RecipeError
from regard.machine import most_memory
from regard.models.count import total_parameters
from regard.recipes.describe import parts_of
from regard.recipes.recipe import AnyRecipe
from regard.training.devices import choose_device

# The smallest vocabulary: a new one has no size before the text is read.
_SMALLEST: Final = 256
_WEIGHT = 4
_KINDS_WITH_TWO_AVERAGES = ("adam", "adamw")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def require_memory(recipe: AnyRecipe, *vocabularies: int) -> None:
    """Refuse a model whose weights, and what trains them, this machine can't hold.

    What a step computes comes on top, so a model that passes may be too large all the same.

    Args:
        recipe: what is to be trained.
        vocabularies: the ids of source and target, or of the one; left out, as few as can be.

    Raises:
        RecipeError: names the key that makes the model so large.
    """
    most = most_memory()
    if most is None:
        return
    sizes = vocabularies or (_SMALLEST,)
    needed = _bytes(recipe, sizes)
    if needed <= most:
        return
    smaller = {key: _bytes(other, sizes) for key, other in _with_defaults(recipe)}
    if vocabularies:
        smaller["vocabulary.size"] = _bytes(recipe, (_SMALLEST,))
    key = min(smaller, key=lambda name: smaller[name], default="model")
    raise RecipeError(
        f"the model needs {_shown(needed)}, this machine has {_shown(most)}",
        where=key if smaller.get(key, needed) < needed else "model",
        hint="Choose a smaller one: regard info counts the parameters of a recipe.",
    )


def _bytes(recipe: AnyRecipe, vocabularies: tuple[int, ...]) -> int:
    """The least that the weights and their training take."""
    source, target = vocabularies[0], vocabularies[-1]
    try:
        weights = total_parameters(parts_of(recipe, source, target))
    except ModelError:  # what building the model says better
        return 0
    each = _WEIGHT
    if choose_device(recipe.training.device).type == "cpu":
        each += _WEIGHT  # the gradient
        if recipe.training.optimizer.kind in _KINDS_WITH_TWO_AVERAGES:
            each += 2 * _WEIGHT
    if recipe.lora.rank:
        # The rest is frozen; each layer has at least one matrix as wide as the model.
        return _WEIGHT * weights + each * recipe.lora.rank * recipe.model.d_model
    return each * weights


def _with_defaults(recipe: AnyRecipe) -> Iterator[tuple[str, AnyRecipe]]:
    """The recipe with one size after the other as a recipe has it that says nothing."""
    for name, value in recipe.model:
        default = type(recipe.model).model_fields[name].default
        if isinstance(value, int) and not isinstance(value, bool):
            yield f"model.{name}", _changed(recipe, name, default)
    positions = recipe.model.positions
    for name, value in positions:
        if isinstance(value, int):
            default = type(positions).model_fields[name].default
            changed = positions.model_copy(update={name: default})
            yield f"model.positions.{name}", _changed(recipe, "positions", changed)
    if recipe.lora.rank:
        lora = recipe.lora.model_copy(update={"rank": 1})
        yield "lora.rank", recipe.model_copy(update={"lora": lora})


def _changed(recipe: AnyRecipe, name: str, value: object) -> AnyRecipe:
    model = recipe.model.model_copy(update={name: value})
    return recipe.model_copy(update={"model": model})


def _shown(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:,.1f} {unit}"
