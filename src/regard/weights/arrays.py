"""The tensors of a safetensors file as arrays, without PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.weights.header import NOTES, read_header, tied_in

_BFLOAT16: Final = "BF16"
_DTYPES: Final = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    _BFLOAT16: np.uint16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file, by name, mapped from it and not to be written to.

    Tied names share one. NumPy has no bfloat16: such tensors come as float32, which holds them.

    Raises:
        RunFolderError: the file is missing, or it is no safetensors file.
    """
    header, start = read_header(path)
    tied = tied_in(header)
    data = np.memmap(path, np.uint8, mode="r")
    arrays = {name: _array(data[start:], entry) for name, entry in header.items() if name != NOTES}
    return arrays | {name: arrays[kept] for name, kept in tied.items()}


def _array(data: NDArray[np.uint8], entry: Mapping[str, Any]) -> NDArray[Any]:
    first, last = entry["data_offsets"]
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"an array of {entry['dtype']} can't be read")
    array = data[first:last].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    if entry["dtype"] == _BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
