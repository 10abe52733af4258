"""The items of a Marian binary file: names, shapes and numbers, no size believed unchecked."""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from regard.counts import counted
from regard.errors import CheckpointError
from regard.shapes import Float, Tensor
from regard.weights.files import read_file

INTGEMM8: Final = 0x4101
INT8: Final = 0x0101

_FLOATS: Final = {0x0402: torch.float16, 0x0404: torch.float32, 0x0408: torch.float64}
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<QQ")
_ENTRY: Final = struct.Struct("<4Q")
_LENGTH: Final = struct.Struct("<Q")
# Of a data block the end may be filled up to the next multiple of this.
_ALIGNMENT: Final = 256
_LONGEST_NAME: Final = 1024
_MOST_AXES: Final = 8


@dataclass(frozen=True, slots=True)
class Item:
    """A named array as it stands in the file; nothing is converted until it is asked for."""

    where: str
    name: str
    kind: int
    shape: tuple[int, ...]
    data: memoryview

    def text(self) -> str:
        """The item as text, without the zero bytes at its end.

        Raises:
            CheckpointError: it is not text.
        """
        if self.kind != INT8:
            raise self._bad(f"has the type {self.kind:#06x}, and text has {INT8:#06x}")
        try:
            return self.data.tobytes().rstrip(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise self._bad("is not UTF-8") from None

    def matrix(self) -> Float[Tensor, "rows columns"]:
        """An array that Marian stores as it is, such as an embedding; float32.

        Raises:
            CheckpointError: it is not of two axes, or its numbers can't be read.
        """
        rows, columns = self._two_axes()
        return self._numbers().view(rows, columns)

    def linear(self) -> Float[Tensor, "columns rows"]:
        """The matrix of a product `x W`, turned to `columns rows` as torch wants it; float32.

        Marian stores an int8 matrix turned already and others as they are.

        Raises:
            CheckpointError: it is not of two axes, or its numbers can't be read.
        """
        rows, columns = self._two_axes()
        if self.kind == INTGEMM8:
            return self._numbers().view(columns, rows)
        return self._numbers().view(rows, columns).T.contiguous()

    def vector(self) -> Float[Tensor, " size"]:
        """An array of one row; float32.

        Raises:
            CheckpointError: it has more rows, or its numbers can't be read.
        """
        if math.prod(self.shape[:-1]) != 1:
            raise self._bad(f"has the shape {self.shape} where a single row was wanted")
        return self._numbers()

    def _two_axes(self) -> tuple[int, int]:
        if len(self.shape) != 2:
            raise self._bad(f"has the shape {self.shape} where two axes were wanted")
        return self.shape[0], self.shape[1]

    def _numbers(self) -> Tensor:
        size = math.prod(self.shape)
        numbers: Tensor
        if self.kind == INTGEMM8:
            self._require(size + 4)
            whole = torch.frombuffer(bytearray(self.data[:size]), dtype=torch.int8)
            (scale,) = struct.unpack_from("<f", self.data, size)
            if not math.isfinite(scale) or scale <= 0:
                raise self._bad(f"has the scale {scale}, which no int8 array can have")
            numbers = whole.to(torch.float32) / scale
        elif self.kind in _FLOATS:
            dtype = _FLOATS[self.kind]
            self._require(size * dtype.itemsize)
            held = bytearray(self.data[: size * dtype.itemsize])
            numbers = torch.frombuffer(held, dtype=dtype).to(torch.float32)
        else:
            raise CheckpointError(
                f"{self.name} has the type {self.kind:#06x}; regard reads float16, float32, "
                f"float64 and intgemm8 ({INTGEMM8:#06x})",
                where=self.where,
                hint="A model packed for one kind of processor can't be read: use the file that "
                "it was made from.",
            )
        if not bool(numbers.isfinite().all()):
            raise self._bad("holds numbers that are not finite")
        return numbers

    def _require(self, size: int) -> None:
        if size == 0 or not size <= len(self.data) < size + _ALIGNMENT:
            found = counted(len(self.data), "byte")
            raise self._bad(f"has {found}, and its shape {self.shape} needs {size:,}")

    def _bad(self, problem: str) -> CheckpointError:
        return CheckpointError(f"the file is damaged: {self.name} {problem}", where=self.where)


class _Cursor:
    """Walks through the bytes of a file and never past their end."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.data = memoryview(read_file(path))
        self.place = 0

    def take(self, size: int, what: str) -> memoryview:
        left = len(self.data) - self.place
        if size > left:
            raise CheckpointError(
                f"the file ends too soon: {what} needs {counted(size, 'byte')}, and there are "
                f"{left:,}",
                where=self.where,
                hint="Copy it again from where it came from, whole.",
            )
        self.place += size
        return self.data[self.place - size : self.place]

    def bad(self, problem: str) -> CheckpointError:
        return CheckpointError(f"this is not a Marian binary model: {problem}", where=self.where)


def read_items(path: Path) -> dict[str, Item]:
    """All items of a file, by name.

    Every size that the file states is compared with what is left of it before it is used.

    Raises:
        CheckpointError: the file is missing, cut off or not of this format.
    """
    cursor = _Cursor(path)
    version, count = _HEAD.unpack(cursor.take(_HEAD.size, "the head"))
    if version != _VERSION:
        raise cursor.bad(f"its version is {version}, and regard reads {_VERSION}")
    table = cursor.take(count * _ENTRY.size, f"a table of {counted(count, 'item')}")
    entries = list(_ENTRY.iter_unpack(table))
    names = [_name(cursor, entry[0]) for entry in entries]
    if len({*names}) != len(names):
        raise cursor.bad("two items have one name")
    shapes = [_shape(cursor, entry[2], name) for entry, name in zip(entries, names, strict=True)]
    (gap,) = _LENGTH.unpack(cursor.take(_LENGTH.size, "the alignment"))
    cursor.take(gap, "the alignment")
    items = {}
    for (_, kind, _, size), name, shape in zip(entries, names, shapes, strict=True):
        items[name] = Item(cursor.where, name, kind, shape, cursor.take(size, name))
    return items


def _name(cursor: _Cursor, size: int) -> str:
    if not 1 < size <= _LONGEST_NAME:
        raise cursor.bad(f"an item's name has {counted(size, 'byte')}")
    name = cursor.take(size, "a name").tobytes()
    try:
        text = name.removesuffix(b"\0").decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        raise cursor.bad(f"an item has the name {name!r}")
    return text


def _shape(cursor: _Cursor, axes: int, name: str) -> tuple[int, ...]:
    if not 0 < axes <= _MOST_AXES:
        raise cursor.bad(f"{name} has {axes} axes")
    shape = struct.unpack(f"<{axes}i", cursor.take(4 * axes, f"the shape of {name}"))
    if min(shape) < 1:
        raise cursor.bad(f"{name} has the shape {shape}")
    return tuple(shape)
