"""Says in one line a mistake what is wrong with a recipe: where, what was expected, what came."""

import difflib
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from regard.errors import RecipeError
from regard.recipes.changes import option_of, shown_together
from regard.recipes.keys import is_union, kinds, recipe_keys, table_of
from regard.recipes.recipe import FAMILIES, AnyRecipe
from regard.recipes.write import toml_value

_LONGEST_VALUE = 60


def explain(
    error: ValidationError, recipe: type[AnyRecipe], *, source: str, changed: Sequence[str]
) -> RecipeError:
    """One error for all that pydantic found.

    Args:
        error: what pydantic raised for a whole recipe.
        recipe: the class of that recipe.
        source: the file or preset that was read.
        changed: the dotted keys that `--set` laid over it.
    """
    mistakes = {_mistake(detail, recipe, source, changed): None for detail in error.errors()}
    if len(mistakes) == 1:
        ((where, problem),) = mistakes
        return RecipeError(problem, where=where)
    return RecipeError("\n".join(f"{where}: {problem}" for where, problem in mistakes))


def _mistake(
    detail: ErrorDetails, recipe: type[AnyRecipe], source: str, changed: Sequence[str]
) -> tuple[str, str]:
    """Where one mistake is, and what it is."""
    key, field, model, kind = _locate(detail["loc"], recipe)
    if detail["type"] == "extra_forbidden":
        problem = _unknown_key(key, recipe, model, kind)
    elif detail["type"] == "value_error":
        problem = str(detail["ctx"]["error"])
    elif field is not None and detail["type"] == "union_tag_invalid":
        expected = _one_of(list(kinds(field)))
        given = detail["input"]["kind"]
        problem = f"expected {expected}, got {_shown(given)}{_near(given, list(kinds(field)))}"
        key = f"{key}.kind"
    else:
        problem = _wrong_value(key, field, detail["input"])
    if detail["type"] == "value_error":
        return where_together(key, problem, source, changed), problem
    return origin(key, source, changed), problem


def _locate(
    loc: tuple[int | str, ...], recipe: type[AnyRecipe]
) -> tuple[str, FieldInfo | None, type[BaseModel], str | None]:
    """The dotted key of a place, its field, and the config (and its kind) that it is in.

    Pydantic's places hold the kind of a union between two keys, and end with positions in a
    list; neither is part of a key.
    """
    model: type[BaseModel] = recipe
    field: FieldInfo | None = None
    kind: str | None = None
    names: list[str] = []
    parts = [str(part) for part in loc if isinstance(part, str)]
    while parts:
        name = parts.pop(0)
        names.append(name)
        field = model.model_fields.get(name)
        if field is None:
            break
        table = table_of(field)
        if is_union(field) and parts:
            kind = parts.pop(0)
            model = kinds(field)[kind]
        elif table is not None and parts:
            model, kind = table, None
    return ".".join(names), field, model, kind


def origin(key: str, source: str, changed: Sequence[str]) -> str:
    """The option that a value comes from, or else the file and the key."""
    # Its own option comes before those of what it holds, or of what holds it.
    for option in sorted(changed, key=lambda option: option != key):
        if option == key or key.startswith(f"{option}."):
            return option_of(option) or f"--set {key}"
        if option.startswith(f"{key}."):
            return f"--set {option}"
    return f"{source}: {key}"


def where_together(key: str, problem: str, source: str, changed: Sequence[str]) -> str:
    """The options that a combination comes from, or else the file and the table."""
    options = [
        option
        for option in dict.fromkeys(changed)
        if f"{option}.".startswith(f"{key}." if key else "")
        and option.rpartition(".")[2] in problem
    ]
    if options:
        return shown_together(options)
    return f"{source}: {key}" if key else source


def _unknown_key(
    key: str, recipe: type[AnyRecipe], model: type[BaseModel], kind: str | None
) -> str:
    """What to say of a key that its table does not have."""
    table, _, name = key.rpartition(".")
    prefix = f"{table}." if table else ""
    own = list(model.model_fields)
    keys = recipe_keys(recipe)
    elsewhere = [known for known in keys if known.rpartition(".")[2] == name]
    if kind is not None and key in elsewhere:
        return f'unknown key for kind = "{kind}"; it has {", ".join(own)}'
    if theirs := [
        family
        for family, other in FAMILIES.items()
        if any(f"{known}.".startswith(f"{key}.") for known in recipe_keys(other))
    ]:
        this = recipe.model_fields["family"].default
        return f'this key is for family = {_one_of(theirs)}, and this recipe is of "{this}"'
    if elsewhere:
        return f"unknown key; did you mean {' or '.join(elsewhere)}?"
    near = [f"{prefix}{match}" for match in difflib.get_close_matches(name, own, n=1)]
    if not near:
        leaves = {known.rpartition(".")[2]: known for known in reversed(keys)}
        near = [leaves[match] for match in difflib.get_close_matches(name, leaves, n=1)]
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; expected one of {', '.join(own)}"


def _wrong_value(key: str, field: FieldInfo | None, given: object) -> str:
    """What to say of a value that its key does not take."""
    if field is None:
        return f"expected a table, got {_shown(given)}"
    if is_union(field):
        names = list(kinds(field))
        problem = f"expected a table with kind = {_one_of(names)}, got {_shown(given)}"
        return f'{problem}; did you mean {key}.kind = "{given}"?' if given in names else problem
    return f"expected {expected_value(field)}, got {_shown(given)}{_near(given, _choices(field))}"


def expected_value(field: FieldInfo) -> str:
    """In words, what a recipe's key takes: its type, choices and bounds."""
    if table_of(field) is not None:
        return "a table"
    if is_union(field):
        return f"a table with kind = {_one_of(list(kinds(field)))}"
    if choices := _choices(field):
        return _one_of(choices)
    annotation = field.annotation
    members = [member for member in get_args(annotation) if member is not type(None)]
    if get_origin(annotation) is tuple:
        if get_origin(members[0]) is Literal:
            return f"a list of {_one_of(get_args(members[0]))}"
        return "a list of numbers" if members[0] is float else "a list of strings"
    plain = annotation if isinstance(annotation, type) else members[0]
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return f"{words[plain]}{_bounds(field)}"


def _choices(field: FieldInfo) -> list[str]:
    """The strings that a field is confined to; none if it is not."""
    return list(get_args(field.annotation)) if get_origin(field.annotation) is Literal else []


def _bounds(field: FieldInfo) -> str:
    """The bounds of a number, in words."""
    words = []
    for bound in field.metadata:
        match bound:
            case Ge(ge=limit):
                words.append(f"at least {limit}")
            case Gt(gt=limit):
                words.append(f"more than {limit}")
            case Le(le=limit):
                words.append(f"at most {limit}")
            case Lt(lt=limit):
                words.append(f"less than {limit}")
    return f" that is {' and '.join(words)}" if words else ""


def _one_of(names: Sequence[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _near(given: object, names: Sequence[str]) -> str:
    """A question after the nearest name, or nothing."""
    near = difflib.get_close_matches(given, names, n=1) if isinstance(given, str) else []
    return f'; did you mean "{near[0]}"?' if near else ""


def _shown(given: Any) -> str:  # noqa: ANN401 - whatever TOML can hold
    """A value as it stands in TOML, cut when it is long; tables by their name."""
    if isinstance(given, dict):
        return "a table"
    if isinstance(given, list) and _has_table(given):
        return "an array of tables"
    text = toml_value(given)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _has_table(items: list[Any]) -> bool:
    """Whether a table is in the array, or in an array in it."""
    return any(
        isinstance(item, dict) or (isinstance(item, list) and _has_table(item)) for item in items
    )
