"""Small model files: what low-rank adaptation trained, and the run that the rest is in."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from regard.errors import RunFolderError
from regard.weights.layout import MODEL

if TYPE_CHECKING:
    from torch import Tensor

    from regard.weights.run_folder import RunFolder

_BASE: Final = "lora_base"
_SUM: Final = "lora_base_sha256"
_ALPHA: Final = "lora_alpha"
_WITHOUT: Final = "lora_without"


def adapter_notes(
    base: "RunFolder", path: Path, alpha: float, names: Collection[str]
) -> dict[str, str]:
    """What a small model file must say of the run `base` that it adds to.

    Args:
        base: the run that the frozen weights are in.
        path: the folder of the run that the file is written to.
        alpha: the strength of the sums.
        names: all weights of the adapted model, by their names in files; what else the base has
            (another head, say) is no part of it.
    """
    return {
        _BASE: os.path.relpath(base.path.resolve(), path.resolve()),
        _SUM: base.sha256(MODEL),
        _ALPHA: repr(alpha),
        _WITHOUT: json.dumps(sorted(set(base.load_weights()) - set(names))),
    }


def is_adapter(notes: Mapping[str, str]) -> bool:
    """Whether the notes are those of a small model file."""
    return _BASE in notes


def base_path(notes: Mapping[str, str]) -> str:
    """Where the run that a small model file adds to is, seen from the file's folder."""
    return notes[_BASE]


def base_sum(notes: Mapping[str, str]) -> str:
    """The sum of the model that a small model file adds to; empty for a whole model's notes."""
    return notes.get(_SUM, "")


def complete(
    folder: Path, tensors: Mapping[str, "Tensor"], notes: Mapping[str, str]
) -> dict[str, "Tensor"]:
    """All weights of a model whose file holds only what adaptation trained.

    Raises:
        RunFolderError: the run that it adds to is missing, damaged, or not the one it was.
    """
    from regard.nn.lora import merged_weights  # noqa: PLC0415 - imports torch
    from regard.weights.run_folder import RunFolder  # noqa: PLC0415 - that module imports this one

    where = Path(os.path.normpath(folder.resolve() / notes[_BASE]))
    try:
        base = RunFolder.open(where)
    except RunFolderError as error:
        raise RunFolderError(
            f"the run that it was adapted from can't be used: {error}",
            where=str(folder),
            hint="Bring that run back. A run made with regard merge needs no other.",
        ) from None
    if base.sha256(MODEL) != notes[_SUM]:
        raise RunFolderError(
            f"the run that it was adapted from, {where}, has another model now",
            where=str(folder),
            hint="Bring its former model back. A run made with regard merge needs no other.",
        )
    without = set(json.loads(notes[_WITHOUT]))
    kept = {name: tensor for name, tensor in base.load_weights().items() if name not in without}
    try:
        return merged_weights(kept, tensors, float(notes[_ALPHA]))
    except (KeyError, RuntimeError) as error:
        raise RunFolderError(
            f"{MODEL} does not fit the run that it was adapted from, {where}: {error}",
            where=str(folder),
        ) from None
