"""Tensors to a safetensors file and back; tied ones are written once and come back tied."""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import torch

from regard.shapes import Tensor
from regard.weights.files import Bytes
from regard.weights.header import TIED, opened

_COMPILED: Final = "_orig_mod."
_ALIGNMENT: Final = 8
_DTYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def tensor_chunks(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[Bytes]:
    """The bytes of a safetensors file, one tensor at a time, so that no second copy is held.

    The same tensors give the same bytes, in whatever order they come. Names that share one
    tensor (tied weights) are written once, under the first name; the others are noted in the
    metadata and `read_tensors` ties them again.

    Source: the safetensors format, https://github.com/huggingface/safetensors#format.
    """
    tensors = {plain_name(name): tensor for name, tensor in tensors.items()}
    tied = tied_names(tensors)
    names = sorted(name for name in tensors if name not in tied)
    # Wide types first keep every tensor aligned to its type, which mapped reading relies on.
    names.sort(key=lambda name: -tensors[name].element_size())
    notes = dict(metadata or {})
    if tied:
        notes[TIED] = json.dumps(tied, sort_keys=True)
    header: dict[str, object] = {"__metadata__": notes} if notes else {}
    offset = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"{name}: a tensor of {tensor.dtype} can't be saved")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % _ALIGNMENT)
    yield struct.pack("<Q", len(head)) + head
    for name in names:
        yield _bytes_of(tensors[name])


def plain_name(name: str) -> str:
    """A weight's name without what `torch.compile` puts before those of a model it wraps."""
    return name.replace(_COMPILED, "")


def tied_names(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Names whose tensor is the very tensor of another name, to the first such name."""
    first: dict[tuple[object, ...], str] = {}
    tied: dict[str, str] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.numel() == 0:
            continue
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        kept = first.setdefault(key, name)
        if kept != name:
            tied[name] = kept
    return tied


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU; tied names share one tensor.

    Raises:
        RunFolderError: the file is missing, or it is no safetensors file.
    """
    tensors: dict[str, Tensor] = {}
    with opened(path, "pt") as stream:
        for name in stream.keys():  # noqa: SIM118 - the stream is no dict
            tensors[name] = stream.get_tensor(name)
        tied = json.loads((stream.metadata() or {}).get(TIED, "{}"))
    for name, kept in tied.items():
        tensors[name] = tensors[kept]
    return tensors


def _bytes_of(tensor: Tensor) -> Bytes:
    if tensor.numel() == 0:
        return b""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
