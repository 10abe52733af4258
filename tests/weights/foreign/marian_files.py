"""Writes files as Marian does, to be read, cut off and broken."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

FLOAT16, FLOAT32, FLOAT64, TEXT, INTGEMM8 = 0x0402, 0x0404, 0x0408, 0x0101, 0x4101
_ALIGNMENT = 256


@dataclass(frozen=True)
class Written:
    """An item to write, its bytes ready."""

    kind: int
    shape: tuple[int, ...]
    data: bytes


def floats(tensor: Tensor, kind: int = FLOAT32) -> Written:
    """An array as it is; a vector becomes a row."""
    shape = tuple(tensor.shape) if tensor.ndim > 1 else (1, len(tensor))
    dtype = {FLOAT16: torch.float16, FLOAT32: torch.float32, FLOAT64: torch.float64}[kind]
    return Written(kind, shape, _filled(tensor.detach().to(dtype).contiguous().numpy().tobytes()))


def int8(tensor: Tensor, scale: float, *, transposed: bool) -> Written:
    """Numbers `round(value * scale)` and the scale; `tensor` has Marian's axes."""
    whole = (tensor.detach() * scale).round().clamp(-127, 127).to(torch.int8)
    stored = (whole.T if transposed else whole).contiguous()
    data = stored.numpy().tobytes() + struct.pack("<f", scale)
    return Written(INTGEMM8, tuple(tensor.shape), _filled(data))


def text(value: str) -> Written:
    """A text, ended by a zero byte."""
    data = value.encode() + b"\0"
    return Written(TEXT, (len(data),), data)


def file_bytes(items: Mapping[str, Written], *, version: int = 1) -> bytes:
    """The whole file."""
    names = [name.encode() + b"\0" for name in items]
    head = struct.pack("<QQ", version, len(items))
    for name, item in zip(names, items.values(), strict=True):
        head += struct.pack("<4Q", len(name), item.kind, len(item.shape), len(item.data))
    head += b"".join(names)
    for item in items.values():
        head += struct.pack(f"<{len(item.shape)}i", *item.shape)
    gap = -(len(head) + 8) % _ALIGNMENT
    head += struct.pack("<Q", gap) + bytes(gap)
    return head + b"".join(item.data for item in items.values())


def write(path: Path, items: Mapping[str, Written]) -> Path:
    path.write_bytes(file_bytes(items))
    return path


def _filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
