"""Documents in files of raw text: where each begins and ends, and which of them are held out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Literal

from regard.counts import counted
from regard.errors import DataError
from regard.text.inputs import empty_file
from regard.text.lines import read_lines
from regard.text.split import holds_out
from regard.text.survey import VALIDATION_SALT, Log

# A longer document is read and tokenised in parts of about this many characters.
PART_CHARACTERS = 1 << 16
# If there is no good place to end it for so long, it ends in a bad one.
LONGEST_PART = 16 * PART_CHARACTERS

# A shorter line is not cut to hold out its last part.
SHORTEST_CUT = 1 << 10
# So far before the place where a line is to be cut, a space is looked for.
NEAR = 1 << 10

Documents = Literal["file", "line", "blank"]


@dataclass(frozen=True)
class Part:
    """A part of a document, with its line ends; most documents have one.

    `line` is where the document begins in its file, counted from 1.
    """

    text: str
    line: int
    held_out: bool
    first: bool
    last: bool


@dataclass(frozen=True)
class Cut:
    """Where the held-out part of a file begins.

    That is at the first line that begins at the character `place` or after it; or inside the line
    that it falls in.
    """

    place: int
    in_line: bool


@dataclass(frozen=True)
class TextSurvey:
    """What one pass over the text found.

    `documents` have text in them, `empty` ones only space; `first` is the first file with a
    document. `share` is the share of documents that is held out by a hash of their text, and
    `cuts` says for each file that is a document with text where the held-out part begins; None
    where all of it is for training.
    """

    files: tuple[str, ...]
    kind: Documents
    documents: int
    empty: int
    characters: int
    first: int
    share: float
    cuts: dict[str, Cut | None]

    def holds_out(self, text: str) -> bool:
        """Return whether a document is kept from training."""
        return holds_out(text, self.share, salt=VALIDATION_SALT)


def survey_text(files: tuple[str, ...], kind: Documents, share: float, log: Log) -> TextSurvey:
    """Read and check all text, and choose what to hold out.

    Args:
        files: what to read.
        kind: where a document ends.
        share: how much to hold out, from 0 to 1.
        log: is told what each file has.

    Raises:
        DataError: a file is missing, empty, damaged or not UTF-8, or no file has text in it.
    """
    if kind == "file":
        return _survey_files(files, share, log)
    documents = empty = characters = held_out = 0
    first = -1
    for number, path in enumerate(files):
        before = documents
        for _, text in _documents(path, kind):
            characters += len(text)
            if not text.strip():
                empty += 1
                continue
            first = number if first < 0 else first
            documents += 1
            held_out += holds_out(text, share, salt=VALIDATION_SALT)
        log(f"text: {counted(documents - before, 'document')} in {path}")
    _require_text(documents, files)
    # Where all are near twins, the whole group would go and leave nothing to train on.
    kept_share = share if held_out < documents else 0.0
    return TextSurvey(files, kind, documents, empty, characters, first, kept_share, {})


def _survey_files(files: tuple[str, ...], share: float, log: Log) -> TextSurvey:
    documents = empty = characters = 0
    first = -1
    cuts: dict[str, Cut | None] = {}
    for number, path in enumerate(files):
        total = 0
        lines: list[_Line] = []
        for line in _lines(path, ends=True):
            if line.strip():
                # The first and the last line with text in it.
                lines = [*lines[:1], _Line.at(total, line)]
            total += len(line)
        log(f"text: {counted(total, 'character')} in {path}")
        characters += total
        if not lines:
            empty += 1
            continue
        first = number if first < 0 else first
        documents += 1
        cuts[path] = _cut(lines[0], lines[-1], total, share) if share else None
    _require_text(documents, files)
    return TextSurvey(files, "file", documents, empty, characters, first, share, cuts)


@dataclass(frozen=True)
class _Line:
    """Where a line begins in its file, and where its text does, and ends, without space."""

    start: int
    first: int
    end: int

    @classmethod
    def at(cls, start: int, line: str) -> "_Line":
        return cls(start, start + len(line) - len(line.lstrip()), start + len(line.rstrip()))


def _cut(first: _Line, last: _Line, total: int, share: float) -> Cut | None:
    """Choose where to cut a file with these first and last lines of text, to hold out a share."""
    place = max(ceil((1 - share) * total), first.start + 1)
    if last.start >= place:
        return Cut(place, in_line=False)
    if last.end - last.first < SHORTEST_CUT:
        return None
    inside = first.first + int((1 - share) * (last.end - first.first))
    return Cut(min(max(inside, last.first + 1), last.end - 1), in_line=True)


def _require_text(documents: int, files: tuple[str, ...]) -> None:
    if not documents:
        raise DataError("wanted text, found nothing but blank lines", where=", ".join(files))


def read_parts(path: str, found: TextSurvey) -> Iterator[Part]:
    """Yield the documents of a file that have text in them, in order and in parts."""
    if found.kind == "file":
        if path in found.cuts:
            yield from _parts_of_file(enumerate(_lines(path), start=1), found.cuts[path])
        return
    for line, text in _documents(path, found.kind):
        if not text.strip():
            continue
        held_out = found.holds_out(text)
        lines_of = text.split("\n") if len(text) > PART_CHARACTERS else [text]
        parts = list(_joined(iter(lines_of)))
        for index, part in enumerate(parts):
            yield Part(part, line, held_out, index == 0, index == len(parts) - 1)


def _parts_of_file(lines: Iterator[tuple[int, str]], cut: Cut | None) -> Iterator[Part]:
    """Yield a file as one document, or as two where its last part is held out."""
    held: list[tuple[int, str]] = []

    def before_cut() -> Iterator[str]:
        position = 0
        for number, line in lines:
            if cut is not None and cut.in_line and position + len(line) > cut.place:
                before, after = _halves(line, cut.place - position)
                held.append((number, after))
                yield before
                return
            if cut is not None and not cut.in_line and position >= cut.place:
                held.append((number, line))
                return
            position += len(line) + 1
            yield line

    yield from _marked(_joined(before_cut()), line=1, held_out=False)
    if held:
        number, line = held[0]
        rest = chain([line], (text for _, text in lines))
        yield from _marked(_joined(rest), line=number, held_out=True)


def _halves(line: str, place: int) -> tuple[str, str]:
    """Cut a line in two that both have text: at the last space near before a place, or at it.

    That space is in neither.
    """
    text = len(line) - len(line.lstrip())
    space = line.rfind(" ", max(text, place - NEAR), place)
    return (line[:place], line[place:]) if space < 0 else (line[:space], line[space + 1 :])


def _marked(texts: Iterator[str], *, line: int, held_out: bool) -> Iterator[Part]:
    """Yield texts as the parts of one document."""
    waiting: str | None = None
    first = True
    for text in texts:
        if waiting is not None:
            yield Part(waiting, line, held_out, first, False)
            first = False
        waiting = text
    if waiting is not None:
        yield Part(waiting, line, held_out, first, True)


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines joined to parts; together with nothing between they are the whole text.

    A part ends with a newline that has no space beside it, where a vocabulary cuts in any case; if
    there is none for long, with any newline, or before a space of a line that is itself so long.
    """
    part: list[str] = []
    size = 0
    for line in lines:
        alone = bool(part and line[:1].strip() and part[-1][-1:].strip())
        if size >= PART_CHARACTERS and (alone or size >= LONGEST_PART):
            yield "\n".join([*part, ""])
            part, size = [], 0
        start = 0
        while len(line) - start > LONGEST_PART:
            space = line.rfind(" ", start + 1, start + LONGEST_PART)
            end = start + LONGEST_PART if space < 0 else space
            yield "\n".join([*part, line[start:end]])
            part, size, start = [], 0, end
        part.append(line[start:])
        size += len(line) - start + 1
    if part:
        yield "\n".join(part)


def _documents(path: str, kind: Documents) -> Iterator[tuple[int, str]]:
    """Yield the line that each document begins at, and its text; empty lines are documents too.

    Of blocks between blank lines, none is empty.
    """
    if kind == "line":
        yield from enumerate(_lines(path), start=1)
        return
    block: list[str] = []
    number = 0
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), "\n".join(block)
            block = []
    if block:
        yield number - len(block) + 1, "\n".join(block)


def _lines(path: str, *, ends: bool = False) -> Iterator[str]:
    empty = True
    for line in read_lines(path, ends=ends):
        empty = False
        yield line
    if empty:
        raise empty_file(path)
