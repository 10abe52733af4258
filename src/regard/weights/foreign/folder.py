"""A folder that other software wrote: its settings and weights, read suspiciously."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from regard.errors import CheckpointError, RunFolderError
from regard.shapes import Tensor
from regard.text.foreign import too_deep
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.table import unwrapped
from regard.weights.tensors import read_tensors

CONFIG: Final = "config.json"
_GENERATION: Final = "generation_config.json"
_SAFE: Final = "model.safetensors"
_PICKLED: Final = "pytorch_model.bin"
_ENDINGS: Final = ("*.pt", "*.ckpt")
_UNPICKLE: Final = (
    "Only torch's weights-only loader may open it, which runs no code of the file: "
    "say so with --allow-pickle."
)


class ForeignFolder:
    """A folder with config.json and model.safetensors, whole or in shards, or pytorch_model.bin.

    Args:
        path: the folder.
        kind: which of the model types it is; left out, what its config.json says.
        allow_pickle: whether torch's weights-only loader may open pytorch_model.bin.

    Raises:
        CheckpointError: there is no such folder, or its config.json is missing or no JSON.
    """

    def __init__(self, path: Path, *, kind: str | None = None, allow_pickle: bool = False) -> None:
        if not path.is_dir():
            if path.exists():
                raise CheckpointError(
                    "this is a file, and the folder that holds a checkpoint is wanted",
                    where=str(path),
                )
            raise CheckpointError("there is no such folder", where=str(path))
        self.path = path
        self.values = self._settings()
        self.kind = kind or self.keys().text("model_type", "")
        self._allow_pickle = allow_pickle

    @property
    def where(self) -> str:
        """The folder, for errors."""
        return str(self.path)

    def keys(self) -> Keys:
        """The settings, to be asked for key by key."""
        return Keys(self.values, str(self.path / CONFIG))

    def generation(self) -> Mapping[str, Any]:
        """How it is to be generated from: generation_config.json, or else config.json."""
        return {**self.values, **self._generation()}

    def tokens(self, name: str, size: int, *, of_model: bool = False) -> tuple[int, ...]:
        """All ids of a control token, as generation_config.json or else config.json says.

        Args:
            name: the key.
            size: how many ids there are.
            of_model: ask config.json alone.

        Raises:
            CheckpointError: there are no such ids; the key and its file are named.
        """
        generation = {} if of_model else self._generation()
        for file, values in ((CONFIG, self.values), (_GENERATION, generation)):
            if not all(type(one) is int and 0 <= one < size for one in _ids(values.get(name))):
                Keys(values, str(self.path / file)).refuse(
                    name, f"an id from 0 to {size - 1:,}, or several"
                )
        return tuple(_ids({**self.values, **generation}.get(name)))

    def token(self, name: str, size: int, *, of_model: bool = False) -> int | None:
        """The same; the first, where there are several.

        Raises:
            CheckpointError: as `tokens`.
        """
        return next(iter(self.tokens(name, size, of_model=of_model)), None)

    def search(self) -> dict[str, int]:
        """How wide it is to be searched, by the key of our config; empty where it doesn't say.

        Raises:
            CheckpointError: `num_beams` is no whole number from 1 on.
        """
        name = _GENERATION if "num_beams" in self._generation() else CONFIG
        keys = Keys(self.generation(), str(self.path / name))
        if "num_beams" not in keys:
            return {}
        beam = keys.whole("num_beams")
        if beam < 1:
            keys.refuse("num_beams", "a whole number from 1 on")
        return {"beam": beam}

    def read(self) -> "ForeignWeights":
        """All weights, on the CPU.

        Raises:
            CheckpointError: there are none, or a file is missing, damaged or unsafe.
        """
        names = (_SAFE, f"{_SAFE}.index.json", _PICKLED, f"{_PICKLED}.index.json")
        found = [name for name in names if present(self.path / name)]
        # What training programs leave: one file, by whatever name.
        found = found or sorted(path.name for end in _ENDINGS for path in self.path.glob(end))
        if not found:
            raise CheckpointError(
                f"the folder has no weights: wanted {_SAFE}, {_SAFE}.index.json or {_PICKLED}",
                where=self.where,
            )
        if found[0] not in names and len(found) > 1:
            raise CheckpointError(
                f"the folder has several files of weights: {', '.join(found)}",
                where=self.where,
                hint="Leave the one to import.",
            )
        files = [self.path / found[0]]
        if found[0].endswith(".index.json"):
            files = self._shards(files[0])
        weights: dict[str, Tensor] = {}
        for file in files:
            weights |= read_weights(file, allow_pickle=self._allow_pickle)
        return ForeignWeights(unwrapped(weights), self.where)

    def _generation(self) -> Mapping[str, Any]:
        path = self.path / _GENERATION
        return read_json(path) if present(path) else {}

    def _settings(self) -> Mapping[str, Any]:
        if not present(self.path / CONFIG):
            raise CheckpointError(
                f"the folder has no {CONFIG}",
                where=self.where,
                hint="Import a folder that transformers' save_pretrained wrote. For weights that "
                f"came without settings, write a {CONFIG}: docs/checkpoints.md says what is in it.",
            )
        return read_json(self.path / CONFIG)

    def _shards(self, index: Path) -> list[Path]:
        """The files that an index names; none may be outside of the folder."""
        table = read_json(index).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise CheckpointError("it has no table weight_map of file names", where=str(index))
        names = sorted(set(table.values()))
        for name in names:
            if Path(name).name != name or not name.endswith((".safetensors", ".bin")):
                raise CheckpointError(
                    f"{name!r} is no name of a weights file in this folder", where=str(index)
                )
        return [self.path / name for name in names]


class ForeignWeights(dict[str, Tensor]):
    """The weights of a checkpoint by its own names."""

    def __init__(self, weights: Mapping[str, Tensor], where: str) -> None:
        super().__init__(weights)
        self.where = where

    def without_prefix(self, prefix: str) -> "ForeignWeights":
        """The same with `prefix` taken off the names that have it."""
        return ForeignWeights(
            {name.removeprefix(prefix): weight for name, weight in self.items()}, self.where
        )

    def with_prefix(self, prefix: str, *, but: tuple[str, ...] = ()) -> "ForeignWeights":
        """The same with `prefix` before all names but those that begin with one of `but`."""
        return ForeignWeights(
            {
                name if name.startswith(but) else prefix + name: weight
                for name, weight in self.items()
            },
            self.where,
        )

    def but(self, *names: str) -> "ForeignWeights":
        """The same without some."""
        kept = {name: weight for name, weight in self.items() if name not in names}
        return ForeignWeights(kept, self.where)

    def has(self, prefix: str) -> bool:
        """Whether any name begins so."""
        return any(name.startswith(prefix) for name in self)

    def rows(self, name: str) -> int:
        """How many rows a weight has.

        Raises:
            CheckpointError: it is missing or no matrix.
        """
        if name not in self:
            raise CheckpointError(f"the weight {name} is missing", where=self.where)
        if self[name].ndim != 2:
            raise CheckpointError(
                f"{name} is {tuple(self[name].shape)}, wanted a matrix", where=self.where
            )
        return len(self[name])

    def notes(self) -> tuple[str, ...]:
        """What is to be said of the types of its numbers."""
        found = {w.dtype for w in self.values() if w.is_floating_point()} - {torch.float32}
        names = sorted(str(dtype).removeprefix("torch.") for dtype in found)
        return (f"its {' and '.join(names)} weights are float32 here",) if names else ()


def present(path: Path) -> bool:
    """Whether there is a file.

    Raises:
        CheckpointError: there is something else in its place, which is not to be opened.
    """
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError("this is no file (a folder, a pipe or the like)", where=str(path))
        return path.exists()
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", where=str(path)) from None


def read_json(path: Path) -> dict[str, Any]:
    """The table that a JSON file holds.

    Raises:
        CheckpointError: it can't be read, or holds something else.
    """
    present(path)
    try:
        # Some editors put a mark of the encoding before all else.
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not valid JSON: {error}", where=str(path)) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"wanted a table, found {type(value).__name__}", where=str(path))
    if too_deep(value):
        raise CheckpointError("its tables are nested too deep", where=str(path))
    return value


def read_weights(path: Path, *, allow_pickle: bool = False) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of one that torch.save wrote where that is allowed.

    Raises:
        CheckpointError: it is missing, damaged, holds other things, or may not be opened.
    """
    if path.suffix == ".safetensors":
        present(path)
        try:
            return read_tensors(path)
        except RunFolderError as error:
            raise CheckpointError(error.problem, where=error.where) from None
        except (KeyError, ValueError, TypeError, AttributeError):
            raise CheckpointError(
                "its notes on tied weights are damaged", where=str(path)
            ) from None
    values = read_pickled(path, allow_pickle=allow_pickle)
    for name in ("state_dict", "model_state", "model"):
        inner = values.get(name)
        if isinstance(inner, dict) and inner and _is_weights(inner):
            head = values.get("generator")  # OpenNMT-py keeps it apart
            apart = head if isinstance(head, dict) and _is_weights(head) else {}
            values = {**inner, **{f"generator.{part}": weight for part, weight in apart.items()}}
            break
    if others := [name for name in values if not isinstance(name, str)]:
        raise CheckpointError(f"wanted names of weights, found {others[0]!r:.80}", where=str(path))
    weights = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    if not weights or len(weights) != len(values):
        others = [str(name) for name in values if name not in weights]
        raise CheckpointError(
            f"wanted a table of tensors, found {', '.join(others[:5]) or 'an empty one'}",
            where=str(path),
        )
    return weights


def read_pickled(path: Path, *, allow_pickle: bool) -> dict[Any, Any]:
    """What torch.save wrote, by torch's weights-only loader, which runs no code of the file.

    Raises:
        CheckpointError: it is not allowed, or the file is missing, damaged or holds more than
            tensors and plain values.
    """
    if not present(path):
        raise CheckpointError("the file is missing", where=str(path))
    if not allow_pickle:
        raise CheckpointError("this file is a pickle", where=str(path), hint=_UNPICKLE)
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except pickle.UnpicklingError as error:
        reason = (str(error).strip() or "it says no more").splitlines()[-1]
        raise CheckpointError(
            f"torch's weights-only loader refuses it ({reason})",
            where=str(path),
            hint="It holds more than weights. Save its state_dict anew where it was made.",
        ) from None
    except Exception as error:
        raise CheckpointError(
            f"this is not a whole file of torch.save ({str(error) or type(error).__name__})",
            where=str(path),
        ) from None
    if not isinstance(values, dict):
        raise CheckpointError(
            f"wanted a table of tensors, found {type(values).__name__}", where=str(path)
        )
    return values


def _ids(value: Any) -> list[Any]:  # noqa: ANN401 - whatever JSON holds
    """What a key says of ids, of which there may be one, several, or none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_weights(values: Mapping[Any, Any]) -> bool:
    return all(isinstance(value, Tensor) for value in values.values())
