"""What a safetensors file says of itself: shapes and notes, without reading a tensor."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open

from regard.errors import RunFolderError
from regard.weights.files import blames

TIED: Final = "tied"  # the note that says which names share a tensor
NOTES: Final = "__metadata__"  # what stands for the notes where all else is a tensor's name

_LENGTH: Final = 8  # bytes that say how long the header is


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a file, by name, tied names too.

    Raises:
        RunFolderError: the file is missing, or it is no safetensors file.
    """
    header, _ = read_header(path)
    shapes = {name: tuple(entry["shape"]) for name, entry in header.items() if name != NOTES}
    return shapes | {name: shapes[kept] for name, kept in tied_in(header).items()}


def read_metadata(path: Path) -> dict[str, str]:
    """The notes that were saved with the tensors.

    Raises:
        As `read_shapes`.
    """
    notes = dict(read_header(path)[0].get(NOTES, {}))
    notes.pop(TIED, None)
    return notes


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """What a file says of its tensors, and where their bytes begin.

    Raises:
        As `read_shapes`.
    """
    with opened(path, "np"), path.open("rb") as stream:  # whose opening checks all of it
        length = int.from_bytes(stream.read(_LENGTH), "little")
        header: dict[str, Any] = json.loads(stream.read(length))
    return header, _LENGTH + length


def tied_in(header: Mapping[str, Any]) -> dict[str, str]:
    """The names that share another name's tensor."""
    tied: dict[str, str] = json.loads(header.get(NOTES, {}).get(TIED, "{}"))
    return tied


def opened(path: Path, framework: str) -> safe_open:
    """A safetensors file, opened, its header checked against its size.

    Raises:
        As `read_shapes`.
    """
    with blames(path, "cannot be read"):
        try:
            return safe_open(path, framework=framework)
        except FileNotFoundError:
            raise RunFolderError("the file is missing", where=str(path)) from None
        except SafetensorError as error:
            raise RunFolderError(
                f"this is not a whole safetensors file ({error})", where=str(path)
            ) from error
