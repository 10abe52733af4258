"""Lines of input in windows: many at once where they come fast, one alone where they are typed."""

import io
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, cast

from regard.errors import DataError
from regard.text.lines import open_text, read_lines

_CHUNK = 1 << 16
# The first window is small, so that an answer is seen soon; then they grow, to fill batches.
_FIRST_LINES = 64
_MOST_LINES = 2048
_MOST_CHARACTERS = 1 << 19
# On a pipe, how long more may take to come, in seconds, to go into the same window.
_LINGER = 0.002


@contextmanager
def open_input(path: Path | None, *, option: str = "--input") -> Iterator["Input"]:
    """Open a file (.gz, .xz and .zst are unpacked), or take standard input.

    Args:
        path: the file; None is standard input.
        option: with which the command takes a file.

    Raises:
        DataError: there is no such file, or it can't be read.
    """
    if path is not None:
        with open_text(path) as stream:
            yield Input(stream, str(path))
    elif sys.stdin is None:
        raise DataError("it is closed", where="standard input", hint=f"Give a file: {option} FILE.")
    else:
        yield Input(cast(io.BufferedIOBase, sys.stdin.buffer), "standard input")


class Input:
    """A binary stream, read so that the lines that are there are known from those to wait for.

    `name` is what to call it in an error.
    """

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        self.name = name
        self._stream = stream
        # Nothing has been read from it, so that its buffer is empty and may be passed by.
        raw = stream.raw if isinstance(stream, io.BufferedReader) else None
        self._descriptor = raw.fileno() if isinstance(raw, io.FileIO) else None
        # A file never makes one wait, so its windows are full, and the same every time.
        self._waits_for: list[int] = []
        if self._descriptor is not None and not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self._waits_for.append(self._descriptor)
        self._lines: deque[bytes] = deque()
        self._rest: list[bytes] = []
        self._ended = False

    def windows(self) -> Iterator[list[str]]:
        """Yield runs of lines; only for the first line of each it waits.

        Raises:
            DataError: a line is not UTF-8; the lines before it have been yielded.
        """
        window: list[str] = []
        characters, most = 0, _FIRST_LINES
        try:
            for line in read_lines(self, name=self.name):
                window.append(line)
                characters += len(line)
                if len(window) >= most or characters >= _MOST_CHARACTERS or not self._ready():
                    yield window
                    if len(window) >= most:
                        most = min(2 * most, _MOST_LINES)
                    window, characters = [], 0
        except DataError:
            if window:
                yield window
            raise
        if window:
            yield window

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """The next line with its end; waits for it."""
        while not self._lines and not self._ended:
            self._read()
        if not self._lines:
            raise StopIteration
        return self._lines.popleft()

    def _ready(self) -> bool:
        """Whether the next line, or the end, is here without waiting for it."""
        while self._waits_for and not self._lines and not self._ended:
            if not select.select(self._waits_for, [], [], _LINGER)[0]:
                return False
            self._read()
        return True

    def _read(self) -> None:
        if self._descriptor is None:
            chunk = self._stream.read(_CHUNK)
        else:
            chunk = os.read(self._descriptor, _CHUNK)
        if not chunk:
            self._ended = True
            if self._rest:
                self._lines.append(b"".join(self._rest))
            return
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self._lines.append(b"".join([*self._rest, line, b"\n"]))
            self._rest = []
        if rest:
            self._rest.append(rest)
