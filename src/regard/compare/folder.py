"""The folder that a comparison is written to: whole, or not at all."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from regard.compare.results import Comparison, read_comparison
from regard.errors import DataError, RegardError, RunFolderError
from regard.weights.aside import folder_aside
from regard.weights.files import blames, refuse_dead_links, sync_file, sync_folder

RESULT: Final = "compare.json"
PAGE: Final = "compare.html"
# The plots that there can be, see `regard.compare.plots`.
_PLOT: Final = re.compile(
    r"((forward|training)-(time|memory)-by-[nd]|decode-(time|state)|sequential|path|gradients"
    r"|quality-[a-z]+)\.svg"
)
_HINT: Final = "Choose another with --out."


@contextmanager
def folder_for(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into, which is gone after the block: see `folder_aside`.

    Raises:
        RunFolderError: `out` is a file, holds something that is no comparison, or there can be
            no folder beside it.
    """
    _refuse_if_taken(out)
    with folder_aside(out) as aside:
        yield aside


def publish(
    found: Comparison,
    aside: Path,
    out: Path,
    write: Callable[[Comparison, Path], None] | None = None,
) -> None:
    """Write a comparison, with what `write` makes of it, into `aside`, and then move it to `out`.

    An earlier comparison in `out` is replaced, its page and plots too where there are none now;
    other files there are left alone. Where `write` fails, what it has written by then is
    published none the less.

    Raises:
        RunFolderError: it can't be written.
        RegardError: `write` failed.
    """
    problem = None
    with blames(out):
        (aside / RESULT).write_text(found.to_json(), encoding="utf-8")
        try:
            if write is not None:
                write(found, aside)
        except Exception as error:  # else all figures would be lost
            problem = error
    made = sorted(path for path in aside.iterdir() if path.is_file())
    for path in made:
        sync_file(path)
    with blames(out):
        out.mkdir(parents=True, exist_ok=True)
        for path in made:
            path.replace(out / path.name)
        for path in [*out.iterdir()]:
            older = path.name == PAGE or _PLOT.fullmatch(path.name)
            if older and not any(path.name == each.name for each in made):
                path.unlink()
    sync_folder(out)
    if problem is not None:
        raise RegardError(
            f"{PAGE} could not be written: {type(problem).__name__}: {problem}",
            where=str(out),
            hint=f"All figures are there, in {' and '.join(path.name for path in made)}.",
        ) from problem


def _refuse_if_taken(out: Path) -> None:
    with blames(out, "cannot be read"):
        if not out.exists():
            refuse_dead_links(out)
            return
        if not out.is_dir():
            raise RunFolderError("expected a folder, got a file", where=str(out), hint=_HINT)
        if not os.access(out, os.W_OK):
            raise RunFolderError("the folder may not be written to", where=str(out), hint=_HINT)
        if not any(out.iterdir()):
            return
    try:
        read_comparison(out / RESULT)
    except DataError as error:
        raise RunFolderError(
            "the folder holds something else than a comparison", where=str(out), hint=_HINT
        ) from error
