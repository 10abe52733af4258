"""What training measures: metrics.jsonl always, TensorBoard events where it is installed."""

import importlib.util
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.errors import RunFolderError
from regard.evaluation.figures import FIGURES
from regard.weights.files import blames, inode

Record = dict[str, Any]

_YEAR = 365 * 24 * 60 * 60

_CURVES = {
    "train": (
        *("loss", "nll", "learning_rate", "tokens_per_second", "grad_norm"),
        *("balance", "busiest_expert"),
    ),
    "valid": tuple(FIGURES),
}


class MetricsLog:
    """An append-only file of one JSON object a line, flushed line by line.

    `length` is the file's length in bytes after the last whole record. A run that resumes gives
    the length that its checkpoint knows: what was written after that is cut off, since those
    steps are about to be done again, and so is a last line that was torn by a crash. A file that
    is removed meanwhile is made anew, and `say` is told.
    """

    def __init__(
        self,
        path: Path,
        length: int | None = None,
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        require_file(path)
        self.path = path
        self._say = say
        self._former: list[FileIO] = []
        self._open(_whole_lines(path) if length is None else min(length, _whole_lines(path)))

    def _open(self, kept: int) -> None:
        with blames(self.path):
            self._file = self.path.open("ab", buffering=0)
            self._file.truncate(kept)
        self._inode = inode(self.path)
        self.length = kept

    def _follow(self) -> None:
        """Write where the name is, if the file was removed or replaced by another meanwhile."""
        now = inode(self.path)
        if now == self._inode:
            return
        # Not closed yet: a thread may be syncing it.
        self._former.append(self._file)
        self._open(_whole_lines(self.path))
        self._say(
            f"{self.path}: the file was replaced while training wrote to it; it is gone on with"
            if now
            else f"{self.path}: the file was removed while training wrote to it; the figures up to "
            "here are lost, and those that follow are in a new one"
        )

    def write(self, record: Record) -> None:
        """Append a record; a number that is not finite is written as null.

        Raises:
            RunFolderError: it can't be written.
        """
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode("utf-8", "replace")
        self._follow()
        with blames(self.path):
            # A full disk may take a part of it; the rest then says why not.
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        self.length += len(data)

    def sync(self) -> int:
        """Put all records on the disk, so that a checkpoint may name the length; return it.

        Raises:
            RunFolderError: the disk does not take them.
        """
        with blames(self.path):
            os.fsync(self._file.fileno())
        return self.length

    def close(self) -> None:
        """Close the file."""
        for file in (*self._former, self._file):
            file.close()


@runtime_checkable
class Curves(Protocol):
    """Something that draws the records, such as TensorBoard."""

    def write(self, record: Record) -> None:
        """Take in a record of metrics.jsonl."""

    def close(self) -> None:
        """Write out what waits."""


class NoCurves:
    """Draws nothing."""

    def write(self, record: Record) -> None:
        """Leave the record alone."""

    def close(self) -> None:
        """Do nothing."""


class TensorBoardCurves:
    """TensorBoard events in a folder; steps after `step` that an earlier start left are hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        self._folder = folder
        self._open(step)

    def _open(self, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an optional extra

        with blames(self._folder):
            # Its thread never flushes by itself: what went wrong there would be a traceback.
            self._writer = SummaryWriter(str(self._folder), purge_step=step + 1, flush_secs=_YEAR)

    def write(self, record: Record) -> None:
        """Add a point to the curves of the record's event."""
        if not self._folder.is_dir() and self._folder.parent.is_dir():
            self._open(record["step"] - 1)  # removed meanwhile: the curves begin anew
        event = record["event"]
        for name in _CURVES.get(event, ()):
            value = record.get(name)
            if value is not None:
                with blames(self._folder):
                    self._writer.add_scalar(f"{event}/{name}", value, record["step"])
        with blames(self._folder):
            self._writer.flush()

    def close(self) -> None:
        """Write out what waits and close the file; in a folder that is gone, nothing."""
        if not self._folder.is_dir():
            return
        with blames(self._folder):
            self._writer.close()


def open_curves(folder: Path, step: int) -> Curves:
    """TensorBoard events in `folder` where TensorBoard is installed, or nothing."""
    if importlib.util.find_spec("tensorboard") is None:
        return NoCurves()
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(
            "a file is where the folder for TensorBoard's curves should be",
            where=str(folder),
            hint="Move it away, then go on.",
        )
    return TensorBoardCurves(folder, step)


def require_file(path: Path) -> None:
    """Refuse a folder in the place of the file.

    Raises:
        RunFolderError: one is there.
    """
    if path.is_dir():
        raise RunFolderError(
            "a folder is where the file of the figures should be",
            where=str(path),
            hint="Move it away, then go on.",
        )


def seconds_told(path: Path, step: int, start: int) -> float:
    """How long a training that stopped at a step had taken by what it told after its last save.

    Args:
        path: the file of the figures.
        step: the step of the checkpoint that is gone on from.
        start: where in the file the checkpoint says that it ended.

    Returns:
        0 where it told nothing of that step.
    """
    if not path.is_file():
        return 0.0
    with blames(path, "cannot be read"), path.open("rb") as file:
        file.seek(start)
        rest = file.read().splitlines()
    seconds = 0.0
    for line in rest:
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            if record["event"] == "stop" and record["step"] == step:
                seconds = max(seconds, float(record["seconds"]))
    return seconds


def _whole_lines(path: Path) -> int:
    """The length in bytes of the file up to its last line end."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
    return 0


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value
