"""Writes a recipe out as TOML, every value in it, so that reading it back gives the same recipe."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from regard.arguments import require
from regard.recipes.recipe import FAMILIES, AnyRecipe


def format_recipe(recipe: AnyRecipe) -> str:
    """The whole recipe as TOML text, each table under what its config says of itself.

    Raises:
        RegardError: it is no recipe.
    """
    require_recipe(recipe)
    return "\n".join(_lines(recipe, "")) + "\n"


def require_recipe(recipe: object) -> None:
    """Refuse what is no recipe of any family, such as the name of one.

    Raises:
        RegardError: says what reads one.
    """
    hint = 'regard.load_recipe("base") reads one.'
    require(recipe, tuple(FAMILIES.values()), "recipe", "a Recipe", hint=hint)


def _lines(config: BaseModel, table: str) -> Iterator[str]:
    """The values of one table, then its tables."""
    if table:
        yield ""
        for line in inspect.getdoc(type(config)).splitlines():  # type: ignore[union-attr]
            yield f"# {line}".rstrip()
        yield f"[{table}]"
    tables = []
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            tables.append((f"{table}.{name}" if table else name, value))
        elif value is None:
            yield f"# {name} is left out"
        else:
            yield f"{name} = {toml_value(value)}"
    for name, value in tables:
        yield from _lines(value, name)


def toml_value(value: Any) -> str:  # noqa: ANN401 - whatever TOML can hold
    """A value in TOML, on one line; what TOML cannot hold as Python shows it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # JSON's escapes are all TOML escapes; the delete character is one that only TOML asks.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case _:
            return str(value)
