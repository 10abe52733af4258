"""The run folder: a model and all that made it, written safely and checked when opened."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from regard.errors import RunFolderError, command
from regard.weights.adapted import complete, is_adapter
from regard.weights.beginning import Beginning
from regard.weights.checkpoints import checkpoint_steps
from regard.weights.files import (
    PARTIAL,
    Bytes,
    blames,
    file_chunks,
    identity,
    inode,
    make_folder,
    publish,
    read_file,
    remove,
    stage,
    sync_folder,
)
from regard.weights.header import read_metadata, read_shapes
from regard.weights.layout import (
    METRICS,
    MODEL,
    PACKED,
    RECIPE,
    REPORT,
    SHORTLIST,
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
    TOKENIZER,
    clean,
    refuse_if_no_run,
)
from regard.weights.lock import LOCK, WriterLock
from regard.weights.manifest import MANIFEST, Manifest, read_manifest, write_manifest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.weights.packed import PackedWeights

    Array = NDArray[np.generic]
else:
    # A run folder's recipe is read, and refused, without waiting for torch or NumPy.
    Tensor = Array = PackedWeights = object

__all__ = ["METRICS", "MODEL", "RECIPE", "REPORT", "RunFolder", "TokenizerFiles"]

_COPY_AGAIN: Final = "Copy it again from where the folder came from."


@dataclass(frozen=True)
class TokenizerFiles:
    """The vocabularies of a run, as files' contents; one and the same when `joint`."""

    source: bytes
    target: bytes
    joint: bool


class RunFolder:
    """A folder that holds one run.

    ```
    recipe.toml         all settings that made it
    model.safetensors   the weights to use (model.packed if packed for the engine)
    tokenizer.json      the vocabulary (tokenizer.source.json and tokenizer.target.json if two)
    shortlist.safetensors  what each source token may become, if regard shortlist was called
    metrics.jsonl       what training measured; only ever appended to
    checkpoints/        the whole state of training, step by step
    report.html         the run as a page to read
    manifest.json       size and SHA-256 sum of recipe, model, vocabularies and shortlist
    ```

    Get one from `create` (to write), `open` (to read) or `open(..., write=True)`. Whoever
    writes holds the folder's lock until `close`, or to the end of a `with` block.
    """

    def __init__(self, path: Path, manifest: Manifest, lock: WriterLock | None) -> None:
        self.path = path
        self._manifest = manifest
        self._lock = lock
        self._verified: dict[str, tuple[int, ...]] = {}
        self._undo: Beginning | None = None
        self._inode = inode(path) if lock is not None else ()

    @classmethod
    def create(cls, path: str | Path, *, whole: bool = False) -> Self:
        """Make a folder for a new run and lock it for writing.

        A folder where an earlier start left neither a model nor a checkpoint is used again, its
        metrics and report removed, its prepared data kept.

        If the `with` block fails before anything was written that is of use, the folder is gone
        again, or empty if it was there.

        Args:
            path: the folder.
            whole: whether all that was written goes too if the block fails.

        Raises:
            RunFolderError: a run is in it, it holds other things, another process writes to it,
                or it can't be made.
        """
        folder = Path(path)
        beginning = Beginning(folder, whole=whole)
        make_folder(folder)
        with blames(folder, "cannot be read"):
            names = [entry.name for entry in folder.iterdir()]
        strange = [name for name in names if name != LOCK and not name.endswith(PARTIAL)]
        if strange and MANIFEST not in names:
            raise RunFolderError(
                "the folder is not empty and holds no run",
                where=str(folder),
                hint="Use another folder, or empty this one.",
            )
        lock = WriterLock(folder)
        begun = False
        try:
            if (folder / MANIFEST).exists():
                cls._refuse_if_run(folder)
                for name in (METRICS, REPORT):
                    remove(folder / name)
            clean(folder)
            begun = MANIFEST not in names
            write_manifest(folder, Manifest())
            sync_folder(folder.parent)
            run = cls(folder, Manifest(), lock)
            if begun:
                run._undo = beginning
            return run
        except BaseException:
            if begun:
                beginning.take_back()
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False, model: bool = True) -> Self:
        """Open a run: its recipe and vocabularies, and with `model` its weights, are verified.

        Args:
            path: the run folder.
            write: take the lock, so that this process may write.
            model: whether the run must have a model; to resume, its checkpoints are enough.

        Raises:
            RunFolderError: it is no run folder, a file is missing or damaged (which one, and
                what to do), or, to write, another process writes to it.
        """
        folder = Path(path)
        refuse_if_no_run(folder)
        lock = WriterLock(folder) if write else None
        try:
            manifest = read_manifest(folder)
            pending = bool(manifest.pending)
            if pending:
                manifest = manifest.settled(folder)
            if lock is not None:
                clean(folder)
                if pending:
                    write_manifest(folder, manifest)
            run = cls(folder, manifest, lock)
            run._require(model)
            return run
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and self._undo is not None:
            self._undo.take_back()
        self.close()

    def close(self) -> None:
        """Release the lock, if it is held."""
        if self._lock is not None:
            self._lock.release()

    def require_there(self) -> None:
        """Refuse to go on writing where the folder was removed or renamed meanwhile.

        Raises:
            RunFolderError: it was (what is lost, and where it is now if that is known).
        """
        if self._lock is None or inode(self.path) == self._inode:
            return
        lock = self._lock.place()
        if lock is None:
            raise RunFolderError(
                "the run folder is gone: it was removed while it was being written to",
                where=str(self.path),
                hint="All that was in it is lost. Train anew.",
            )
        last = checkpoint_steps(lock.parent)
        raise RunFolderError(
            f"the run folder was renamed while it was being written to; it is {lock.parent} now",
            where=str(self.path),
            hint=f"What came after its checkpoint of step {last[-1]} is lost. "
            f"Go on from there: {command('train', lock.parent, '--resume')}"
            if last
            else "It has no checkpoint, so what was trained is lost. Train anew.",
        )

    @property
    def metrics_path(self) -> Path:
        """Where metrics.jsonl is, or will be."""
        return self.path / METRICS

    @property
    def report_path(self) -> Path:
        """Where report.html is, or will be."""
        return self.path / REPORT

    @property
    def has_model(self) -> bool:
        """Whether there are weights to use."""
        return bool(self._manifest.expected(MODEL)) or self.is_packed

    @property
    def is_packed(self) -> bool:
        """Whether its weights are packed for the engine, and only for that."""
        return bool(self._manifest.expected(PACKED) and not self._manifest.expected(MODEL))

    @property
    def model_file(self) -> str:
        """The name of the file with the weights to use."""
        return PACKED if self.is_packed else MODEL

    @property
    def files(self) -> list[str]:
        """The names of the files that the manifest vouches for."""
        return sorted({*self._manifest.files, *self._manifest.pending})

    def check(self, name: str) -> None:
        """Verify one file; one that nobody has touched since is not read a second time.

        Raises:
            RunFolderError: it is missing or damaged, or the run never had it.
        """
        marks = identity(self.path / name)
        if marks and self._verified.get(name) == marks:
            return
        problem = self._manifest.problem(self.path, name)
        if problem and self._lock is None:
            # A writer may have replaced the file since the manifest was read.
            self._manifest = read_manifest(self.path)
            problem = self._manifest.problem(self.path, name)
        if not self._manifest.expected(name):
            problem = "the run has no such file"
        if problem:
            raise RunFolderError(problem, where=str(self.path / name), hint=self._remedy(name))
        self._verified[name] = marks

    def is_whole(self, name: str) -> bool:
        """Whether a listed file is there and undamaged."""
        listed = bool(self._manifest.expected(name))
        return listed and not self._manifest.problem(self.path, name)

    def read(self, name: str) -> bytes:
        """The contents of a listed file, verified.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        self.check(name)
        return read_file(self.path / name)

    def recipe_text(self) -> str:
        """The recipe, in TOML."""
        return self.read(RECIPE).decode()

    def tokenizer_files(self) -> TokenizerFiles:
        """The vocabularies."""
        if self._manifest.expected(TOKENIZER):
            joint = self.read(TOKENIZER)
            return TokenizerFiles(joint, joint, joint=True)
        return TokenizerFiles(self.read(SOURCE_TOKENIZER), self.read(TARGET_TOKENIZER), joint=False)

    def require_plain(self, name: str = MODEL) -> None:
        """Refuse weights that are packed for the engine, for which there is no way back.

        Raises:
            RunFolderError: they are.
        """
        if name == MODEL and self.is_packed:
            raise RunFolderError(
                f"its weights are packed for the engine ({PACKED}), which is all that can use them",
                where=str(self.path),
                hint="Use the run that it was made of with regard quantize.",
            )

    def load_weights(self, name: str = MODEL) -> dict[str, Tensor]:
        """The weights of the model by parameter name, on the CPU; tied names share a tensor.

        Where the file holds only what low-rank adaptation trained, the rest is taken from the
        run that it adds to.

        Raises:
            RunFolderError: the file is missing or damaged, or that other run is not as it was.
        """
        from regard.weights.tensors import read_tensors  # noqa: PLC0415 - imports torch

        self.require_plain(name)
        self.check(name)
        tensors, notes = read_tensors(self.path / name), self.model_notes(name)
        return complete(self.path, tensors, notes) if is_adapter(notes) else tensors

    def load_arrays(self, name: str = MODEL) -> dict[str, Array]:
        """As `load_weights`, as arrays that are mapped from the file, without PyTorch.

        What low-rank adaptation trained is added up by PyTorch, and comes as a copy.

        Raises:
            As `load_weights`.
        """
        from regard.weights.arrays import read_arrays  # noqa: PLC0415 - imports NumPy

        self.require_plain(name)
        if self.is_adapted(name):
            weights = self.load_weights(name)
            return {each: tensor.float().numpy() for each, tensor in weights.items()}
        self.check(name)
        return read_arrays(self.path / name)

    def load_packed(self) -> PackedWeights:
        """The weights that are packed for the engine, mapped from their file.

        Raises:
            RunFolderError: there are none, or the file is missing or damaged.
        """
        from regard.weights.packed import read_packed  # noqa: PLC0415 - imports NumPy

        self.check(PACKED)
        return read_packed(self.path / PACKED)

    def weight_shapes(self, name: str = MODEL) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors in a file of weights, by name.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        self.check(name)
        return read_shapes(self.path / name)

    def is_adapted(self, name: str = MODEL) -> bool:
        """Whether a file holds only what low-rank adaptation of another run trained.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        return is_adapter(self.model_notes(name))

    def sha256(self, name: str) -> str:
        """The sum of a listed file, verified.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        self.check(name)
        return self._manifest.expected(name)[-1].sha256

    def model_notes(self, name: str = MODEL) -> dict[str, str]:
        """How the model came about: what `write_model` was told."""
        if name == MODEL and self.is_packed:
            return dict(self.load_packed().notes)
        self.check(name)
        return read_metadata(self.path / name)

    def write_recipe(self, text: str) -> None:
        """Write the resolved recipe."""
        self.replace({RECIPE: [text.encode()]})

    def write_tokenizers(self, source: bytes, target: bytes | None = None) -> None:
        """Write the vocabularies; a joint one is given once."""
        if target is None:
            self.replace({TOKENIZER: [source]}, drop=(SOURCE_TOKENIZER, TARGET_TOKENIZER))
        else:
            self.replace(
                {SOURCE_TOKENIZER: [source], TARGET_TOKENIZER: [target]}, drop=(TOKENIZER,)
            )

    def write_model(
        self, weights: Mapping[str, Tensor], notes: Mapping[str, str] | None = None
    ) -> None:
        """Write the weights to use.

        Args:
            weights: a state dict; tied tensors are written once.
            notes: how they came about (`{"step": "1000"}`), kept in the file.
        """
        from regard.weights.tensors import tensor_chunks  # noqa: PLC0415 - imports torch

        self.replace({MODEL: tensor_chunks(weights, notes)})

    def copy_file(self, name: str, to: str) -> None:
        """Copy a listed file, verified, to another name in the folder, listed too."""
        self.check(name)
        self.replace({to: file_chunks(self.path / name)})

    def replace(self, files: Mapping[str, Iterable[Bytes]], drop: Iterable[str] = ()) -> None:
        """Write files, old or new, and list them in the manifest; then remove those of `drop`.

        All are first written aside and synced; then each is renamed. At any moment, a crash
        included, every listed file is whole: the former or the new one.

        Raises:
            RunFolderError: one can't be written (which one).
        """
        if self._lock is None or not self._lock.held:
            raise ValueError(f"{self.path} was not opened for writing")
        if self._manifest.pending:  # an earlier call failed half-way
            self._manifest = self._manifest.settled(self.path)
        staged = []
        try:
            for name, chunks in files.items():
                staged.append(stage(self.path / name, chunks))
            pending = {item.path.name: item.record for item in staged}
            before = Manifest(self._manifest.files, pending)
            write_manifest(self.path, before)
            self._manifest = before
            for item in staged:
                publish(item)
            sync_folder(self.path)
        except BaseException:
            for item in staged:
                item.discard()
            raise
        dropped = set(drop) - set(files)
        kept = {name: old for name, old in before.files.items() if name not in dropped}
        after = Manifest({**kept, **pending})
        write_manifest(self.path, after)
        self._manifest = after
        for name in dropped:
            remove(self.path / name)

    def _require(self, model: bool) -> None:
        if not self._manifest.expected(RECIPE) and not checkpoint_steps(self.path):
            raise RunFolderError(
                "the run was stopped before anything of it was saved",
                where=str(self.path),
                hint="Start it again with the command that began it.",
            )
        self.check(RECIPE)
        joint = bool(self._manifest.expected(TOKENIZER))
        for name in (TOKENIZER,) if joint else (SOURCE_TOKENIZER, TARGET_TOKENIZER):
            self.check(name)
        if not model:
            return
        if not self.has_model:
            raise RunFolderError(
                "the run has no model yet: its training was stopped before one was saved",
                where=str(self.path),
                hint=f"Go on with it: {command('train', self.path, '--resume')}",
            )
        self.check(self.model_file)

    def _remedy(self, name: str) -> str:
        if name == MODEL and checkpoint_steps(self.path):
            return (
                f"Make it again from the checkpoints: {command('average', self.path, '--last', 1)}"
            )
        if name == SHORTLIST:
            return f"Make it again: {command('shortlist', self.path)}"
        if name == RECIPE:
            return f"{_COPY_AGAIN} Settings are changed with --set, not in this file."
        return _COPY_AGAIN

    @staticmethod
    def _refuse_if_run(folder: Path) -> None:
        listed = read_manifest(folder)
        if listed.expected(PACKED):
            raise RunFolderError(
                "the folder holds a run already", where=str(folder), hint="Use another folder."
            )
        if listed.expected(MODEL) or checkpoint_steps(folder):
            resume = command("train", folder, "--resume")
            raise RunFolderError(
                "the folder holds a run already",
                where=str(folder),
                hint=f"Go on with it: {resume}\n  Or use another folder.",
            )
