"""What the name of a recipe stands for: one that comes with the package, a file, or a run."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.arguments import path_of
from regard.errors import RecipeError
from regard.weights.run_folder import RECIPE, RunFolder

_PRESETS = Path(__file__).parent / "presets"

# Names that stand for a preset.
_ALIASES = {"gpt": "gpt-mini", "bert": "bert-mini"}


@dataclass(frozen=True)
class Named:
    """What a name stands for, and where the recipe's text is; for a run, `path` is its folder."""

    kind: Literal["preset", "file", "run"]
    path: Path

    @property
    def source(self) -> str:
        """What to call the recipe in an error."""
        match self.kind:
            case "preset":
                return f"recipe {self.path.stem}"
            case "file":
                return str(self.path)
            case "run":
                return str(self.path / RECIPE)

    def read(self) -> bytes:
        """The recipe's text.

        Raises:
            RecipeError: the file can't be read.
            RunFolderError: the folder is no run folder, or a damaged one.
        """
        if self.kind == "run":
            return RunFolder.open(self.path, model=False).read(RECIPE)
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise RecipeError(f"cannot be read: {error.strerror}", where=self.source) from None


def preset_names() -> list[str]:
    """The names of the recipes that come with the package, by family, smallest model first."""
    order = ["tiny", "demo", "small", "base", "big"]
    order += ["gpt-char", "gpt-mini", "llama-mini", "gpt2", "bert-mini", "bert-base"]
    found = {path.stem for path in _PRESETS.glob("*.toml")}
    return [name for name in order if name in found] + sorted(found - set(order))


def typed(folder: Path) -> str:
    """A folder's path as `resolve` has to get it, by the command line.

    It begins with `./` where a preset has that name, or where it looks like an option.
    """
    name = str(folder)
    other = _ALIASES.get(name, name) in preset_names() or name.startswith("-")
    return f"./{name}" if other else name


def resolve(given: str | Path) -> Named:
    """What a name stands for.

    A preset's name wins over a file or a folder of the same name; `./base`, or a `Path`, is the
    file or the folder.

    Raises:
        RecipeError: it stands for nothing.
    """
    path_of(given, "recipe", hint="Give a recipe's name, a TOML file or a run folder.")
    name = str(given)
    if isinstance(given, str):
        preset = _ALIASES.get(name, name)
        if preset in preset_names():
            return Named("preset", _PRESETS / f"{preset}.toml")
    path = Path(given)
    if name and path.is_dir():
        return Named("run", path)
    if path.is_file():
        return Named("file", path)
    near = difflib.get_close_matches(name, preset_names(), n=1)
    known = f"Recipes: {', '.join(preset_names())}. Or give a TOML file or a run folder."
    raise RecipeError(
        "no such recipe, file or run folder",
        where=name or '""',
        hint=f"Did you mean {near[0]}? {known}" if near else known,
    )
