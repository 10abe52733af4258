"""Which family a checkpoint is of, and the file that reads it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from regard.errors import CheckpointError
from regard.weights.foreign import (
    bart,
    bert,
    distilbert,
    gpt2,
    joeynmt,
    llama,
    marian,
    marian_binary,
    opennmt,
    t5,
    torch_transformer,
)
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.generation import notes_of_generation
from regard.weights.foreign.marian_binary import is_marian_binary
from regard.weights.foreign.model import Family, ForeignModel

_FAMILIES: Final[tuple[Family, ...]] = (
    marian.FAMILY,
    gpt2.FAMILY,
    llama.FAMILY,
    bert.FAMILY,
    distilbert.FAMILY,
    t5.FAMILY,
    bart.FAMILY,
    torch_transformer.FAMILY,
    opennmt.FAMILY,
    joeynmt.FAMILY,
)
_BY_TYPE: Final[Mapping[str, Family]] = {
    name: family for family in _FAMILIES for name in family.types
}
_BINARY: Final = "marian-binary"
FORMATS: Final = (*sorted(_BY_TYPE), _BINARY)

_BOUNDS: Final = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def read(
    path: str | Path, *, source_format: str | None = None, allow_pickle: bool = False
) -> ForeignModel:
    """Read a checkpoint from elsewhere.

    Args:
        path: the folder that holds it.
        source_format: the family; left out, what config.json says.
        allow_pickle: whether torch's weights-only loader may open a file of torch.save.

    Raises:
        CheckpointError: it is missing, damaged, of no family that is known, or has settings
            that no model here can honour.
    """
    if source_format == _BINARY or (source_format is None and is_marian_binary(Path(path))):
        return marian_binary.read(Path(path))
    if source_format is not None and source_format not in FORMATS:
        raise CheckpointError(
            f"there is no format {source_format!r}, wanted one of {', '.join(FORMATS)}",
            where="--from",
        )
    folder = ForeignFolder(Path(path), kind=source_format, allow_pickle=allow_pickle)
    if folder.kind not in _BY_TYPE:
        found = f"model_type = {folder.kind}" if folder.kind else "no model_type"
        raise CheckpointError(
            f"config.json has {found}, wanted one of {', '.join(FORMATS)}",
            where=folder.where,
            hint="" if folder.kind else "Say which it is with --from.",
        )
    family = _BY_TYPE[folder.kind]
    keys = folder.keys()
    if any(name not in family.architectures for name in keys.texts("architectures")):
        wanted = f"one of {', '.join(family.architectures)}" if family.architectures else "none"
        keys.refuse("architectures", wanted)
    try:
        model = family.read(folder)
    except ValidationError as error:
        problem = _mistakes(error, folder.values)
        raise CheckpointError(problem, where=folder.keys().where) from None
    if model.family == "encoder":
        return model
    return replace(model, notes=(*model.notes, *notes_of_generation(folder, model)))


def _mistakes(error: ValidationError, values: Mapping[str, Any]) -> str:
    """What is wrong with our config, in the keys and values that it was made of."""
    said = []
    for mistake in error.errors():
        message = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "value_error":
            parts = re.findall(r"(\w+(?:\.\w+)*) = (-?[\d.]+)", message)
            found = {_theirs(name, float(value), values): value for name, value in parts}
            told = " and ".join(f"{name} = {value}" for name, value in found.items() if name)
            said.append(f"{told} can't go together: {message}" if told else message)
            continue
        given = mistake["input"]
        ours = ".".join(str(part) for part in mistake["loc"])
        name = _theirs(ours, given, values) or ours
        bounds = mistake.get("ctx", {})
        wanted = " and ".join(f"{_BOUNDS[key]} {bounds[key]:g}" for key in _BOUNDS if key in bounds)
        wanted = f"a number that is {wanted}" if wanted else f"another value ({message})"
        said.append(f"{name} = {given} can't be honoured, wanted {wanted}")
    return "; ".join(dict.fromkeys(said))


def _theirs(ours: str, given: object, values: Mapping[str, Any]) -> str:
    """The key of config.json that gave one of our keys its value: the nearest with that value."""
    same = [
        name
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value == given
    ]
    own = ours.rpartition(".")[2]
    return max(same, key=lambda name: SequenceMatcher(None, own, name).ratio(), default="")
