"""Options and changes of a training that would do nothing, refused before it begins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regard.errors import RecipeError, RegardError
from regard.models.config import LayerConfig
from regard.recipes.keys import recipe_keys
from regard.recipes.load import recipe_class
from regard.recipes.names import resolve
from regard.recipes.recipe import AnyRecipe, Recipe

# What a model may have otherwise than the run that its first weights are from.
FREE: Final = frozenset({"dropout", "attention_dropout", "activation_dropout"})
# What the encoder or the decoder of an encoder-decoder has as the run that it comes from.
SHARED: Final = (
    *(key for key in LayerConfig.model_fields if key not in FREE),
    "embedding_scale",
    "embedding_norm",
)

_MOST_EPOCHS: Final = 1_000_000


def refuse_other_text(recipe: str | Path, data: Mapping[str, object]) -> None:
    """Refuse a text of which the recipe's family has no use.

    Args:
        recipe: a recipe's name, a TOML file, or a run folder.
        data: the values of the options of text, by the keys that they stand for.

    Raises:
        RegardError: one of them is no key of the family.
        RecipeError, RunFolderError: there is no such recipe.
    """
    given = [key for key, value in data.items() if value is not None]
    if not given:
        return
    kind = recipe_class(recipe)
    known = recipe_keys(kind)
    for key in given:
        if key not in known:
            family = kind.model_fields["family"].default
            wanted = "--source FILE --target FILE" if family == "seq2seq" else "--text FILE"
            raise RegardError(
                f'{recipe} is of the family "{family}", which has no use for it',
                where=f"--{key.removeprefix('data.').replace('_', '-')}",
                hint=f"Give its text with {wanted}.",
            )


def refuse_with_resume(**options: object) -> None:
    """Refuse options that say how a new run begins.

    Raises:
        RegardError: one has a value.
    """
    for name, value in options.items():
        if value:
            raise RegardError(
                "cannot go with --resume",
                where=f"--{name.replace('_', '-')}",
                hint="regard train RUN --resume goes on in the run folder RUN as it was.",
            )


def require_run_to_resume(name: str) -> None:
    """Refuse to go on with a recipe or a file, where there is no folder of its name.

    Raises:
        RegardError: says what to give.
    """
    if Path(name).is_dir() and name:
        return
    try:
        kind = resolve(name).kind
    except RecipeError:
        if name:  # there is nothing of that name, as going on with it tells
            return
        raise
    raise RegardError(
        f"this is a {'recipe' if kind == 'preset' else 'file'}, and --resume wants a run folder",
        where=name,
        hint="Give the folder that regard train wrote with --out: regard train RUN --resume",
    )


def require_epochs(epochs: float) -> None:
    """Refuse a length of training that is none.

    Raises:
        RegardError: it is not above 0, or too large to be meant.
    """
    if not 0 < epochs <= _MOST_EPOCHS:
        raise RegardError(
            f"expected a number that is more than 0 and at most {_MOST_EPOCHS:,}, got {epochs:g}",
            where="--epochs",
        )


def refuse_with_epochs(changed: Sequence[str]) -> None:
    """Refuse that the length of a training is said twice.

    Raises:
        RecipeError: the steps are among the changed keys.
    """
    if "training.max_steps" in changed:
        raise RecipeError(
            "says in steps what --epochs says in epochs",
            where="--set training.max_steps",
            hint="Give the one or the other.",
        )


def refuse_settled(recipe: AnyRecipe, changed: Sequence[str], *, init: str = "") -> None:
    """Refuse changes of what comes with the first weights.

    Args:
        recipe: the recipe with the changes.
        changed: the dotted keys that were changed.
        init: the run that the whole model starts from, where the recipe names none.

    Raises:
        RecipeError: one is of the vocabulary, or for parts from runs of the model's shape.
    """
    for key in changed:
        if option := _settled_by(recipe, key, init or recipe.init):
            what = "vocabulary comes" if key.startswith("vocabulary") else "shape comes"
            raise RecipeError(
                f"has no effect with {option}: the {what} from that run", where=f"--set {key}"
            )


def _settled_by(recipe: AnyRecipe, key: str, init: str) -> str:
    """The option that takes a key's value from a run; an empty string if none does."""
    table, _, name = key.partition(".")
    if init:
        return "--init" if table == "vocabulary" and name != "bpe_dropout" else ""
    if not isinstance(recipe, Recipe):
        return ""
    encoder = "--init-encoder" if recipe.init_encoder else ""
    decoder = "--init-decoder" if recipe.init_decoder else ""
    either = encoder or decoder
    if table == "model":
        name = name.partition(".")[0]
        only = {
            "encoder_layers": encoder,
            "encoder": encoder,
            "decoder_layers": decoder,
            "decoder": decoder,
            "output_bias": decoder,
        }
        return either if name in SHARED else only.get(name, "")
    if table == "vocabulary" and name not in ("joint", "bpe_dropout"):
        # Of two vocabularies, a part that starts anew has one of its own.
        return either if recipe.vocabulary.joint or (encoder and decoder) else ""
    return ""
