"""The file of packed weights: what is written comes back, and nothing hostile is believed."""

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.errors import RunFolderError
from regard.weights.packed import packed_chunks, read_packed

SECTIONS = {
    "a:0": np.arange(200, dtype=np.uint8),
    "a:0:bias": np.zeros(64, np.uint8),
    "an empty one": np.zeros(0, np.uint8),
    "b": np.full(1, 7, np.uint8),
}


def made(sections: Any = SECTIONS) -> bytes:
    return b"".join(bytes(each) for each in packed_chunks(sections, "int8", {"step": "3"}))


def signed(data: bytes, header: bytes) -> bytes:
    """The file with another header and a sum that fits it."""
    (length,) = struct.unpack_from("<Q", data, 16)
    start = struct.pack("<II Q Q", 1, zlib.crc32(header), len(header), 0)
    whole = data[:8] + start + bytes(32) + header + data[64 + length :]
    return whole[:24] + struct.pack("<Q", len(whole)) + whole[32:]


def test_sections_come_back_where_the_processor_wants_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(made())
    found = read_packed(tmp_path / "a")
    assert (found.dtype, found.notes, found.problem()) == ("int8", {"step": "3"}, "")
    assert found.sections.keys() == SECTIONS.keys()
    for name, data in SECTIONS.items():
        assert (found.sections[name] == data).all()
        assert found.sections[name].ctypes.data % 64 == 0 or not len(data)
        assert not found.sections[name].flags.writeable


def test_the_same_sections_give_the_same_bytes() -> None:
    assert made() == made(dict(reversed(SECTIONS.items())))


def test_every_truncation_and_every_changed_byte_of_the_header_is_refused(tmp_path: Path) -> None:
    data, path = made(), tmp_path / "a"
    (length,) = struct.unpack_from("<Q", data, 16)
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(RunFolderError, match="not a whole file of packed weights"):
            read_packed(path)
    for place in [*range(32), *range(64, 64 + length)]:
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(RunFolderError, match="not a whole file of packed weights"):
            read_packed(path)
    path.write_bytes(data + b"x")
    with pytest.raises(RunFolderError, match="should have"):
        read_packed(path)


def test_a_changed_byte_of_a_section_is_found_when_asked_for(tmp_path: Path) -> None:
    data = bytearray(made())
    data[-1] ^= 1
    (tmp_path / "a").write_bytes(data)
    assert "is not as it was written (CRC-32)" in read_packed(tmp_path / "a").problem()


@pytest.mark.parametrize(
    "entry",
    [
        None, 7, [], [0], [0, 1], "abc", [0, 1, 2, 3], [0.5, 1, 2], [True, 1, 2], ["64", 1, 2],
        [0, 1, 0], [64, 1, 0], [-64, 1, 0], [2**63, 1, 0], [2**64, 2**64, 0], [512, -1, 0],
        [512, 2**63, 0], [512, 2**64 - 512, 0], [513, 1, 0], [10**40, 1, 0],
    ],
    ids=str,
)  # fmt: skip
def test_hostile_sizes_and_offsets_are_refused_though_the_sum_fits(
    tmp_path: Path, entry: Any
) -> None:
    data = made()
    header = json.dumps({"dtype": "int8", "notes": {}, "sections": {"a:0": entry}})
    (tmp_path / "a").write_bytes(signed(data, header.encode().ljust(448)))
    with pytest.raises(RunFolderError, match="section 'a:0'"):
        read_packed(tmp_path / "a")


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"dtype": 1, "notes": {}, "sections": {}}',
     b'{"dtype": "int8", "notes": [], "sections": {}}',
     b'{"dtype": "int8", "notes": {"a": 1}, "sections": {}}',
     b'{"dtype": "int8", "notes": {}, "sections": []}'],
)  # fmt: skip
def test_headers_of_another_shape_are_refused_though_the_sum_fits(
    tmp_path: Path, header: bytes
) -> None:
    (tmp_path / "a").write_bytes(signed(made(), header))
    with pytest.raises(RunFolderError, match=r"its header|its notes"):
        read_packed(tmp_path / "a")


def test_any_header_that_is_not_refused_lists_what_lies_in_the_file(tmp_path: Path) -> None:
    data, draw, path = made(), random.Random(1), tmp_path / "a"
    (length,) = struct.unpack_from("<Q", data, 16)
    whole, opened = data[64 : 64 + length], 0
    for _ in range(3000):
        header = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            header[draw.randrange(len(header))] = draw.choice(b'0123456789-[]{},:"e. \x00\xff')
        path.write_bytes(signed(data, bytes(header)))
        try:
            found = read_packed(path)
        except RunFolderError:
            continue
        opened += 1
        assert all(isinstance(each.tobytes(), bytes) for each in found.sections.values())
    assert 100 < opened < 2900
