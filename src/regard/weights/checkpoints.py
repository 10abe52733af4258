"""Checkpoints: the whole state of training at a step, each a folder that is whole or not there."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from regard.errors import RunFolderError
from regard.weights.files import (
    PARTIAL,
    FileRecord,
    blames,
    make_folder,
    read_file,
    remove,
    rename,
    sync_folder,
    temporary_name,
    write_file,
)
from regard.weights.manifest import Manifest, read_manifest, write_manifest

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = object  # which checkpoints there are is said without waiting for torch

CHECKPOINTS: Final = "checkpoints"
STATE: Final = "state.json"
_NAME: Final = re.compile(r"step-(\d{8,})")
_REPLACED: Final = f".replaced{PARTIAL}"


@dataclass(frozen=True)
class Checkpoint:
    """One saved step: `checkpoints/step-00001000/` with its own manifest."""

    path: Path
    step: int

    def damage(self) -> str:
        """What is wrong with it, the file named; an empty string if nothing is."""
        try:
            manifest = read_manifest(self.path)
        except RunFolderError as error:
            return f"{error.where}: {error.problem}"
        for name in manifest.files:
            if problem := manifest.problem(self.path, name):
                return f"{self.path / name}: {problem}"
        return ""

    @property
    def names(self) -> list[str]:
        """The groups of tensors that it holds, such as "model" and "optimizer"."""
        files = sorted(read_manifest(self.path).files)
        return [name.removesuffix(".safetensors") for name in files if name != STATE]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """One group of tensors, on the CPU, as it was saved; verified.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        from regard.weights.tensors import read_tensors  # noqa: PLC0415 - imports torch

        return read_tensors(self._checked(f"{name}.safetensors"))

    def state(self) -> dict[str, Any]:
        """The rest of the state, as it was saved; verified.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        state: dict[str, Any] = json.loads(read_file(self._checked(STATE)))
        return state

    def _checked(self, name: str) -> Path:
        manifest = read_manifest(self.path)
        problem = manifest.problem(self.path, name)
        if not manifest.expected(name):
            problem = "the checkpoint has no such file"
        if problem:
            raise RunFolderError(
                problem, where=str(self.path / name), hint="Use an earlier checkpoint."
            )
        return self.path / name


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
) -> Checkpoint:
    """Save a step; a crash at any moment leaves all of it or none, and older ones untouched.

    Only the process that holds the run folder's lock may call this; from any thread of it.

    Args:
        folder: the run folder.
        step: the number of steps done.
        tensors: groups of tensors, a safetensors file each: "model", "optimizer", "ema", ...
        state: everything else, as JSON values; floats and integers come back to the bit.

    Raises:
        RunFolderError: it can't be written (which file); nothing of it is left behind.
    """
    from regard.weights.tensors import tensor_chunks  # noqa: PLC0415 - imports torch

    final = folder / CHECKPOINTS / f"step-{step:08d}"
    if not folder.is_dir():
        raise RunFolderError("the run folder is gone", where=str(folder))
    make_folder(final.parent)
    sync_folder(folder)
    aside = temporary_name(final)
    try:
        make_folder(aside)
        files: dict[str, FileRecord] = {}
        for name, group in tensors.items():
            file = f"{name}.safetensors"
            files[file] = write_file(aside / file, tensor_chunks(group))
        files[STATE] = write_file(aside / STATE, json.dumps(state).encode())
        write_manifest(aside, Manifest(files))
        _publish(aside, final)
    except RunFolderError as error:
        _remove_quietly(aside)
        where = error.where.replace(aside.name, final.name)
        raise RunFolderError(error.problem, where=where, hint=error.hint) from error
    except BaseException:
        _remove_quietly(aside)
        raise
    return Checkpoint(final, step)


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps that a run folder has checkpoints of, in order, damaged ones included."""
    parent = folder / CHECKPOINTS
    with blames(parent, "cannot be read"):
        names = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def find_checkpoint(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step, verified.

    Raises:
        RunFolderError: there is none, or it is damaged.
    """
    steps = checkpoint_steps(folder)
    if step not in steps:
        found = ", ".join(str(known) for known in steps) or "none"
        raise RunFolderError(
            f"there is no checkpoint of step {step}; there are: {found}",
            where=str(folder / CHECKPOINTS),
        )
    checkpoint = _checkpoint(folder, step)
    if problem := checkpoint.damage():
        raise RunFolderError(problem, hint="Use another checkpoint.")
    return checkpoint


def latest_checkpoints(folder: Path, count: int, log: Callable[[str], None]) -> list[Checkpoint]:
    """The newest whole checkpoints, up to `count`, the oldest of them first.

    Args:
        folder: the run folder.
        count: how many at most.
        log: is told of each damaged checkpoint that was passed over.
    """
    whole: list[Checkpoint] = []
    for step in reversed(checkpoint_steps(folder)):
        if len(whole) == count:
            break
        checkpoint = _checkpoint(folder, step)
        if problem := checkpoint.damage():
            log(f"{problem}; the checkpoint of step {step} is passed over")
        else:
            whole.append(checkpoint)
    return whole[::-1]


def latest_checkpoint(folder: Path, log: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint; None if there never was one.

    Args:
        folder: the run folder.
        log: is told of each damaged checkpoint that was passed over.

    Raises:
        RunFolderError: there are checkpoints and all are damaged.
    """
    found = latest_checkpoints(folder, 1, log)
    if found:
        return found[0]
    if not checkpoint_steps(folder):
        return None
    raise RunFolderError(
        "every checkpoint is damaged",
        where=str(folder / CHECKPOINTS),
        hint="Copy the folder again from where it came from, or train anew with another --out.",
    )


def keep_checkpoints(folder: Path, last: int, also: Collection[int] = ()) -> None:
    """Remove all checkpoints but the `last` newest and those of the steps in `also`."""
    steps = checkpoint_steps(folder)
    for step in steps[: max(0, len(steps) - last)]:
        if step not in also:
            path = _checkpoint(folder, step).path
            # Renamed first, so that a crash half-way leaves no checkpoint that looks damaged.
            doomed = temporary_name(path)
            rename(path, doomed)
            remove(doomed)


def clean_checkpoints(folder: Path) -> None:
    """Remove what a killed writer left half-written, and undo a half-done replacement."""
    parent = folder / CHECKPOINTS
    if not parent.is_dir():
        return
    with blames(parent, "cannot be read"):
        stale = [entry for entry in parent.iterdir() if entry.name.endswith(PARTIAL)]
    for entry in stale:
        original = parent / entry.name.removeprefix(".").removesuffix(_REPLACED)
        if entry.name.endswith(_REPLACED) and not original.exists():
            rename(entry, original)
        else:
            remove(entry)


def _checkpoint(folder: Path, step: int) -> Checkpoint:
    return Checkpoint(folder / CHECKPOINTS / f"step-{step:08d}", step)


def _publish(aside: Path, final: Path) -> None:
    """Give a whole checkpoint its name; one of that name steps aside first, and back on failure."""
    former = final.with_name(f".{final.name}{_REPLACED}")
    replaces = final.exists()
    if replaces:
        remove(former)
    try:
        if replaces:
            rename(final, former)
        rename(aside, final)
    except RunFolderError:
        if former.exists() and not final.exists():
            rename(former, final)
        raise
    if replaces:
        remove(former)


def _remove_quietly(path: Path) -> None:
    try:
        remove(path)
    except RunFolderError:
        return  # the next writer cleans up; the error under way matters more
