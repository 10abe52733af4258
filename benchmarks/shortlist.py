"""What does a vocabulary shortlist bring, and what does it cost in BLEU?

    regard shortlist RUN
    python benchmarks/shortlist.py RUN --text dev.en --target dev.de [--json shortlist.json]
    python benchmarks/shortlist.py RUN --text dev.en --target dev.de --quick

A trained run translates real lines by the engine with and without its shortlist, alternately, in
each dtype, greedy and with a beam of 4: many lines together, and some of them one by one. Printed
are medians of target tokens a second, theirs without it, and the ratio of the two; BLEU with it and
without; and how many lines have the same text.

`ours` is with the shortlist, `peer` without.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import regard
from regard.counts import counted
from regard.decoding.translation import Translation
from regard.engine import native
from regard.engine.engine import default_threads
from regard.evaluation.metrics import bleu
from regard.machine import cpu_model
from regard.serving.translator import Translator
from regard.text.lines import read_lines
from regard.text.vocabulary import framed
from regard.weights.run_folder import RunFolder
from regard.weights.shortlists import read_shortlist

BEAMS = {1: "greedy", 4: "beam 4"}

Row = dict[str, object]


def main() -> None:
    options = parse()
    lines, references = read_text(options)
    print(
        f"regard {regard.__version__}, Python {platform.python_version()}, {cpu_model()}, "
        f"{counted(options.threads, 'thread')}, {native.isa()}; {counted(len(lines), 'line')}"
    )
    print(what_it_lets(options.run, lines))
    rows: list[Row] = []
    for row in measure(options, lines, references):
        ratio = "" if row["ratio"] is None else f"{row['ratio']:8.3f}"
        print(f"{row['name']!s:30} {row['ours']:12,.6g} {row['peer']:12,.6g} {ratio} {row['unit']}")
        sys.stdout.flush()
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="the lines to translate")
    parser.add_argument("--target", type=Path, required=True, help="their references")
    parser.add_argument("--lines", type=int, default=2000, help="the most lines to take")
    parser.add_argument("--alone", type=int, default=100, help="of these, translated one by one")
    parser.add_argument("--times", type=int, default=5, help="measurements of each, alternately")
    parser.add_argument("--dtypes", default="float32,bfloat16,int8")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--quick", action="store_true", help="200 lines, twice each")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.lines, options.alone, options.times = min(options.lines, 200), 20, 2
    if problem := native.absence():
        sys.exit(f"there is no engine: {problem}")
    return options


def read_text(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Lines that are not blank, and their references."""
    both = zip(read_lines(options.text), read_lines(options.target), strict=True)
    kept = [pair for pair in both if pair[0].strip()][: options.lines]
    return [line for line, _ in kept], [reference for _, reference in kept]


def what_it_lets(run: Path, lines: Sequence[str]) -> str:
    """How many tokens a line may use, and 64 of them together."""
    tokenizers = regard.load(run).tokenizers
    shortlist = read_shortlist(RunFolder.open(run, model=False), tokenizers)
    sources = [framed(tokenizers.source, ids) for ids in tokenizers.source.encode_batch(lines)]
    allowed = [shortlist.allowed(ids) for ids in sources]
    together = [
        len(np.unique(np.concatenate(allowed[start : start + 64])))
        for start in range(0, len(allowed), 64)
    ]
    return (
        f"a line may use {statistics.mean(map(len, allowed)):,.0f} of {shortlist.targets:,} "
        f"tokens on average, 64 lines together {statistics.mean(together):,.0f}"
    )


def measure(
    options: argparse.Namespace, lines: Sequence[str], references: Sequence[str]
) -> Iterator[Row]:
    for dtype in options.dtypes.split(","):
        both = [
            regard.load(
                options.run,
                engine="native",
                dtype=dtype,
                threads=options.threads,
                shortlist=shortlist,
            )
            for shortlist in (True, False)
        ]
        for beam, name in BEAMS.items():
            found = [each.translations(lines, beam=beam) for each in both]
            ours, peer = (bleu([each.text for each in one], references).value for one in found)
            yield row(f"{dtype} {name} BLEU", ours, peer, "BLEU", ratio=False)
            same = sum(one.text == other.text for one, other in zip(*found, strict=True))
            yield row(f"{dtype} {name} same text", same, len(lines), "lines", ratio=False)
            for kind, batches in (
                ("together", [lines]),
                ("one by one", [[line] for line in lines[: options.alone]]),
            ):
                ours, peer = speeds(both, batches, beam, options.times)
                yield row(f"{dtype} {name} {kind}", ours, peer, "tokens/s")


def speeds(
    both: Sequence[Translator], batches: Sequence[Sequence[str]], beam: int, times: int
) -> list[float]:
    """The median of target tokens a second of either translator, measured in turns."""
    measured: list[list[float]] = [[], []]
    for _ in range(times):
        for translator, seen in zip(both, measured, strict=True):
            started = time.perf_counter()
            found: list[Translation] = []
            for batch in batches:
                found += translator.translations(batch, beam=beam)
            tokens = sum(len(each.tokens) + 1 for each in found)
            seen.append(tokens / (time.perf_counter() - started))
    return [statistics.median(seen) for seen in measured]


def row(name: str, ours: float, peer: float, unit: str, *, ratio: bool = True) -> Row:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer if ratio and peer else None,
        "unit": unit,
    }


if __name__ == "__main__":
    main()
