"""A run folder whose weights are packed for the engine."""

from contextlib import ExitStack
from pathlib import Path
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from regard.engine.engine import Dtype
from regard.engine.packing import pack
from regard.errors import ModelError, RegardError, RunFolderError
from regard.recipes.write import format_recipe
from regard.serving.opening import Opened, OpenedEncoder, OpenedRun, open_any
from regard.serving.place import Place
from regard.signals import held_back
from regard.weights.layout import MODEL, PACKED, SHORTLIST
from regard.weights.packed import packed_chunks
from regard.weights.run_folder import RunFolder


def quantize(path: Path, out: Path, dtype: str) -> int:
    """Write a run folder for the engine alone; give the bytes of its weights.

    If it is interrupted, or fails, `out` is not there afterwards. The run's shortlist, if it
    has one, goes with it.

    Args:
        path: the run folder, of any family.
        out: the folder to make.
        dtype: what matrices are held in, one of `Dtype`.

    Raises:
        RegardError: there is no such dtype, or no engine, or it does not support the model.
        RunFolderError: `path` is no whole run folder, or `out` can't be written.
    """
    if dtype not in get_args(Dtype):
        names = ", ".join(f'"{name}"' for name in get_args(Dtype))
        raise RegardError(f'expected one of {names}, got "{dtype}"', where="dtype")
    if out.resolve() == path.resolve():
        raise RunFolderError("this is the run itself", where=str(out), hint="Use another folder.")
    run = open_any(path, Place())
    if run.packed is not None:
        raise RunFolderError(
            f"its weights are packed as {run.packed.dtype} already",
            where=str(path),
            hint="Use the run that it was made of.",
        )
    try:
        sections = _packed(run, cast(Dtype, dtype))
    except ModelError:
        run.held.make()  # PyTorch says all that does not fit, and where
        raise
    source = RunFolder.open(path)
    notes = {name: note for name, note in source.model_notes().items() if "lora" not in name}
    notes |= {"family": run.recipe.family, "packed": dtype, "packed_sha256": source.sha256(MODEL)}
    files = source.tokenizer_files()
    with ExitStack() as stack:
        with held_back():
            made = stack.enter_context(RunFolder.create(out, whole=True))
        made.write_recipe(format_recipe(run.recipe))
        made.write_tokenizers(files.source, None if files.joint else files.target)
        made.replace({PACKED: packed_chunks(sections, dtype, notes)})
        if SHORTLIST in source.files:
            made.replace({SHORTLIST: [source.read(SHORTLIST)]})
        return (out / PACKED).stat().st_size


def _packed(run: Opened, dtype: Dtype) -> dict[str, NDArray[np.uint8]]:
    """The packed parts of a run's model."""
    if isinstance(run, OpenedRun):
        source, target = run.tokenizers.source.size, run.tokenizers.target.size
    else:
        source = target = run.vocabulary.size
    return pack(
        run.recipe.model,
        run.held.arrays(),
        source_vocabulary=source,
        target_vocabulary=target,
        classes=len(run.recipe.labels.names) if isinstance(run, OpenedEncoder) else 0,
        dtype=dtype,
    )
