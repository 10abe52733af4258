"""The files of a corpus: pairs read side by side, checked, and fingerprinted by content."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from regard.counts import counted
from regard.errors import DataError
from regard.text.config import DataConfig
from regard.text.lines import open_text, read_lines, read_pairs
from regard.text.prepared import file_sum


@dataclass(frozen=True)
class PairFile:
    """Two line-aligned files, or a TSV file (then `target` is empty)."""

    source: str
    target: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one or two files of it."""
        return (self.source, self.target) if self.target else (self.source,)

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return ", ".join(self.paths)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield all (source, target) pairs in order.

        Raises:
            DataError: a file is missing, empty, damaged or not UTF-8, the two differ in their
                number of lines, or a TSV line does not hold exactly one tab.
        """
        empty = True
        for pair in self._side_by_side() if self.target else read_pairs(self.source):
            empty = False
            yield pair
        if empty:
            raise empty_file(self.source)

    def _side_by_side(self) -> Iterator[tuple[str, str]]:
        source_lines = target_lines = 0
        for source, target in zip_longest(read_lines(self.source), read_lines(self.target)):
            source_lines += source is not None
            target_lines += target is not None
            if source is not None and target is not None:
                yield source, target
        if source_lines == target_lines:
            return
        for path, lines in ((self.source, source_lines), (self.target, target_lines)):
            if lines == 0:
                raise empty_file(path)
        raise DataError(
            f"the source has {counted(source_lines, 'line')} and the target has {target_lines:,}",
            where=self.name,
            hint="line N of the target must be the translation of line N of the source",
        )

    def fingerprint(self) -> list[str]:
        """Return the SHA-256 of each file as it lies on the disk, packed or not."""
        return [file_sum(path) for path in self.paths]


def empty_file(path: str) -> DataError:
    """The error for a file without a line."""
    return DataError("the file is empty", where=path, hint="it must hold at least one line")


def training_files(config: DataConfig) -> tuple[PairFile, ...]:
    """Return the training files, found to be there and readable.

    Raises:
        DataError: none is given, or one is missing.
    """
    files = [PairFile(*pair) for pair in zip(config.source, config.target, strict=True)]
    files += [PairFile(path) for path in config.tsv]
    if not files:
        raise DataError(
            "no training text is given",
            where="data",
            hint="give data.source and data.target, or data.tsv",
        )
    return tuple(map(_present, files))


def validation_file(config: DataConfig) -> PairFile | None:
    """Return the validation file, found to be there; None where pairs are to be held out.

    Raises:
        DataError: it is missing.
    """
    if config.valid_tsv:
        return _present(PairFile(config.valid_tsv))
    if config.valid_source:
        return _present(PairFile(config.valid_source, config.valid_target))
    return None


def _present(file: PairFile) -> PairFile:
    for path in file.paths:
        present(path)
    return file


def present(path: str) -> None:
    """See that a file is there and readable, more than once.

    Raises:
        DataError: it is not; or it is a pipe or a device, which give their text only once.
    """
    # To open a pipe may wait for ever.
    if _is_pipe(path):
        raise DataError(
            "it must be a regular file, because it is read more than once",
            where=path,
            hint="write the text to a file first",
        )
    open_text(path).close()


def _is_pipe(path: str) -> bool:
    """Whether it is there, and is a pipe, a device or the like."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
