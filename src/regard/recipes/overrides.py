"""Changes laid over a recipe's tables: `--set key=value`, and what of them is refused."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from regard.arguments import items_of, require
from regard.decoding.config import DecodingConfig, changed_settings, without_effect
from regard.errors import RecipeError, RegardError
from regard.recipes.changes import Change, option_of
from regard.recipes.explain import origin, where_together
from regard.recipes.keys import is_union, kinds
from regard.recipes.write import toml_value

_DEEPEST = 32
_LARGEST_INTEGER = 2**63 - 1  # TOML's
_SHORT = 40

TOO_DEEP = f"arrays and tables are nested more than {_DEEPEST} deep"

# What only a token that is drawn depends on.
_DRAWING = ("top_k", "top_p", "min_p", "seed")

Table = dict[str, Any]


def changes_of(overrides: Sequence[str]) -> tuple[Table, list[str]]:
    """The tables that `key=value` changes make together, and the dotted keys that they set.

    Raises:
        RecipeError: one is no `key=value`, or nested without end.
    """
    changes: Table = {}
    changed: list[str] = []
    for override in strings(overrides, "overrides", 'a list such as ["training.seed=2"]'):
        option = option_of(override)
        changed += [Change(key, option) for key in _set(changes, override)]
    return changes, changed


def strings(values: Sequence[str], name: str, wanted: str) -> list[str]:
    """The values, all of them strings; a single string is not taken letter by letter.

    Raises:
        RecipeError: they are not.
    """
    try:
        given = items_of(values, name, wanted)
        for place, value in enumerate(given):
            require(value, str, f"{name}[{place}]", "a string")
    except RegardError as error:
        raise RecipeError(error.problem, where=error.where) from None
    return given


def _set(changes: Table, override: str) -> list[str]:
    """Put one `key=value` into `changes`, and return the dotted keys that it gives a value.

    A table is laid over what is there, as each of its keys alone would be.
    """
    key, equals, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise RecipeError(
            f"expected key=value, got {override!r}",
            where="--set",
            hint="For example --set training.max_steps=1000.",
        )
    if len(parts) > _DEEPEST:
        raise RecipeError(TOO_DEEP, where=f"--set {parts[0]}")
    try:
        value = _value(text)
    except RecursionError:
        raise RecipeError(TOO_DEEP, where=f"--set {key.strip()}") from None
    for part in reversed(parts):
        value = {part: value}
    return list(_lay(changes, value))


def _lay(below: Table, above: Table) -> Iterator[str]:
    """Put `above` into `below`, table by table, and yield the dotted keys of its values."""
    waiting: list[tuple[tuple[str, ...], Table, Table]] = [((), below, above)]
    while waiting:
        path, below, above = waiting.pop()
        for name, value in above.items():
            if isinstance(value, dict):
                if not isinstance(below.get(name), dict):
                    below[name] = {}
                if not value:
                    yield ".".join((*path, name))
                waiting.append(((*path, name), below[name], value))
            else:
                below[name] = value
                yield ".".join((*path, name))


def refuse_unbounded(table: Table, source: str, changed: Sequence[str]) -> None:
    """Refuse what is nested without end, and whole numbers that TOML does not have."""
    waiting: list[tuple[tuple[str, ...], int, Any]] = [((), 0, table)]
    while waiting:
        path, depth, value = waiting.pop()
        if depth > _DEEPEST:
            raise RecipeError(TOO_DEEP, where=origin(path[0], source, changed))
        if isinstance(value, dict):
            waiting += [((*path, name), depth + 1, item) for name, item in value.items()]
        elif isinstance(value, list):
            waiting += [(path, depth + 1, item) for item in value]
        elif isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            few = abs(value) < 10**_SHORT
            raise RecipeError(
                f"a whole number is at most {_LARGEST_INTEGER:,}, "
                f"got {value if few else f'one of {value.bit_length():,} bits'}",
                where=origin(".".join(path), source, changed),
            )


def refuse_others(changed: Sequence[str], only: Sequence[str]) -> None:
    """Refuse a change outside the tables and keys of `only`."""
    for key in changed:
        if not any(f"{key}.".startswith(f"{allowed}.") for allowed in only):
            raise RecipeError(
                f"only {', '.join(only)} can be changed here",
                where=f"--set {key}",
                hint="The rest was settled when the run was trained.",
            )


def refuse_without_effect(changes: Table, merged: Table, changed: Sequence[str]) -> None:
    """Refuse a change of a decoding setting, to its default too, that the method overlooks."""
    settings, asked = merged["decoding"], changes.get("decoding")
    if not isinstance(settings, dict) or not isinstance(asked, dict):
        return
    method = settings["method"]
    if method not in get_args(DecodingConfig.model_fields["method"].annotation):
        return
    if problem := without_effect(method, asked):
        hint = "Sampling is asked for with --set decoding.method=sample (translate: --sample)."
        if method == "sample":
            hint = "Sampling has no use for it: leave out the one or the other."
        raise RecipeError(
            problem, where=where_together("decoding", problem, "", changed), hint=hint
        )


def refuse_without_drawing(changes: Table, merged: Table, changed: Sequence[str]) -> None:
    """Refuse a change of how tokens are drawn where the likeliest is always taken."""
    settings, asked = merged["generation"], changes.get("generation")
    if not isinstance(settings, dict) or not isinstance(asked, dict):
        return
    found = [f"{name} = {toml_value(asked[name])}" for name in _DRAWING if name in asked]
    if found and settings.get("temperature") == 0:
        verb = "has" if len(found) == 1 else "have"
        problem = f"{' and '.join(found)} {verb} no effect with temperature = 0"
        raise RecipeError(
            problem,
            where=where_together("generation", problem, "", changed),
            hint="The likeliest token is always taken: leave out the one or the other.",
        )


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML can hold
    """The value that `text` is in TOML, or else `text` itself."""
    text = text.strip()
    try:
        document = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return document["value"] if len(document) == 1 else text


def merge(model: type[BaseModel], below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """`below` with `above` laid over it, table by table.

    In a union of kinds, a kind other than the one below starts from its own defaults.
    """
    merged = dict(below)
    for key, value in above.items():
        field = model.model_fields.get(key)
        old = merged.get(key)
        if field is None or not isinstance(value, dict) or not isinstance(old, dict):
            merged[key] = value
        elif is_union(field):
            kind = value.get("kind", old.get("kind"))
            member = kinds(field).get(kind) if isinstance(kind, str) else None
            if member is None:
                merged[key] = {**old, **value} if kind == old.get("kind") else value
            elif kind == old.get("kind"):
                merged[key] = merge(member, old, value)
            else:
                merged[key] = merge(member, member().model_dump(), value)
        elif field.annotation is DecodingConfig:
            merged[key] = changed_settings(old, value)
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            merged[key] = merge(field.annotation, old, value)
        else:
            merged[key] = value
    return merged
