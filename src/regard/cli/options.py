"""What several commands share: options, how they complete, and how they become recipe keys."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.completion import CompletionContext
from cyclopts.types import PositiveInt

DATA = Group("Data", sort_key=1)
SEARCH = Group("Search", sort_key=2)
FILES = Group("Files", sort_key=3)


def _complete_recipe(context: CompletionContext) -> list[str]:
    """The recipes that there are, and the files and folders that the word may become."""
    from regard.recipes.names import preset_names

    head, slash, tail = context.incomplete.rpartition("/")
    folder = Path(head + slash or ".")
    paths = sorted(folder.glob(f"{glob.escape(tail)}*")) if folder.is_dir() else []
    names = [f"{head}{slash}{path.name}{'/' * path.is_dir()}" for path in paths]
    return preset_names() + [name for name in names if tail or not name.startswith(".")]


def _complete_key(_context: CompletionContext) -> list[str]:
    from regard.recipes.keys import recipe_keys

    return [f"{key}=" for key in recipe_keys()]


def _changes(example: str, table: str = "") -> Parameter:
    """The option --set, for all keys of a recipe or those of one table."""

    def complete(context: CompletionContext) -> list[str]:
        return [key for key in _complete_key(context) if key.startswith(table)]

    what = f"{table.rstrip('.')} key" if table else "key of the recipe"
    return Parameter(
        name="--set",
        completer=complete,
        metavar="KEY=VALUE",
        help=f"Change a {what}, such as {example}. May be repeated.",
    )


Name = Annotated[str, Parameter(completer=_complete_recipe)]
Set = Annotated[tuple[str, ...], _changes("training.max_steps=100")]
SetDecoding = Annotated[tuple[str, ...], _changes("decoding.coverage=0.2", "decoding.")]
SetGeneration = Annotated[tuple[str, ...], _changes("generation.top_k=40", "generation.")]
Files = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, group=DATA)]
DataFile = Annotated[Path | None, Parameter(group=DATA)]
Ensemble = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, group=FILES)]
Search = Parameter(group=SEARCH)
File = Annotated[Path | None, Parameter(group=FILES)]
Threads = Annotated[
    PositiveInt | None, Parameter(help="CPU threads to use. Default: all cores usable.")
]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON.")]


def overrides_of(options: dict[str, object], changes: Sequence[str]) -> list[str]:
    """The options that stand for recipe keys as `key=value`, then what `--set` says.

    An option is named like the last part of its key, but for those of `data` and `labels`.

    Raises:
        RecipeError: two of them, or one of them and an option, give one key two values.
    """
    from regard.recipes.changes import Change
    from regard.recipes.write import toml_value

    made: list[str] = []
    for key, value in options.items():
        if value is not None:
            option = _OPTIONS.get(key) or "--" + key.rpartition(".")[2].replace("_", "-")
            made.append(Change(f"{key}={toml_value(value)}", option))
    made += changes
    _refuse_two_values(made)
    return made


# Options that are not named like their keys.
_OPTIONS = {
    "decoding.method": "--sample",
    "labels.train": "--labels",
    "labels.valid": "--valid-labels",
}


def _refuse_two_values(changes: Sequence[str]) -> None:
    """Refuse two different values for one key, of which one would be overlooked."""
    from regard.errors import RecipeError
    from regard.recipes.changes import option_of, shown_together
    from regard.recipes.overrides import changes_of
    from regard.recipes.write import toml_value

    given: dict[str, tuple[str, str]] = {}
    for change in changes:
        table, keys = changes_of([change])
        for key in keys:
            value: object = table
            for part in key.split("."):
                value = value[part] if isinstance(value, dict) else value
            shown = toml_value(value)
            former, before = given.setdefault(key, (key, shown))
            if before != shown:
                both = [former, key] if option_of(former) != option_of(key) else [key]
                raise RecipeError(
                    f"{key} is given two values, {before} and {shown}",
                    where=shown_together(both),
                    hint="Give the one or the other.",
                )
