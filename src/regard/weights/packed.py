"""The file of weights as the engine uses them: written once, mapped by whoever translates.

```
0   8 bytes   magic: 93 52 47 50 41 43 4b 0a
8   u32       version: 1
12  u32       CRC-32 of the header
16  u64       bytes of the header, which begins at 64
24  u64       bytes of the file
32  32 bytes  zeros
64  header    JSON: {"dtype": "int8", "notes": {}, "sections": {name: [offset, bytes, CRC-32]}}
    sections  each at a multiple of 64, zeros between them
```

Numbers are little-endian. What a section holds is said in docs/engine.md.
"""

import json
import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.counts import counted
from regard.errors import RunFolderError
from regard.weights.files import Bytes, blames

_MAGIC: Final = b"\x93RGPACK\n"
_VERSION: Final = 1
_FIXED: Final = struct.Struct("<8sIIQQ32x")
_LINE: Final = 64

Sections = Mapping[str, NDArray[np.uint8]]


@dataclass(frozen=True)
class PackedWeights:
    """What a packed file holds; the sections are mapped from it, and must not be written to.

    `sums` are the CRC-32 of the sections, which `problem` looks at.
    """

    dtype: str
    notes: Mapping[str, str]
    sections: Sections
    sums: Mapping[str, int]

    def problem(self) -> str:
        """Which section is not as it was written; an empty string if all are."""
        for name, data in self.sections.items():
            if zlib.crc32(data.data) != self.sums[name]:
                return f"section {name} is not as it was written (CRC-32)"
        return ""


def packed_chunks(sections: Sections, dtype: str, notes: Mapping[str, str]) -> Iterator[Bytes]:
    """The bytes of a packed file, a section at a time.

    Args:
        sections: bytes by name.
        dtype: what matrices are held in.
        notes: where the weights come from.
    """
    names = sorted(sections)
    table: dict[str, list[int]] = {}
    size = 0
    # The header's length says where sections begin, and they say how long it is: leave room.
    sums = {name: zlib.crc32(sections[name].data) for name in names}
    start = _LINE + _in_lines(len(_header(dict.fromkeys(names, [2**53] * 3), dtype, notes)))
    end = start
    for name in names:
        table[name] = [end, sections[name].nbytes, sums[name]]
        size = end + sections[name].nbytes
        end = _in_lines(size)
    header = _header(table, dtype, notes).ljust(start - _LINE)
    yield _FIXED.pack(_MAGIC, _VERSION, zlib.crc32(header), len(header), max(size, start)) + header
    for name in names:
        offset, count, _ = table[name]
        yield sections[name].data
        if name != names[-1]:
            yield bytes(_in_lines(offset + count) - offset - count)


def read_packed(path: Path) -> PackedWeights:
    """Map a packed file. Its sections are not read, only its header is.

    Raises:
        RunFolderError: it is missing, cut, damaged, or of a later version.
    """
    with blames(path, "cannot be read"):
        try:
            with path.open("rb") as stream:
                size = stream.seek(0, 2)
                data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except FileNotFoundError:
            raise RunFolderError("the file is missing", where=str(path)) from None
    try:
        return _read(data)
    except _BadError as error:
        raise RunFolderError(
            f"this is not a whole file of packed weights: {error}",
            where=str(path),
            hint="Make it again with regard quantize.",
        ) from None


class _BadError(Exception):
    """What is wrong with a file."""


def _read(data: mmap.mmap | bytes) -> PackedWeights:
    _require(len(data) >= _FIXED.size, f"it has {counted(len(data), 'byte')}")
    magic, version, crc, header_bytes, file_bytes = _FIXED.unpack_from(data)
    _require(magic == _MAGIC, "it begins otherwise")
    _require(version == _VERSION, f"it has version {version}, and {_VERSION} is known here")
    found = counted(len(data), "byte")
    _require(file_bytes == len(data), f"it has {found} and should have {file_bytes:,}")
    _require(header_bytes <= len(data) - _FIXED.size, "its header is longer than the file")
    head = bytes(data[_FIXED.size : _FIXED.size + header_bytes])
    _require(zlib.crc32(head) == crc, "its header is damaged (CRC-32)")
    try:
        header = json.loads(head)
    except (ValueError, RecursionError):
        header = None
    _require(isinstance(header, dict), "its header is no JSON object")
    dtype, notes, table = (header.get(key) for key in ("dtype", "notes", "sections"))
    _require(isinstance(dtype, str), "its header names no dtype")
    _require(
        isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values()),
        "its notes are no strings",
    )
    _require(isinstance(table, dict), "its header lists no sections")
    whole = np.frombuffer(data, np.uint8)
    first = _FIXED.size + header_bytes
    sections = {name: _section(whole, first, name, entry) for name, entry in table.items()}
    return PackedWeights(dtype, notes, sections, {name: each[2] for name, each in table.items()})


def _section(whole: NDArray[np.uint8], first: int, name: str, entry: object) -> NDArray[np.uint8]:
    if not (
        isinstance(entry, list) and len(entry) == 3 and all(type(each) is int for each in entry)
    ):
        raise _BadError(f"section {name!r} has no offset, size and sum")
    offset, count, _ = entry
    _require(
        first <= offset <= len(whole) and 0 <= count <= len(whole) - offset,
        f"section {name!r} is not within the file",
    )
    _require(offset % _LINE == 0, f"section {name!r} does not begin at a multiple of {_LINE}")
    return whole[offset : offset + count]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _BadError(otherwise)


def _header(table: Mapping[str, Any], dtype: str, notes: Mapping[str, str]) -> bytes:
    return json.dumps({"dtype": dtype, "notes": dict(notes), "sections": table}).encode()


def _in_lines(size: int) -> int:
    return (size + _LINE - 1) // _LINE * _LINE
