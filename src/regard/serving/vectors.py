"""Vectors into a file as they come: .npy, JSON lines, or numbers with spaces or tabs between."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from regard.errors import RegardError
from regard.serving.outputs import LineWriter, json_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
else:
    Vectors = object  # a wrong file name is refused without waiting for numpy

_SEPARATORS: Final = {".txt": " ", ".tsv": "\t"}
ENDINGS: Final = (".npy", ".jsonl", *_SEPARATORS)

# The first bytes of a .npy file of format 1.0, and how long its header is, number of rows and
# all: as long whatever that number is.
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = 128


@runtime_checkable
class VectorWriter(Protocol):
    """Writes the vectors of texts, in order."""

    def write(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Write the vectors of some texts, a row each."""
        ...

    def finish(self, width: int) -> None:
        """Write what is known at the end; `width` is the length of a vector."""
        ...


def require_ending(path: Path) -> None:
    """Refuse a name whose ending does not tell how to write vectors.

    Raises:
        RegardError: names those that do.
    """
    if path.suffix not in ENDINGS:
        raise RegardError(
            f"expected a file name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, "
            f"got {path.suffix or 'none'}",
            where=f"--out {path}",
        )


def open_vectors(path: Path, writer: LineWriter) -> VectorWriter:
    """The writer for a file name with one of the `ENDINGS`.

    Raises:
        RegardError: it ends in .npy and is a pipe, or can't be written.
    """
    if path.suffix == ".npy":
        return _Numpy(writer)
    if path.suffix == ".jsonl":
        return _JsonLines(writer)
    return _Numbers(writer, _SEPARATORS[path.suffix])


class _Numpy:
    """An array of float32, N x d, whose header is written when N is known."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self._rows = 0
        self._writer.require_way_back()
        self._writer.write_bytes(bytes(_HEADER))

    def write(self, texts: Sequence[str], vectors: Vectors) -> None:
        self._writer.write_bytes(vectors.astype("<f4").tobytes())
        self._rows += len(vectors)

    def finish(self, width: int) -> None:
        told = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self._rows}, {width}), }}"
        size = _HEADER - len(_MAGIC) - 2
        header = told.encode("ascii").ljust(size - 1) + b"\n"
        self._writer.write_start(_MAGIC + size.to_bytes(2, "little") + header)


class _JsonLines:
    """A line of JSON a text: the text and its vector."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def write(self, texts: Sequence[str], vectors: Vectors) -> None:
        for text, vector in zip(texts, vectors, strict=True):
            numbers = [float(number) for number in _shortest(vector)]
            self._writer.write(json_line({"text": text, "vector": numbers}))

    def finish(self, width: int) -> None:
        pass


class _Numbers:
    """A line of numbers a text."""

    def __init__(self, writer: LineWriter, separator: str) -> None:
        self._writer = writer
        self._separator = separator

    def write(self, texts: Sequence[str], vectors: Vectors) -> None:
        for vector in vectors:
            self._writer.write(self._separator.join(_shortest(vector)))

    def finish(self, width: int) -> None:
        pass


def _shortest(vector: Vectors) -> list[str]:
    """Each number with as few digits as tell it from every other float32."""
    return [str(number) for number in vector]
