"""The commands that bring checkpoints from elsewhere, take models there, or make them faster."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from regard.cli.made import tell
from regard.cli.options import Files, NonNegativeInt


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
    tell("\n".join(brought.lines()), out)


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
    tell("\n".join([f"{out}: {format_}, from {run}", *(f"note: {note}" for note in notes)]), out)


def quantize(
    run: Path,
    /,
    *,
    out: Path,
    dtype: Literal["float32", "bfloat16", "int8", "int4"] = "int8",
) -> None:
    """Write a run folder that the engine uses as it is: packed weights, mapped from the file.

    It opens at once and shares its memory with other processes, but only the engine can use it:
    training, export and PyTorch need the run that it was made of.

    Args:
        run: The run folder.
        out: The run folder to make.
        dtype: What to hold matrices in: float32, or, less exact, bfloat16, int8 or int4. Default:
            int8.
    """
    from regard.signals import load

    load("regard.serving.quantize")
    from regard.serving.quantize import quantize as quantize_run

    size = quantize_run(run, out, dtype)
    tell(f"{out}: {dtype}, {size / 2**20:,.1f} MiB of weights, from {run}", out)


def shortlist(
    run: Path,
    /,
    *,
    source: Files = (),
    target: Files = (),
    per_token: NonNegativeInt | None = None,
    frequent: NonNegativeInt | None = None,
    drop: bool = False,
) -> None:
    """Learn which target tokens may translate which source tokens: regard translate --shortlist.

    A sentence is then translated with the tokens that go with its own, and the most frequent
    ones, alone: that is faster where the vocabulary is large, and may cost a little quality.

    Args:
        run: The run folder, in which the shortlist is written.
        source: Line-aligned text to learn from. Default: what the run was trained on.
        target: Its translation, line by line.
        per_token: Target tokens that go with each source token, at most. Default: 100.
        frequent: Most frequent target tokens, which go with every sentence. Default: 100.
        drop: Remove the run's shortlist, and nothing else of it.
    """
    from regard.signals import load

    counts = {"per_token": per_token, "frequent": frequent}
    given = {name: count for name, count in counts.items() if count is not None}
    if drop:
        _refuse_with_drop(source=source, target=target, **given)
    load("regard.serving.shortlist")
    from regard.serving.shortlist import drop_shortlist, make_shortlist

    if drop:
        print(f"{drop_shortlist(run)}: removed")
    else:
        made = make_shortlist(run, source=source, target=target, **given)
        tell(str(made), made.path)


def _refuse_with_drop(**options: object) -> None:
    from regard.errors import RegardError

    for name, value in options.items():
        if value != ():
            raise RegardError(
                "cannot go with --drop",
                where=f"--{name.replace('_', '-')}",
                hint="Give one of the two.",
            )
