"""Lines in and out of files and pipes: only a newline ends a line, and text is UTF-8."""

import errno
import gzip
import io
import lzma
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from regard.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_text(path: str | Path) -> BufferedIOBase:
    """Open a plain, .gz, .xz or .zst file for reading bytes.

    Raises:
        DataError: there is no such file, it cannot be read, or .zst needs a missing package.
    """
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return gzip.GzipFile(path, "rb")
        if path.suffix == ".xz":
            return lzma.LZMAFile(path, "rb")
        if path.suffix == ".zst":
            return _open_zst(path)
        return path.open("rb")
    except FileNotFoundError:
        raise DataError("no such file", where=str(path), hint="check the path") from None
    except IsADirectoryError:
        raise DataError("wanted a file, found a folder", where=str(path)) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _open_zst(path: Path) -> BufferedIOBase:
    try:
        import zstandard  # noqa: PLC0415 - an optional package
    except ImportError:
        raise DataError(
            "reading .zst needs the package zstandard",
            where=str(path),
            hint="python -m pip install 'regard[zst]'",
        ) from None
    reader = zstandard.ZstdDecompressor().stream_reader(
        path.open("rb"), read_across_frames=True, closefd=True
    )
    return io.BufferedReader(reader)


def read_lines(
    source: str | Path | Iterable[bytes], *, name: str = "", ends: bool = False
) -> Iterator[str]:
    """Yield the lines of a file or a binary stream, without their ends.

    A line ends at a newline only; one carriage return before it is dropped, and so is a byte
    order mark at the very start. Nothing else is changed. A stream is read a line at a time, so
    a line typed on an open pipe is yielded before the next one comes.

    Args:
        source: a path (.gz, .xz and .zst are unpacked) or an open binary stream.
        name: what to call the stream in an error; a path names itself.
        ends: leave each line its newline; only the last may have none.

    Raises:
        DataError: the file is missing or damaged, or a line is not UTF-8.
    """
    if isinstance(source, (str, Path)):
        with open_text(source) as stream:
            yield from _decoded(stream, str(source), ends=ends)
    else:
        yield from _decoded(source, name or "standard input", ends=ends)


def _decoded(stream: Iterable[bytes], name: str, *, ends: bool) -> Iterator[str]:
    for number, raw in enumerate(_raw_lines(stream, name, ends=ends), start=1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"byte {error.start + 1} of the line is 0x{raw[error.start]:02x}, "
                "which is not valid UTF-8 here",
                where=f"{name}, line {number}",
                hint="convert the file, for example: iconv -f latin1 -t utf-8 OLD > NEW",
            ) from None


def _raw_lines(stream: Iterable[bytes], name: str, *, ends: bool) -> Iterator[bytes]:
    first = True
    end = b"\n" if ends else b""
    try:
        for raw in stream:
            line = raw
            if first:
                first = False
                line = line.removeprefix(BYTE_ORDER_MARK)
                if not line:
                    continue
            if line.endswith(b"\n"):
                line = line[:-1].removesuffix(b"\r") + end
            yield line
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(name, error) from None
    except Exception as error:
        # The optional package's error class and zlib's have no common base to name here.
        if type(error).__name__ in {"ZstdError", "error"}:
            raise _damaged(name, error) from None
        raise


def _damaged(name: str, error: Exception) -> DataError:
    return DataError(
        f"the compressed file is damaged or cut short ({str(error).rstrip('.')})",
        where=name,
        hint="fetch or pack the file again",
    )


def read_pairs(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield the (source, target) pairs of a TSV file; a quote is a character like any other.

    Raises:
        DataError: as `read_lines`, or a line does not hold exactly one tab.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if line.count("\t") != 1:
            raise DataError(
                "wanted one tab, between the source and the target, "
                f"found {line.count(chr(9)) or 'none'}",
                where=f"{path}, line {number}",
            )
        source, _, target = line.partition("\t")
        yield source, target


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Inside the block this file is written, and named where it can't be.

    Raises:
        DataError: it can't be.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise DataError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            hint="Free some space, then begin again." if full else "",
        ) from error


def write_line(stream: BinaryIO | BufferedIOBase, text: str) -> None:
    """Write one line of UTF-8; a newline inside the text becomes a space, so it stays one line."""
    stream.write(text.replace("\n", " ").encode("utf-8") + b"\n")
