"""A run folder whose weights are packed for the engine."""

from pathlib import Path
from typing import cast, get_args

from regard.engine.engine import Dtype
from regard.engine.packing import pack
from regard.errors import ModelError, RegardError, RunFolderError
from regard.recipes.write import format_recipe
from regard.serving.opening import open_run
from regard.serving.place import Place
from regard.weights.layout import MODEL, PACKED
from regard.weights.packed import packed_chunks
from regard.weights.run_folder import RunFolder


def quantize(path: Path, out: Path, dtype: str) -> int:
    """Write a run folder for the engine alone; give the bytes of its weights.

    Args:
        path: the run folder of an encoder-decoder.
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
    run = open_run(path, Place())
    if run.packed is not None:
        raise RunFolderError(
            f"its weights are packed as {run.packed.dtype} already",
            where=str(path),
            hint="Use the run that it was made of.",
        )
    try:
        sections = pack(
            run.recipe.model,
            run.held.arrays(),
            source_vocabulary=run.tokenizers.source.size,
            target_vocabulary=run.tokenizers.target.size,
            dtype=cast(Dtype, dtype),
        )
    except ModelError:
        run.held.make()  # PyTorch says all that does not fit, and where
        raise
    source = RunFolder.open(path)
    notes = {name: note for name, note in source.model_notes().items() if "lora" not in name}
    notes |= {"packed": dtype, "packed_sha256": source.sha256(MODEL)}
    files = source.tokenizer_files()
    with RunFolder.create(out, whole=True) as made:
        made.write_recipe(format_recipe(run.recipe))
        made.write_tokenizers(files.source, None if files.joint else files.target)
        made.replace({PACKED: packed_chunks(sections, dtype, notes)})
        return (out / PACKED).stat().st_size
