"""The items of a Marian binary file, right ones and broken ones."""

import random
import struct
from pathlib import Path

import pytest
import torch
from weights.foreign.marian_files import (
    FLOAT16,
    FLOAT64,
    INTGEMM8,
    Written,
    file_bytes,
    floats,
    int8,
    text,
    write,
)

from regard.errors import CheckpointError
from regard.weights.foreign.marian_items import read_items

WIDE = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.5, -6.0]])  # 2 inputs, 3 outputs
ITEMS = {
    "W": floats(WIDE),
    "half": floats(WIDE, FLOAT16),
    "double": floats(WIDE, FLOAT64),
    "W8": int8(WIDE, 10.0, transposed=True),
    "Wemb": int8(WIDE, 10.0, transposed=False),
    "b": floats(torch.tensor([1.0, 2.0, 3.0])),
    "special:model.yml": text("type: transformer\n"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "model.bin", ITEMS)


def said(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        for item in read_items(path).values():
            item.matrix()
    assert caught.value.where == str(path)
    return caught.value.problem


def test_every_type_is_read(path: Path) -> None:
    items = read_items(path)
    assert list(items) == list(ITEMS)
    assert torch.equal(items["b"].vector(), torch.tensor([1.0, 2.0, 3.0]))
    assert items["special:model.yml"].text() == "type: transformer\n"
    for name in ("W", "half", "double", "Wemb"):
        assert torch.equal(items[name].matrix(), WIDE), name


def test_the_matrix_of_a_product_is_turned_once(path: Path) -> None:
    items = read_items(path)
    for name in ("W", "half", "double", "W8"):
        assert torch.equal(items[name].linear(), WIDE.T), name
        assert items[name].linear().is_contiguous()


def test_int8_is_divided_by_its_scale(tmp_path: Path) -> None:
    value = torch.tensor([[0.111, -0.222], [1.27, 0.004]])
    items = read_items(write(tmp_path / "m", {"W": int8(value, 100.0, transposed=True)}))
    assert torch.equal(items["W"].linear(), torch.tensor([[11.0, 127.0], [-22.0, 0.0]]) / 100)


def test_a_file_cut_off_at_any_byte_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match="ends too soon"):
            read_items(path)


def test_flipped_bytes_give_an_answer_or_a_plain_error(path: Path) -> None:
    data = path.read_bytes()
    random.seed(0)
    refused = 0
    head = 2 * 8 + len(ITEMS) * 40 + 100  # where every byte is a size, a type or a name
    for place in [*range(head), *random.choices(range(head, len(data)), k=200)]:
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[place] ^= flip
            path.write_bytes(broken)
            try:
                for name, item in read_items(path).items():
                    item.text() if name.startswith("special") else item.linear()
            except CheckpointError:
                refused += 1
    assert refused > head


@pytest.mark.parametrize("count", [2**63, 2**40, 10_000_000])
def test_a_number_of_items_that_the_file_cannot_hold(path: Path, count: int) -> None:
    path.write_bytes(struct.pack("<QQ", 1, count))
    assert said(path) == (
        f"the file ends too soon: a table of {count:,} items needs {count * 32:,} bytes, and "
        "there are 0"
    )


def test_other_versions_and_other_files(path: Path) -> None:
    path.write_bytes(file_bytes(ITEMS, version=2))
    assert said(path) == "this is not a Marian binary model: its version is 2, and regard reads 1"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert said(path).startswith("this is not a Marian binary model: its version is ")
    path.write_bytes(file_bytes({"W\x07": ITEMS["W"]}))
    assert said(path) == "this is not a Marian binary model: an item has the name b'W\\x07\\x00'"


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (
            Written(0x0404, (2**30, 2**30), bytes(256)),
            f"the file is damaged: W has 256 bytes, and its shape (1073741824, 1073741824) "
            f"needs {2**62:,}",
        ),
        (Written(0x0404, (2, -3), bytes(24)), "W has the shape (2, -3)"),
        (Written(0x0404, (2,) * 9, bytes(2048)), "W has 9 axes"),
        (
            Written(0x0404, (2, 3), bytes(512)),
            "the file is damaged: W has 512 bytes, and its shape (2, 3) needs 24",
        ),
        (
            Written(0x0404, (2, 3, 1), bytes(24)),
            "the file is damaged: W has the shape (2, 3, 1) where two axes were wanted",
        ),
        (
            Written(INTGEMM8, (2, 3), bytes(256)),
            "the file is damaged: W has the scale 0.0, which no int8 array can have",
        ),
        (
            Written(0x0404, (1, 1), struct.pack("<f", float("nan"))),
            "the file is damaged: W holds numbers that are not finite",
        ),
        (
            Written(0x5101, (2, 3), bytes(256)),
            "W has the type 0x5101; regard reads float16, float32, float64 and intgemm8 (0x4101)",
        ),
    ],
)
def test_what_an_item_cannot_be(path: Path, item: Written, problem: str) -> None:
    write(path, {"W": item})
    assert said(path).removeprefix("this is not a Marian binary model: ") == problem


def test_two_items_of_one_name(path: Path) -> None:
    data = file_bytes({"W1": ITEMS["W"], "W2": ITEMS["W"]}).replace(b"W2\0", b"W1\0")
    path.write_bytes(data)
    assert said(path) == "this is not a Marian binary model: two items have one name"
