"""Reads a recipe: a preset, a TOML file or a run folder, with `--set` laid over it."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, cast

from pydantic import ValidationError

from regard.errors import RecipeError
from regard.recipes.explain import explain
from regard.recipes.names import resolve
from regard.recipes.overrides import (
    TOO_DEEP,
    Table,
    changes_of,
    merge,
    refuse_others,
    refuse_unbounded,
    refuse_without_drawing,
    refuse_without_effect,
    strings,
)
from regard.recipes.recipe import FAMILIES, AnyRecipe, DecoderRecipe, Recipe
from regard.recipes.write import toml_value

OneRecipe = TypeVar("OneRecipe", bound=AnyRecipe)

# What a recipe of another family is good for, in words.
_USES = {
    "seq2seq": "It translates: regard translate, or regard.load in Python.",
    "decoder": "It goes on with a text: regard generate, or regard.load_language_model in Python.",
    "encoder": "It embeds, classifies and fills: regard embed, classify and fill, "
    "or regard.load_encoder in Python.",
}


def load_recipe(
    name_or_path: str | Path, overrides: Sequence[str] = (), *, only: Sequence[str] = ()
) -> AnyRecipe:
    """The recipe of a preset's name, of a TOML file, or of a run folder, with changes.

    A preset's name wins over a file of the same name; write `./base`, or give a `Path`, for the
    file. What a recipe leaves out has the default of its `family`, which is that of an
    encoder-decoder, the paper's `base`, where it names none. Paths in it are relative to the
    current folder, as on the command line.

    Args:
        name_or_path: a preset's name, a TOML file, or a run folder.
        overrides: `key=value` with a dotted key; the value is TOML, or else a plain string.
            A table whose `kind` is set to another starts from that kind's defaults, and so does
            what only one `decoding.method` looks at when that is set to another. Of two values
            for one key the later wins; of two tables, key by key.
        only: the tables or keys that `overrides` may change, such as `decoding`; all if empty.

    Raises:
        RecipeError: there is no such recipe, or it has an unknown key, a wrong type or an
            impossible combination, one line a mistake; or `only` forbids a change, or a change
            of `decoding` has no effect, or one is of the family.
        RunFolderError: it is a folder, and no run folder or a damaged one.
    """
    named = resolve(name_or_path)
    source = named.source
    table = _parse(named.read(), source)
    changes, changed = changes_of(overrides)
    only = strings(only, "only", 'a list such as ["decoding"]')
    if only:
        refuse_others(changed, only)
    # Whether a preset is right by itself is not asked: what is laid over it may complete it.
    for values in (table, changes):
        refuse_unbounded(values, source, changed)
    recipe = _family_of(table, changes, source)
    return _laid_over(recipe, merge(recipe, recipe().model_dump(), table), overrides, source)


def change_recipe(recipe: OneRecipe, overrides: Sequence[str], *, source: str) -> OneRecipe:
    """A recipe with `key=value` changes laid over it, as `load_recipe` does it.

    Raises:
        RecipeError: a change is wrong; `source` is what the error calls the recipe.
    """
    changes, changed = changes_of(overrides)
    refuse_unbounded(changes, source, changed)
    _family_of({"family": recipe.family}, changes, source)
    return cast(
        OneRecipe, _laid_over(FAMILIES[recipe.family], recipe.model_dump(), overrides, source)
    )


def _laid_over(
    recipe: type[AnyRecipe], below: Table, overrides: Sequence[str], source: str
) -> AnyRecipe:
    """The recipe of these values with the changes laid over them."""
    changes, changed = changes_of(overrides)
    merged = merge(recipe, below, changes)
    if recipe is Recipe:
        refuse_without_effect(changes, merged, changed)
    if recipe is DecoderRecipe:
        refuse_without_drawing(changes, merged, changed)
    try:
        return recipe.model_validate(merged)
    except ValidationError as error:
        raise explain(error, recipe, source=source, changed=changed) from None


def load_recipe_of(
    kind: type[OneRecipe],
    name_or_path: str | Path,
    overrides: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
) -> OneRecipe:
    """As `load_recipe`, of one family alone: `load_recipe_of(DecoderRecipe, "runs/gpt")`.

    Raises:
        As `load_recipe`; and RecipeError if it is of another family.
    """
    found = recipe_class(name_or_path)
    if found is not kind:
        family, wanted = (each.model_fields["family"].default for each in (found, kind))
        raise RecipeError(
            f'this is of the family "{family}", and one of "{wanted}" is wanted',
            where=str(name_or_path),
            hint=_USES[family],
        )
    return cast(OneRecipe, load_recipe(name_or_path, overrides, only=only))


def recipe_class(name_or_path: str | Path) -> type[AnyRecipe]:
    """The class of the recipe of a name, a file or a run folder; its values are not looked at.

    Raises:
        RecipeError: there is no such recipe, or no such family.
        RunFolderError: it is a folder, and no run folder or a damaged one.
    """
    named = resolve(name_or_path)
    return _family_of(_parse(named.read(), named.source), {}, named.source)


def _family_of(table: Table, changes: Table, source: str) -> type[AnyRecipe]:
    """The class of a recipe, by its `family`."""
    family = table.get("family", "seq2seq")
    for name, where in ((family, f"{source}: family"), (changes.get("family"), "--set family")):
        if name is not None and name not in list(FAMILIES):
            known = [f'"{known}"' for known in FAMILIES]
            raise RecipeError(
                f"expected {', '.join(known[:-1])} or {known[-1]}, got {toml_value(name)}",
                where=where,
            )
    if changes.get("family", family) != family:
        raise RecipeError(
            f'the recipe is of the family "{family}", which cannot be changed',
            where="--set family",
            hint="Start from a recipe of that family: see regard recipe list.",
        )
    return FAMILIES[family]


def _parse(raw: bytes, source: str) -> Table:
    """The tables of a recipe's text."""
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecipeError("expected UTF-8 text", where=f"{source}, line {line}") from None
    except RecursionError:
        raise RecipeError(TOO_DEEP, where=source) from None
    except ValueError as error:
        problem, place = _toml_problem(error, raw)
        raise RecipeError(
            f"not valid TOML: {problem}",
            where=f"{source}{place}",
            hint="A line is key = value, a text value is in quotes, a table starts with [name].",
        ) from None


def _toml_problem(error: ValueError, raw: bytes) -> tuple[str, str]:
    """tomllib's message without its place, and the place as `, line N` where it gives one."""
    if not isinstance(error, tomllib.TOMLDecodeError):  # int() refuses thousands of digits
        return "a number has more digits than can be read", ""
    message = str(error)
    problem, said, place = message.rstrip(")").rpartition(" (at ")
    if not said:
        return message, ""
    if place.startswith("line "):
        return problem, f", {place.split(',', 1)[0]}"
    # "at end of document"
    return problem, ", line " + str(raw.rstrip().count(b"\n") + 1)
