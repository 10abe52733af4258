"""The commands that only look: info, doctor, and the recipes."""

from pathlib import Path

from regard.cli.options import Json, Name, Set, overrides_of


def info(name: Name, /, *, set_: Set = (), json: Json = False) -> None:
    """Show what a model is made of: its parts, shapes, parameters, and where it is from.

    Args:
        name: A recipe's name, a TOML file, or a run folder.
    """
    from regard.recipes.describe import describe, format_description, to_json

    description = describe(name, overrides_of({}, set_))
    print(to_json(description) if json else format_description(description))


def doctor(run: Path | None = None, /, *, quick: bool = False, json: Json = False) -> None:
    """Show versions, devices, threads, speed and what is missing, to paste into a report.

    With a run folder, look at that instead: whether every file is as it was written, the model
    can be used, and each checkpoint is whole.

    Args:
        run: A run folder to look at.
        quick: Leave out the measurement of speed, which takes some seconds.
    """
    if run is not None:
        _look_at(run, json)
        return
    from regard.doctor import examine, format_findings, to_json

    findings = examine(measure=not quick)
    print(to_json(findings) if json else format_findings(findings))


def _look_at(run: Path, as_json: bool) -> None:
    """Print what is good and what is not; end with an error if anything is not."""
    from regard.errors import RunFolderError
    from regard.signals import load_torch

    load_torch("regard.serving.checkup")
    from regard.serving.checkup import check_run

    found = check_run(run)
    print(found.to_json() if as_json else "\n".join(found.lines()))
    if count := len(found.problems):
        are = "is" if count == 1 else "are"
        raise RunFolderError(
            f"{count} of {len(found.looked)} parts of the run {are} not good", where=str(run)
        )


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

    print(format_recipe(load_recipe(name, overrides_of({}, set_))), end="")
