"""Does the engine answer as PyTorch does, with the same bits in any company, and as well?

    python benchmarks/engine_answers.py RUN --text test.en [--target test.de] [--json answers.json]
    python benchmarks/engine_answers.py RUN --text test.en --quick

A trained run translates real lines, greedy and with a beam of 4:

- by the engine in float32, whose text must be PyTorch's on every line, and whose scores must be
  near: the largest difference is over lines of equal text;
- alone and among 64 others, in any order, on one thread and on two, in every dtype, which must
  give the same bits: all hypotheses, their tokens and scores. A control makes sums depend on the
  number of rows, on purpose, and must be found;
- by PyTorch and in every dtype against the references, in BLEU;
- with float32's greedy tokens given, in every other dtype: how many it would have chosen, too.

`peer` is PyTorch's figure, or float32's for tokens; for the control there is none.
"""

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import get_args

import torch

import regard
from regard.counts import counted
from regard.decoding.translation import Translation
from regard.engine import native
from regard.engine.engine import Dtype, default_threads
from regard.evaluation.metrics import bleu
from regard.machine import cpu_model
from regard.serving.engines import choose_engine
from regard.serving.opening import open_run
from regard.serving.place import Place
from regard.serving.translator import Translator
from regard.text.lines import read_lines
from regard.text.vocabulary import framed, never_generated

BEAMS = {1: "greedy", 4: "beam 4"}
TOGETHER = 64
ALONE = 640  # lines that are translated one by one, for every dtype and beam
CONTROL = 8  # short lines: the control is slow

Row = dict[str, object]


def main() -> None:
    options = parse()
    lines, references = read_text(options)
    print(
        f"regard {regard.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {cpu_model()}, {counted(options.threads, 'thread')}, "
        f"{native.isa()}; {len(lines):,} lines"
    )
    rows: list[Row] = []
    for row in measure(options, lines, references):
        peer = "" if row["peer"] is None else f"{row['peer']:>12,.6g}"
        print(f"{row['name']!s:44} {row['ours']:12,.6g} {peer:12} {row['unit']}", flush=True)
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="the lines to translate")
    parser.add_argument("--target", type=Path, help="their references, for BLEU")
    parser.add_argument("--lines", type=int, default=2000, help="the most lines to take")
    parser.add_argument("--comparisons", type=int, default=10_000, help="of bits, all together")
    parser.add_argument("--dtypes", default=",".join(get_args(Dtype)))
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--quick", action="store_true", help="200 lines, 1,200 comparisons")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.lines, options.comparisons = min(options.lines, 200), 1200
    if problem := native.absence():
        sys.exit(f"there is no engine: {problem}")
    return options


def read_text(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Lines that are not blank, and their references if there are some."""
    lines = list(read_lines(options.text))
    references = list(read_lines(options.target)) if options.target else lines
    if len(lines) != len(references):
        sys.exit(f"{len(lines):,} lines and {len(references):,} references")
    both = [pair for pair in zip(lines, references, strict=True) if pair[0].strip()]
    both = list(islice(both, options.lines))
    return [line for line, _ in both], [reference for _, reference in both]


def measure(
    options: argparse.Namespace, lines: Sequence[str], references: Sequence[str]
) -> Iterator[Row]:
    reference = regard.load(options.run, engine="torch", threads=options.threads)
    wanted = {}
    for beam, name in BEAMS.items():
        with clock(f"PyTorch, {name}"):
            wanted[beam] = reference.translations(lines, beam=beam)
    if options.target:
        scores = {beam: bleu(texts(found), references) for beam, found in wanted.items()}
        print(f"BLEU by sacreBLEU, {scores[1].signature}")
    del reference

    tokens: list[tuple[int, ...]] = []
    for dtype in options.dtypes.split(","):
        narrow, wide = (
            regard.load(options.run, engine="native", dtype=dtype, threads=count)
            for count in (1, 2)
        )
        for beam, name in BEAMS.items():
            with clock(f"{dtype}, {name}"):
                found = wide.translations(lines, beam=beam)
            if dtype == "float32":
                yield from against_torch(name, found, wanted[beam])
            else:
                same = same_texts(found, wanted[beam])
                yield row(f"{dtype} {name} same text", same, len(lines), "lines")
            if options.target:
                value = bleu(texts(found), references).value
                yield row(f"{dtype} {name} BLEU", value, scores[beam].value, "BLEU")
            with clock(f"{dtype}, {name}, same bits"):
                share = -(-options.comparisons // len(BEAMS) // len(options.dtypes.split(",")))
                yield from same_bits(f"{dtype} {name}", narrow, wide, lines, beam, share)
            if beam == 1 and dtype == "float32":
                tokens = [each.tokens for each in found]
        if dtype != "float32" and tokens:
            with clock(f"{dtype}, forced"):
                yield forced(options, dtype, lines, tokens)


def against_torch(
    name: str, found: Sequence[Translation], wanted: Sequence[Translation]
) -> Iterator[Row]:
    """Lines of equal text, and how far apart the scores of such lines are at most."""
    apart = 0.0
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True), start=1):
        if ours.text == theirs.text:
            apart = max(apart, abs(ours.score - theirs.score))
        else:
            print(f"line {number}: {ours.score:.6f} {ours.text!r}")
            print(f"   PyTorch: {theirs.score:.6f} {theirs.text!r}")
    yield row(f"float32 {name} same text", same_texts(found, wanted), len(wanted), "lines")
    yield row(f"float32 {name} scores apart", apart, 0.0, "at most")


def same_texts(found: Sequence[Translation], wanted: Sequence[Translation]) -> int:
    return sum(ours.text == theirs.text for ours, theirs in zip(found, wanted, strict=True))


def texts(found: Sequence[Translation]) -> list[str]:
    return [each.text for each in found]


def same_bits(
    name: str,
    narrow: Translator,
    wide: Translator,
    lines: Sequence[str],
    beam: int,
    comparisons: int,
) -> Iterator[Row]:
    """Mismatches among so many comparisons, and among a few that must not all hold."""
    compared, differing = compare(narrow, wide, lines[:ALONE], beam, comparisons)
    yield row(f"{name} bits differ", differing, 0, f"of {compared:,} comparisons")
    kernels = native.module().kernels
    kernels.disorder(True)
    try:
        short = sorted(lines, key=len)[len(lines) // 4 :][:CONTROL]
        compared, differing = compare(narrow, wide, short, beam, 2 * CONTROL)
    finally:
        kernels.disorder(False)
    if differing == 0:
        sys.exit(f"{name}: the control was not found, so the comparison proves nothing")
    yield row(f"{name} control differs", differing, None, f"of {compared:,} comparisons")


def compare(
    narrow: Translator, wide: Translator, lines: Sequence[str], beam: int, comparisons: int
) -> tuple[int, int]:
    """How many were made, and how many were of unequal bits."""
    alone = [answers(narrow, [line], beam)[0] for line in lines]
    # A thread more than the reference had, and no company.
    few = lines[: comparisons // 8]
    compared = len(few)
    differing = sum(
        answers(wide, [line], beam)[0] != its for line, its in zip(few, alone, strict=False)
    )
    draw = random.Random(beam)
    while compared < comparisons:
        mixed = draw.sample(range(len(lines)), len(lines))
        for start in range(0, len(mixed), TOGETHER):
            order = mixed[start : start + TOGETHER]
            who = draw.choice((narrow, wide))
            found = answers(who, [lines[place] for place in order], beam)
            pairs = zip(order, found, strict=True)
            differing += sum(alone[place] != each for place, each in pairs)
            compared += len(order)
    return compared, differing


def answers(translator: Translator, lines: Sequence[str], beam: int) -> list[object]:
    """All hypotheses of each line: tokens, scores, log-probabilities."""
    found = translator.translations(lines, beam=beam, n_best=beam)
    return [each.hypotheses for each in found]


def forced(
    options: argparse.Namespace,
    dtype: str,
    lines: Sequence[str],
    tokens: Sequence[tuple[int, ...]],
) -> Row:
    """Which of the tokens, the end included, follow when those before them are given."""
    run = open_run(options.run, Place())
    engine = choose_engine([run], engine="native", dtype=dtype, threads=options.threads).engine
    assert engine is not None
    source, target = run.tokenizers.source, run.tokenizers.target
    chosen = [
        (framed(source, ids), [*its, target.eos_id])
        for ids, its in zip(source.encode_batch(lines), tokens, strict=True)
        if len(ids) <= run.recipe.data.max_tokens
    ]
    scored = engine.score(
        [ids for ids, _ in chosen],
        [its for _, its in chosen],
        bos=target.start_id,
        best=True,
        never=sorted({target.start_id, *never_generated(target)} - {target.eos_id}),
    )
    same = sum(
        one == other
        for (_, its), found in zip(chosen, scored, strict=True)
        for one, other in zip(its, found.best, strict=True)
    )
    count = sum(len(its) for _, its in chosen)
    return row(
        f"{dtype} greedy tokens, forced", 100 * same / count, 100.0, f"% of {count:,} tokens"
    )


@contextmanager
def clock(name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)


def row(name: str, ours: float, peer: float | None, unit: str) -> Row:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer if peer else None,
        "unit": unit,
    }


if __name__ == "__main__":
    main()
