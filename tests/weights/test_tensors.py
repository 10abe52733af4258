"""safetensors files: the same bits back, and a file that the safetensors library reads."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from regard.errors import RunFolderError
from regard.weights.arrays import read_arrays
from regard.weights.files import write_file
from regard.weights.header import read_metadata, read_shapes
from regard.weights.tensors import read_tensors, tensor_chunks

KINDS = {
    "float64": torch.randn(3, 2, dtype=torch.float64),
    "float32": torch.tensor([[float("nan"), -0.0], [float("inf"), 1e-45]]),
    "float16": torch.randn(5).half(),
    "bfloat16": torch.randn(3).bfloat16(),
    "int64": torch.tensor([-(2**63), 2**63 - 1]),
    "int32": torch.tensor([[1]], dtype=torch.int32),
    "uint8": torch.arange(7, dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 4),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "every other": torch.arange(10)[::2],
    'quote " and ü': torch.ones(1),
}


def same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    both = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (ours, theirs)]
    return torch.equal(*both)


def test_tensors_of_every_kind_come_back_to_the_bit(tmp_path: Path) -> None:
    write_file(tmp_path / "a", tensor_chunks(KINDS, {"note": "x"}))
    found = read_tensors(tmp_path / "a")
    assert found.keys() == KINDS.keys()
    assert all(same_bits(found[name], KINDS[name]) for name in KINDS)
    assert read_metadata(tmp_path / "a") == {"note": "x"}


def test_numpy_reads_the_same_without_torch(tmp_path: Path) -> None:
    write_file(tmp_path / "a", tensor_chunks(KINDS | {"tied": KINDS["int64"]}))
    found = read_arrays(tmp_path / "a")
    wanted = read_tensors(tmp_path / "a")
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        tensor = wanted[name].float() if wanted[name].dtype == torch.bfloat16 else wanted[name]
        assert same_bits(torch.from_numpy(array.copy()), tensor), name
    assert found["tied"] is found["int64"]
    assert read_shapes(tmp_path / "a") == {name: tuple(each.shape) for name, each in wanted.items()}


def test_the_safetensors_library_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    data = b"".join(tensor_chunks(KINDS))
    theirs = safetensors.torch.load(data)
    assert all(same_bits(theirs[name], KINDS[name]) for name in KINDS)
    plain = {name: tensor.contiguous() for name, tensor in KINDS.items()}
    safetensors.torch.save_file(plain, tmp_path / "b")
    found = read_tensors(tmp_path / "b")
    assert all(same_bits(found[name], KINDS[name]) for name in KINDS)


def test_tied_weights_are_written_once_and_come_back_tied(tmp_path: Path) -> None:
    shared = torch.randn(100, 8)
    tied = {"b.weight": shared, "a.weight": shared, "c.weight": shared.clone()}
    record = write_file(tmp_path / "a", tensor_chunks(tied))
    assert record.size < 2.5 * shared.numel() * 4
    found = read_tensors(tmp_path / "a")
    assert found["a.weight"] is found["b.weight"]
    assert found["c.weight"] is not found["a.weight"]
    assert all(same_bits(found[name], tied[name]) for name in tied)
    assert read_metadata(tmp_path / "a") == {}


def test_a_view_of_another_tensor_is_not_taken_for_it(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    views = {"whole": whole, "part": whole[:3], "grid": whole.view(2, 3)}
    write_file(tmp_path / "a", tensor_chunks(views))
    found = read_tensors(tmp_path / "a")
    assert all(same_bits(found[name], views[name]) for name in views)


def test_the_same_tensors_give_the_same_bytes_in_any_order() -> None:
    backwards = dict(reversed(KINDS.items()))
    assert b"".join(tensor_chunks(KINDS)) == b"".join(tensor_chunks(backwards))


def test_a_file_that_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x80\x04pickle")
    with pytest.raises(RunFolderError, match="this is not a whole safetensors file"):
        read_tensors(tmp_path / "a")
    with pytest.raises(RunFolderError, match=r"b: the file is missing$"):
        read_tensors(tmp_path / "b")


def test_a_type_that_cannot_be_saved_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ValueError, match=r"a: a tensor of torch\.complex64 can't be saved"):
        next(tensor_chunks({"a": torch.zeros(1, dtype=torch.complex64)}))
