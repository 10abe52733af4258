"""The command that measures sequence layers: compare."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from regard.cli.made import tell
from regard.cli.options import Minutes, Seed, Threads, Whole
from regard.compare.names import LayerName


def compare(
    *,
    minutes: Minutes = 3.0,
    out: Path = Path("comparison"),
    seed: Seed = 0,
    layers: Annotated[tuple[LayerName, ...], Parameter(consume_multiple=1)] = (),
    steps: Annotated[Whole, Parameter(validator=Number(gte=1, lte=1_000_000))] | None = None,
    threads: Threads = None,
) -> None:
    """Measure every sequence layer on this machine, and set it beside theory.

    Time and memory against length and width, operations in sequence, paths between positions,
    decoding, the lengths from which each pays, and what each learns of three small tasks. What
    there is no time for is left out.

    Args:
        minutes: How long all may take. Default: 3.
        out: The folder to write; an earlier comparison in it is replaced. Default: comparison.
        seed: Of all random numbers. Default: 0.
        layers: Only these. Default: all.
        steps: Let each small model make so many steps, however long that takes, which repeats
            what it learns exactly. Default: as many as there is time for.
    """
    from functools import partial
    from time import perf_counter

    from regard.compare.drawing import require_plots
    from regard.signals import load_torch

    started = perf_counter()
    require_plots()
    load_torch("regard.compare.run")
    from regard.compare.page import write_page
    from regard.compare.quality import measure_quality
    from regard.compare.run import compare as run
    from regard.compare.summary import conclusion, summary

    found = run(
        out,
        minutes=minutes,
        started=started,
        seed=seed,
        names=layers,
        threads=threads,
        learn=partial(measure_quality, steps=steps),
        write=write_page,
    )
    tell(
        f"{summary(found)}\n\n{conclusion(found)}\n\nwritten to {out}; open {out / 'compare.html'}",
        out,
    )
