"""What training measures: metrics.jsonl always, TensorBoard events where it is installed."""

import importlib.util
import json
import math
import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.evaluation.figures import FIGURES
from regard.weights.files import blames

Record = dict[str, Any]

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
    steps are about to be done again, and so is a last line that was torn by a crash.
    """

    def __init__(self, path: Path, length: int | None = None) -> None:
        kept = _whole_lines(path)
        if length is not None:
            kept = min(length, kept)
        with blames(path):
            self._file = path.open("ab", buffering=0)
            self._file.truncate(kept)
        self.path = path
        self.length = kept

    def write(self, record: Record) -> None:
        """Append a record; a number that is not finite is written as null.

        Raises:
            RunFolderError: it can't be written.
        """
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode("utf-8", "replace")
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
        self._file.close()


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
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an optional extra

        self._folder = folder
        with blames(folder):
            self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, record: Record) -> None:
        """Add a point to the curves of the record's event."""
        event = record["event"]
        for name in _CURVES.get(event, ()):
            value = record.get(name)
            if value is not None:
                with blames(self._folder):
                    self._writer.add_scalar(f"{event}/{name}", value, record["step"])

    def close(self) -> None:
        """Write out what waits and close the file."""
        with blames(self._folder):
            self._writer.close()


def open_curves(folder: Path, step: int) -> Curves:
    """TensorBoard events in `folder` where TensorBoard is installed, or nothing."""
    if importlib.util.find_spec("tensorboard") is None:
        return NoCurves()
    return TensorBoardCurves(folder, step)


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
