"""Where results go: standard output line by line, or a file that is whole or not there at all."""

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from regard.errors import RegardError
from regard.text.lines import write_line
from regard.weights.aside import locked, remove_left_behind
from regard.weights.files import temporary_name
from regard.weights.manifest import MANIFEST

# Line ends to other programs; JSON leaves them as they are.
_ESCAPED = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class LineWriter:
    """Writes lines to a binary stream; `name` is what to call it in an error."""

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> None:
        """Write one line.

        Raises:
            RegardError: it can't be written, because the disk is full for example.
        """
        with _blaming(self._name):
            write_line(self._stream, text)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are.

        Raises:
            RegardError: as `write`.
        """
        with _blaming(self._name):
            self._stream.write(data)

    def require_way_back(self) -> None:
        """Refuse what `write_start` can't write to.

        Raises:
            RegardError: it is a pipe.
        """
        if not self._stream.seekable():
            raise RegardError(
                "wanted a file, found a pipe: the first bytes are written last",
                where=self._name,
                hint="Write to a file, or use another ending.",
            )

    def write_start(self, data: bytes) -> None:
        """Write bytes over the first ones, once what follows is known; see `require_way_back`.

        Raises:
            RegardError: as `write`.
        """
        with _blaming(self._name):
            self._stream.seek(0)
            self._stream.write(data)
            self._stream.seek(0, os.SEEK_END)

    def flush(self) -> None:
        """Hand on what was written so far.

        Raises:
            RegardError: it can't be written.
        """
        with _blaming(self._name):
            self._stream.flush()


def json_line(record: Mapping[str, object]) -> str:
    """A record as JSON on one line, to every program that reads it."""
    return json.dumps(record, ensure_ascii=False).translate(_ESCAPED)


@contextmanager
def open_output(path: Path | None) -> Iterator[LineWriter]:
    """Write to a file, or to standard output.

    A file is written under another name and renamed at the end of the block; if the block
    fails, what was there before stays. What an earlier process left under such a name, as it was
    killed, is removed. Pipes and devices are written directly.

    Raises:
        RegardError: it can't be written; or it is one of the files that a run folder holds.
    """
    if path is None:
        yield LineWriter(cast(io.BufferedIOBase, sys.stdout.buffer), "standard output")
        return
    name = str(path)
    if _is_special(path):
        with _blaming(name):
            stream = path.open("wb")
        writer = LineWriter(stream, name)
        try:
            yield writer
            writer.flush()
        finally:
            with suppress(OSError):
                stream.close()
        return
    if path.is_dir():
        raise RegardError("wanted a file, found a folder", where=name)
    place = path.resolve()
    _refuse_a_models_own(place, name)
    remove_left_behind(place)
    temporary = temporary_name(place)
    with _blaming(name):
        stream = temporary.open("xb")
    locked(stream.fileno())
    writer = LineWriter(stream, name)
    try:
        yield writer
        writer.flush()
        with _blaming(name):
            os.fsync(stream.fileno())
            temporary.replace(place)  # still open, so that it is still locked
            stream.close()
    except BaseException:
        with suppress(OSError):
            stream.close()
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def refuse_same_file(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Refuse two results in one file, and a result in place of a text that is read.

    Links are followed. Pipes and devices may be named twice.

    Args:
        outputs: the file of each option that writes one.
        inputs: the file of each option that reads one; None for `--input` is standard input.

    Raises:
        RegardError: names the two options.
    """
    seen = [(option, path) for option, path in inputs.items() if path is not None]
    for option, path in outputs.items():
        if path is None or _is_special(path):
            continue
        if inputs.get("--input", path) is None and _is_standard_input(path):
            raise RegardError(
                "the file is that of standard input too",
                where=f"{option} {path}",
                hint="Give each its own file.",
            )
        for other, former in seen:
            if _is_same(path, former):
                raise RegardError(
                    f"the file is that of {other} too",
                    where=f"{option} {path}",
                    hint="Give each its own file.",
                )
        seen.append((option, path))


def _is_same(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.resolve() == other.resolve()


def _is_standard_input(path: Path) -> bool:
    try:
        return path.exists() and os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
    except (OSError, ValueError, AttributeError):  # there is none, or it is no file
        return False


def _refuse_a_models_own(place: Path, name: str) -> None:
    """A result written over a file of a run folder would leave that run damaged."""
    try:
        manifest = json.loads((place.parent / MANIFEST).read_bytes())
        own = place.name == MANIFEST or place.name in manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if own:
        raise RegardError(
            "the file is part of a run folder", where=name, hint="Give the result another name."
        )


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, or stands for one, as /dev/stdout does."""
    under_dev = path.absolute().is_relative_to("/dev")
    return under_dev or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Name the file in an error; a reader that went away is none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RegardError(f"cannot be written: {error.strerror}", where=name) from None
