"""The command that measures sequence layers: compare."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import Minutes, Seed, Threads
from regard.compare.names import LayerName


def compare(
    *,
    minutes: Minutes = 3.0,
    out: Path = Path("comparison"),
    seed: Seed = 0,
    layers: Annotated[tuple[LayerName, ...], Parameter(consume_multiple=True)] = (),
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
    """
    from regard.compare.plots import require_plots
    from regard.signals import load_torch

    require_plots()
    load_torch("regard.compare.run")
    from regard.compare.page import write_page
    from regard.compare.quality import measure_quality
    from regard.compare.run import compare as run
    from regard.compare.summary import summary

    found = run(
        out,
        minutes=minutes,
        seed=seed,
        names=layers,
        threads=threads,
        learn=measure_quality,
        write=write_page,
    )
    print(summary(found))
    print(f"\nwritten to {out}; open {out / 'compare.html'}")
