"""Reads a recipe: a preset, a TOML file or a run folder, with `--set` laid over it."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from regard.decoding.config import DecodingConfig, changed_settings, without_effect
from regard.errors import RecipeError
from regard.recipes.explain import explain, origin, where_together
from regard.recipes.keys import is_union, kinds
from regard.recipes.recipe import FAMILIES, AnyRecipe, DecoderRecipe, EncoderRecipe, Recipe
from regard.recipes.write import toml_value
from regard.weights.run_folder import RECIPE, RunFolder

_PRESETS = Path(__file__).parent / "presets"

_DEEPEST = 32
_LARGEST_INTEGER = 2**63 - 1  # TOML's
_SHORT = 40

_TOO_DEEP = f"arrays and tables are nested more than {_DEEPEST} deep"

Table = dict[str, Any]

OneRecipe = TypeVar("OneRecipe", Recipe, DecoderRecipe, EncoderRecipe)

# What a recipe of another family is good for, in words.
_USES = {
    "seq2seq": "It translates: regard translate, or regard.load in Python.",
    "decoder": "It goes on with a text: regard generate, or regard.load_language_model in Python.",
    "encoder": "It embeds, classifies and fills: regard embed, classify and fill, "
    "or regard.load_encoder in Python.",
}

# Names that stand for a preset.
_ALIASES = {"gpt": "gpt-mini", "bert": "bert-mini"}


def preset_names() -> list[str]:
    """The names of the recipes that come with the package, by family, smallest model first."""
    order = ["tiny", "demo", "small", "base", "big"]
    order += ["gpt-char", "gpt-mini", "llama-mini", "gpt2", "bert-mini", "bert-base"]
    found = {path.stem for path in _PRESETS.glob("*.toml")}
    return [name for name in order if name in found] + sorted(found - set(order))


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
    raw, source = _find(name_or_path)
    table = _parse(raw, source)
    changes: Table = {}
    changed = [key for override in overrides for key in _set(changes, override)]
    if only:
        _refuse_others(changed, only)
    # Whether a preset is right by itself is not asked: what is laid over it may complete it.
    for values in (table, changes):
        _refuse_unbounded(values, source, changed)
    recipe = _family_of(table, changes, source)
    merged = _merge(recipe, recipe().model_dump(), table)
    merged = _merge(recipe, merged, changes)
    if recipe is Recipe:
        _refuse_without_effect(changes, merged, changed)
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
    recipe = load_recipe(name_or_path, overrides, only=only)
    if isinstance(recipe, kind):
        return recipe
    wanted = kind.model_fields["family"].default
    raise RecipeError(
        f'this is of the family "{recipe.family}", and one of "{wanted}" is wanted',
        where=str(name_or_path),
        hint=_USES[recipe.family],
    )


def recipe_class(name_or_path: str | Path) -> type[AnyRecipe]:
    """The class of the recipe of a name, a file or a run folder; its values are not looked at.

    Raises:
        RecipeError: there is no such recipe, or no such family.
        RunFolderError: it is a folder, and no run folder or a damaged one.
    """
    raw, source = _find(name_or_path)
    return _family_of(_parse(raw, source), {}, source)


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


def _find(given: str | Path) -> tuple[bytes, str]:
    """The recipe's text, and what to call it in an error."""
    name_or_path = str(given)
    if isinstance(given, str):
        name_or_path = given = _ALIASES.get(given, given)
    if isinstance(given, str) and given in preset_names():
        return (_PRESETS / f"{name_or_path}.toml").read_bytes(), f"recipe {name_or_path}"
    path = Path(name_or_path)
    if name_or_path and path.is_dir():
        return RunFolder.open(path, model=False).read(RECIPE), str(path / RECIPE)
    if path.is_file():
        try:
            return path.read_bytes(), name_or_path
        except OSError as error:
            raise RecipeError(f"cannot be read: {error.strerror}", where=name_or_path) from None
    near = difflib.get_close_matches(name_or_path, preset_names(), n=1)
    known = f"Recipes: {', '.join(preset_names())}. Or give a TOML file or a run folder."
    raise RecipeError(
        "no such recipe, file or run folder",
        where=name_or_path or '""',
        hint=f"Did you mean {near[0]}? {known}" if near else known,
    )


def _parse(raw: bytes, source: str) -> Table:
    """The tables of a recipe's text."""
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecipeError("expected UTF-8 text", where=f"{source}, line {line}") from None
    except RecursionError:
        raise RecipeError(_TOO_DEEP, where=source) from None
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
        raise RecipeError(_TOO_DEEP, where=f"--set {parts[0]}")
    try:
        value = _value(text)
    except RecursionError:
        raise RecipeError(_TOO_DEEP, where=f"--set {key.strip()}") from None
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


def _refuse_unbounded(table: Table, source: str, changed: Sequence[str]) -> None:
    """Refuse what is nested without end, and whole numbers that TOML does not have."""
    waiting: list[tuple[tuple[str, ...], int, Any]] = [((), 0, table)]
    while waiting:
        path, depth, value = waiting.pop()
        if depth > _DEEPEST:
            raise RecipeError(_TOO_DEEP, where=origin(path[0], source, changed))
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


def _refuse_others(changed: Sequence[str], only: Sequence[str]) -> None:
    """Refuse a change outside the tables and keys of `only`."""
    for key in changed:
        if not any(f"{key}.".startswith(f"{allowed}.") for allowed in only):
            raise RecipeError(
                f"only {', '.join(only)} can be changed here",
                where=f"--set {key}",
                hint="The rest was settled when the run was trained.",
            )


def _refuse_without_effect(changes: Table, merged: Table, changed: Sequence[str]) -> None:
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


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML can hold
    """The value that `text` is in TOML, or else `text` itself."""
    text = text.strip()
    try:
        document = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return document["value"] if len(document) == 1 else text


def _merge(model: type[BaseModel], below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
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
                merged[key] = _merge(member, old, value)
            else:
                merged[key] = _merge(member, member().model_dump(), value)
        elif field.annotation is DecodingConfig:
            merged[key] = changed_settings(old, value)
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            merged[key] = _merge(field.annotation, old, value)
        else:
            merged[key] = value
    return merged
