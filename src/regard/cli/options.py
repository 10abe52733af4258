"""What several commands share: options, how they complete, and how they become recipe keys."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import CoercionError, Group, Parameter, Token
from cyclopts.completion import CompletionContext
from cyclopts.validators import Number

from regard.serving.place import MOST_THREADS

DATA = Group("Data", sort_key=1)
SEARCH = Group("Search", sort_key=2)
FILES = Group("Files", sort_key=3)

_LONGEST = 40
_MOST_MINUTES = 1_000_000  # two years


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


def _whole_number(_type: object, tokens: Sequence[Token]) -> int:
    """The number that was typed; a fraction is none, though cyclopts would round it to one."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        problem = f'expected a whole number, got "{shown}"'
        raise CoercionError(msg=problem, token=tokens[0]) from None


def _length_of_time(_type: object, value: object) -> None:
    """Refuse what no work can take; of nan nothing is true."""
    if isinstance(value, float) and not 0 < value <= _MOST_MINUTES:
        raise ValueError(f"Must be above 0 and at most {_MOST_MINUTES:,}.")


# No option is a plain int: tests/test_numbers_typed.py walks all of them.
Whole = Annotated[int, Parameter(converter=_whole_number)]
PositiveInt = Annotated[Whole, Parameter(validator=Number(gte=1))]
NonNegativeInt = Annotated[Whole, Parameter(validator=Number(gte=0))]
Seed = Annotated[Whole, Parameter(validator=Number(gte=0, lt=2**63))]
Minutes = Annotated[float, Parameter(validator=_length_of_time)]
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
    Annotated[Whole, Parameter(validator=Number(gte=1, lte=MOST_THREADS))] | None,
    Parameter(help="CPU threads to use. Default: all cores usable."),
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
