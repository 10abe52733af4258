"""The commands that bring checkpoints from elsewhere, and take models there."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def import_(
    path: Path,
    /,
    *,
    out: Path,
    from_: Annotated[str | None, Parameter(name="--from", metavar="FORMAT")] = None,
    allow_pickle: bool = False,
) -> None:
    """Make a run folder of a checkpoint from elsewhere.

    Args:
        path: The folder that holds it.
        out: The run folder to make.
        from_: What it is, such as marian or gpt2. Default: what its config.json says.
        allow_pickle: Open a file of torch.save too, by torch's weights-only loader.
    """
    from regard.signals import load_torch

    load_torch("regard.recipes.bring")
    from regard.recipes.bring import import_checkpoint

    brought = import_checkpoint(path, out, allow_pickle=allow_pickle, source_format=from_)
    print("\n".join(brought.lines()))


def export(
    run: Path,
    /,
    *,
    out: Path,
    format_: Annotated[
        Literal["huggingface", "ctranslate2"], Parameter(name="--format")
    ] = "huggingface",
) -> None:
    """Write the model of a run folder in a format from elsewhere.

    Args:
        run: The run folder.
        out: The folder to make.
        format_: What to write: huggingface (transformers loads it) or ctranslate2.
    """
    from regard.signals import load_torch

    load_torch("regard.recipes.bring")
    from regard.recipes.bring import export_run

    notes = export_run(run, out, format_)
    print("\n".join([f"{out}: {format_}, from {run}", *(f"note: {note}" for note in notes)]))
