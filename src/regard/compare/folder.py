"""The folder that a comparison is written to: whole, or not at all."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from regard.compare.results import Comparison, read_comparison
from regard.errors import DataError, RunFolderError
from regard.weights.files import blames, sync_file, sync_folder, temporary_name

RESULT: Final = "compare.json"
PAGE: Final = "compare.html"
_HINT: Final = "Choose another with --out."


@contextmanager
def folder_for(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into, which is gone after the block.

    Raises:
        RunFolderError: `out` is a file, holds something that is no comparison, or there can be
            no folder beside it.
    """
    _refuse_if_taken(out)
    aside = temporary_name(out.absolute())
    try:
        with blames(out):
            aside.mkdir(parents=True)
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def publish(
    found: Comparison,
    aside: Path,
    out: Path,
    write: Callable[[Comparison, Path], None] | None = None,
) -> None:
    """Write a comparison, with what `write` makes of it, into `aside`, and then move it to `out`.

    An earlier comparison in `out` is replaced, file by file; other files there are left alone.

    Raises:
        RunFolderError: it can't be written.
    """
    with blames(out):
        if write is not None:
            write(found, aside)
        (aside / RESULT).write_text(found.to_json(), encoding="utf-8")
    made = sorted(path for path in aside.iterdir() if path.is_file())
    for path in made:
        sync_file(path)
    with blames(out):
        out.mkdir(parents=True, exist_ok=True)
        for path in made:
            path.replace(out / path.name)
    sync_folder(out)


def _refuse_if_taken(out: Path) -> None:
    with blames(out, "cannot be read"):
        if not out.exists():
            return
        if not out.is_dir():
            raise RunFolderError("expected a folder, got a file", where=str(out), hint=_HINT)
        if not any(out.iterdir()):
            return
    try:
        read_comparison(out / RESULT)
    except DataError as error:
        raise RunFolderError(
            "the folder holds something else than a comparison", where=str(out), hint=_HINT
        ) from error
