"""The tokenised corpus on the disk: memory-mapped arrays, written and read in bounded memory."""

import mmap
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from regard.text.lines import writing

Integers = npt.NDArray[np.integer[Any]]
Indices = npt.NDArray[np.int64]

LINES_FILE = "lines.bin"


def token_type(vocabulary_size: int) -> str:
    """Return the name of the smallest of the two types that hold every id of a vocabulary."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"


class Mapped:
    """An array in a file, of which only the parts in use are in memory."""

    def __init__(self, path: Path, dtype: str) -> None:
        with path.open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self.array: Integers = np.frombuffer(self._map, dtype=dtype)

    def release(self) -> None:
        """Let go of the pages that were read; they are read again when they are needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class Side:
    """One side of a corpus: the ids of all its sentences end to end, without control tokens."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.tokens = Mapped(folder / f"{name}.tokens.bin", dtype)
        self.offsets = Mapped(folder / f"{name}.offsets.bin", "int64")

    def ids(self, index: int) -> Integers:
        """Return the ids of one sentence, without a copy."""
        start, end = self.offsets.array[index : index + 2].tolist()
        return self.tokens.array[start:end]

    def lengths(self, indices: Indices) -> Indices:
        """Return how many ids each of these sentences has."""
        offsets = self.offsets.array
        return cast(Indices, offsets[indices + 1] - offsets[indices])

    def gather(self, indices: Indices) -> tuple[Integers, Indices]:
        """Return the ids of these sentences end to end, and the length of each."""
        starts = self.offsets.array[indices]
        lengths = self.offsets.array[indices + 1] - starts
        shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self.tokens.array[shift + np.arange(len(shift))], cast(Indices, lengths)

    def release(self) -> None:
        """Let go of the pages that were read."""
        self.tokens.release()
        self.offsets.release()


class ArrayFile:
    """A file of numbers that is written from its start to its end, and named where it can't be.

    Raises:
        DataError: it can't be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._stream = path.open("wb")

    def write(self, numbers: npt.NDArray[Any]) -> None:
        """Append an array's numbers."""
        with writing(self._path):
            self._stream.write(numbers.tobytes())

    def close(self) -> None:
        """Finish the file."""
        with writing(self._path):
            self._stream.close()


class SideWriter:
    """Writes one side of a corpus, chunk by chunk."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._dtype = dtype
        self._tokens = ArrayFile(folder / f"{name}.tokens.bin")
        self._offsets = ArrayFile(folder / f"{name}.offsets.bin")
        self._offsets.write(np.zeros(1, dtype=np.int64))
        self.total = 0

    def write(self, sentences: Sequence[Sequence[int]]) -> None:
        """Append sentences."""
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        ids = np.fromiter(
            chain.from_iterable(sentences), dtype=self._dtype, count=int(lengths.sum())
        )
        self._tokens.write(ids)
        self._offsets.write(self.total + np.cumsum(lengths))
        self.total += len(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append a part of a sentence, which `end` ends."""
        self._tokens.write(np.array(ids, dtype=self._dtype))
        self.total += len(ids)

    def end(self) -> None:
        """End the sentence that was written in parts."""
        self._offsets.write(np.array([self.total], dtype=np.int64))

    def close(self) -> None:
        """Finish the files."""
        self._tokens.close()
        self._offsets.close()


class Origins:
    """Where each thing of a corpus came from: the file, and its line there.

    Args:
        path: the array of the lines.
        files: the name of each file, for messages.
        counts: how many things came of each file.
    """

    def __init__(self, path: Path, files: Sequence[str], counts: Sequence[int]) -> None:
        self.files = tuple(files)
        self.bounds: tuple[int, ...] = (0, *np.cumsum(counts).tolist())
        self._lines = Mapped(path, "int64")

    def line(self, index: int) -> tuple[str, int]:
        """Return the file that a thing came from, and its line there, counted from 1."""
        file = int(np.searchsorted(self.bounds, index, side="right")) - 1
        return self.files[file], int(self._lines.array[index])

    def release(self) -> None:
        """Let go of the pages that were read."""
        self._lines.release()


class CorpusWriter:
    """Writes tokenised pairs into a folder, chunk by chunk."""

    def __init__(self, folder: Path, source_vocabulary: int, target_vocabulary: int) -> None:
        self._source = SideWriter(folder, "source", token_type(source_vocabulary))
        self._target = SideWriter(folder, "target", token_type(target_vocabulary))
        self._lines = ArrayFile(folder / LINES_FILE)

    def write(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        lines: Sequence[int],
    ) -> None:
        """Append pairs, each with the line that it comes from."""
        self._source.write(sources)
        self._target.write(targets)
        self._lines.write(np.array(lines, dtype=np.int64))

    def close(self) -> None:
        """Finish the files."""
        self._source.close()
        self._target.close()
        self._lines.close()


class Corpus:
    """Tokenised pairs in their order in the training files; indices count from 0.

    Args:
        folder: where the arrays lie.
        source_type: the type of the source ids, as `token_type` names it.
        target_type: the same for the target.
        files: the name of each training file (or pair of files), for messages.
        file_pairs: how many pairs of each file are in the corpus.
        fingerprint: what the text, the tokenizers and the filters were; two corpora with the
            same one hold the same pairs in the same order.
    """

    def __init__(
        self,
        folder: Path,
        *,
        source_type: str,
        target_type: str,
        files: Sequence[str],
        file_pairs: Sequence[int],
        fingerprint: str,
    ) -> None:
        self.source = Side(folder, "source", source_type)
        self.target = Side(folder, "target", target_type)
        self._origins = Origins(folder / LINES_FILE, files, file_pairs)
        self.files = self._origins.files
        self.file_bounds = self._origins.bounds
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return self.file_bounds[-1]

    def line(self, index: int) -> tuple[str, int]:
        """Return the training file that a pair came from, and its line there, counted from 1."""
        return self._origins.line(index)

    def release(self) -> None:
        """Let go of the pages that were read, so that a pass over the corpus stays small."""
        self.source.release()
        self.target.release()
        self._origins.release()


class OneSideWriter:
    """Writes tokenised texts of one side into a folder, each with the line that it begins at.

    Args:
        folder: where the arrays go.
        name: what their names begin with.
        vocabulary: how many ids there are.
    """

    def __init__(self, folder: Path, name: str, vocabulary: int) -> None:
        self._side = SideWriter(folder, name, token_type(vocabulary))
        self._lines = ArrayFile(folder / f"{name}.{LINES_FILE}")
        self.texts = 0

    @property
    def total(self) -> int:
        """How many ids were written."""
        return self._side.total

    def extend(self, ids: Sequence[int]) -> None:
        """Append a part of a text, which `end` ends."""
        self._side.extend(ids)

    def end(self, line: int) -> None:
        """End a text, which began at this line of its file."""
        self._side.end()
        self._lines.write(np.array([line], dtype=np.int64))
        self.texts += 1

    def close(self) -> None:
        """Finish the files."""
        self._side.close()
        self._lines.close()


class TextCorpus:
    """Tokenised texts of one side in their order in the files; indices count from 0.

    Args:
        folder: where the arrays lie.
        name: what their names begin with.
        dtype: the type of the ids, as `token_type` names it.
        files: the name of each file, for messages.
        file_texts: how many texts of each file are in the corpus.
        fingerprint: what the text and the vocabulary were; two corpora with the same one hold
            the same texts in the same order.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        dtype: str,
        files: Sequence[str],
        file_texts: Sequence[int],
        fingerprint: str,
    ) -> None:
        self.text = Side(folder, name, dtype)
        self.fingerprint = fingerprint
        self._origins = Origins(folder / f"{name}.{LINES_FILE}", files, file_texts)

    def __len__(self) -> int:
        return self._origins.bounds[-1]

    def line(self, index: int) -> tuple[str, int]:
        """Return the file that a text came from, and the line that it begins at."""
        return self._origins.line(index)

    def release(self) -> None:
        """Let go of the pages that were read, so that a pass over the corpus stays small."""
        self.text.release()
        self._origins.release()
