"""The commands that only look: info, doctor, and the recipes."""

from regard.cli.options import Json, Name, Set


def info(name: Name, /, *, set_: Set = (), json: Json = False) -> None:
    """Show what a model is made of: its parts, shapes, parameters, and where it is from.

    Args:
        name: A recipe's name, a TOML file, or a run folder.
    """
    from regard.recipes.describe import describe, format_description, to_json

    description = describe(name, list(set_))
    print(to_json(description) if json else format_description(description))


def doctor(*, quick: bool = False, json: Json = False) -> None:
    """Show versions, devices, threads, speed and what is missing, to paste into a report.

    Args:
        quick: Leave out the measurement of speed, which takes some seconds.
    """
    from regard.doctor import examine, format_findings, to_json

    findings = examine(measure=not quick)
    print(to_json(findings) if json else format_findings(findings))


def list_recipes() -> None:
    """List the recipes that come with regard, each with its family of models."""
    from regard.recipes.load import load_recipe
    from regard.recipes.names import preset_names

    recipes = {name: load_recipe(name) for name in preset_names()}
    width = max(map(len, recipes))
    for name, recipe in recipes.items():
        print(f"{name:{width}}  {recipe.family:7}  {recipe.description}")


def show(name: Name, /, *, set_: Set = ()) -> None:
    """Write a recipe out with every value in it, as a TOML file to start from.

    Args:
        name: A recipe's name, a TOML file, or a run folder.
    """
    from regard.recipes.load import load_recipe
    from regard.recipes.write import format_recipe

    print(format_recipe(load_recipe(name, list(set_))), end="")
