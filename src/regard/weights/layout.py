"""What is where in a run folder, and how one is told from any other folder."""

from pathlib import Path
from typing import Final

from regard.errors import RunFolderError
from regard.weights.checkpoints import CHECKPOINTS, clean_checkpoints
from regard.weights.files import PARTIAL, blames, remove
from regard.weights.manifest import MANIFEST

RECIPE: Final = "recipe.toml"
MODEL: Final = "model.safetensors"
PACKED: Final = "model.packed"  # in place of it, in a run that regard quantize wrote
TRAINED: Final = "model.trained.safetensors"
TOKENIZER: Final = "tokenizer.json"
SOURCE_TOKENIZER: Final = "tokenizer.source.json"
TARGET_TOKENIZER: Final = "tokenizer.target.json"
METRICS: Final = "metrics.jsonl"
REPORT: Final = "report.html"
SHORTLIST: Final = "shortlist.safetensors"
PREPARED_TEXT: Final = "data"


def is_run_folder(path: str | Path) -> bool:
    """Whether a path looks like a run folder, damaged or not."""
    folder = Path(path)
    return any((folder / name).exists() for name in (MANIFEST, CHECKPOINTS, MODEL, PACKED))


def refuse_if_no_run(folder: Path) -> None:
    """Say what is wrong with a path that is no run folder.

    Raises:
        RunFolderError: there is nothing, or a file, or some other folder.
    """
    if not folder.exists():
        raise RunFolderError("there is no such run folder", where=str(folder))
    if not folder.is_dir():
        raise RunFolderError("this is a file, not a run folder", where=str(folder))
    if (folder / MANIFEST).exists():
        return
    if is_run_folder(folder):
        raise RunFolderError(
            "the file is missing",
            where=str(folder / MANIFEST),
            hint="Copy the folder again from where it came from, whole.",
        )
    raise RunFolderError(
        f"this is not a run folder: it has no {MANIFEST}",
        where=str(folder),
        hint="A run folder is what regard train wrote with --out.",
    )


def clean(folder: Path) -> None:
    """Remove what a killed writer left half-written."""
    with blames(folder, "cannot be read"):
        stale = [entry for entry in folder.iterdir() if entry.name.endswith(PARTIAL)]
    for entry in stale:
        remove(entry)
    clean_checkpoints(folder)
