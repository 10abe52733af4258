"""The keys that a recipe may have: walked from the configs, so that no list goes stale."""

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regard.recipes.recipe import FAMILIES


def is_union(field: FieldInfo) -> bool:
    """Whether the field is a table of one of several kinds."""
    return field.discriminator is not None


def kinds(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """The configs of a union, by the `kind` that selects each."""
    return {member.model_fields["kind"].default: member for member in get_args(field.annotation)}


def table_of(field: FieldInfo) -> type[BaseModel] | None:
    """The config of a field that is a table of one kind, else None."""
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def recipe_keys(recipe: type[BaseModel] | None = None) -> list[str]:
    """Every dotted key that takes a value, those of every kind included, each once.

    They are those of one family's recipe, or of all.
    """
    recipes = [recipe] if recipe is not None else list(FAMILIES.values())
    return list(dict.fromkeys(key for each in recipes for key in _walk(each, "")))


def _walk(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        table = table_of(field)
        if table is not None:
            yield from _walk(table, f"{key}.")
        elif is_union(field):
            for member in kinds(field).values():
                yield from _walk(member, f"{key}.")
        else:
            yield key
