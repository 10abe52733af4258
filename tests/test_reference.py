"""docs/reference.md says everything that the code takes, with its true default."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from regard.cli import app, main
from regard.recipes.keys import is_union, kinds, recipe_keys, table_of
from regard.recipes.names import preset_names
from regard.recipes.recipe import FAMILIES, Family
from regard.recipes.write import toml_value

REFERENCE = (Path(__file__).parents[1] / "docs" / "reference.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z0-9_.]+)` \| (.*?) \| ", REFERENCE, re.MULTILINE))


def defaults(table: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key with its default; a key of several kinds once for each."""
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if table_of(field) is not None:
            yield from defaults(value, f"{prefix}{name}.")
        elif is_union(field):
            yield f"{prefix}{name}.kind", value.kind
            others = [kind() for kind in kinds(field).values() if not isinstance(value, kind)]
            for each in (value, *others):
                for key, default in defaults(each, f"{prefix}{name}."):
                    if key != f"{prefix}{name}.kind":
                        yield key, default
        else:
            yield f"{prefix}{name}", value


@pytest.mark.parametrize("family", FAMILIES)
def test_every_recipe_key_is_there_with_its_default(family: Family) -> None:
    for key, default in defaults(FAMILIES[family]()):
        wanted = "left out" if default is None else f"`{toml_value(default)}`"
        assert wanted in ROWS[key], key


def test_no_key_is_there_that_a_recipe_does_not_have() -> None:
    assert set(ROWS) == set(recipe_keys())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_there(name: str) -> None:
    assert f"\n| `{name}` | " in REFERENCE


@pytest.mark.parametrize(
    "command",
    [name for name in app if not name.startswith("-") and name != "recipe"]
    + ["recipe show", "recipe list"],
)
def test_every_command_is_there_with_its_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    options = set(re.findall(r"^│[ *]+(?:[A-Z]+ )?(--[a-z-]+)", capsys.readouterr().out, re.M))
    sections = [part for part in REFERENCE.split("\n### ") if f"regard {command}" in part[:60]]
    assert len(sections) == 1
    documented = set(
        re.findall(r"`(--[a-z-]+)", "".join(re.findall(r"^\| `--.*", sections[0], re.M)))
    )
    assert options - {"--help", "--version"} == documented - (
        {"--set"} if command == "recipe list" else set()
    )
