"""How good a translator two text files give in about an hour: trains a recipe, prints BLEU on dev.

    python benchmarks/quality.py CORPUS --out runs/debian [--minutes 60] [--recipe small]
    python benchmarks/quality.py --quick --json quick.json

CORPUS is a folder with train.en, train.de, dev.en and dev.de, plain or .gz, .xz or .zst. The
number of steps is planned from a measurement, so that the training takes the minutes asked for.
There is no peer in this one: `peer` and `ratio` are null.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch

import regard
from regard.demo import SIDES, write_splits
from regard.machine import cpu_model, usable_cores
from regard.recipes.assembly import assemble
from regard.recipes.trial import try_steps
from regard.text.lines import read_lines, write_line
from regard.training.interrupts import Interrupts
from regard.training.progress import make_reporter
from regard.weights.checkpoints import checkpoint_steps

QUICK_MINUTES = 1.0
QUICK_TRAIN, QUICK_DEV = 20_000, 300
TRIAL_STEPS = 24
# Of the time, what goes into validations, checkpoints and a machine that is slower later on.
RESERVE = 0.1


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as aside:
        options.name = options.corpus.name if options.corpus else "home-assistant"
        options.out = options.out or Path(aside) / "run"
        if options.corpus is None:
            options.corpus = shipped(Path(aside) / "shipped")
        if options.quick:
            sides = (options.source, options.target)
            options.corpus = shorten(options.corpus, sides, Path(aside) / "short")
        run(options)


def run(options: argparse.Namespace) -> None:
    text = {
        f"data.{key}": find(options.corpus, name)
        for key, name in {
            "source": f"train.{options.source}",
            "target": f"train.{options.target}",
            "valid_source": f"dev.{options.source}",
            "valid_target": f"dev.{options.target}",
        }.items()
    }
    keys = [
        f'{key}=["{path}"]' if key in ("data.source", "data.target") else f'{key}="{path}"'
        for key, path in text.items()
    ]
    steps = plan_steps(options, keys)
    validations = 1 if options.quick else 10
    recipe = regard.load_recipe(
        options.recipe,
        [
            *keys,
            *options.set,
            f"training.max_steps={steps}",
            f"training.checkpoint_every={-(-steps // validations)}",
        ],
    )
    started = time.perf_counter()
    regard.train(recipe, options.out)
    minutes = (time.perf_counter() - started) / 60
    rows = measure(options, recipe, text, minutes)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "corpus", type=Path, nargs="?", help="the corpus in the package if left out"
    )
    parser.add_argument("--out", type=Path, help="where to keep the run")
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="a minute, on 20,000 pairs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.minutes = QUICK_MINUTES
    return options


def shipped(folder: Path) -> Path:
    """The corpus that comes with the package, its validation split as dev."""
    write_splits(folder)
    for side in SIDES:
        (folder / f"valid.{side}").rename(folder / f"dev.{side}")
    return folder


def shorten(corpus: Path, sides: tuple[str, str], folder: Path) -> Path:
    """The head of a corpus as a corpus of its own."""
    folder.mkdir()
    for part, lines in (("train", QUICK_TRAIN), ("dev", QUICK_DEV)):
        for side in sides:
            with (folder / f"{part}.{side}").open("wb") as stream:
                for line in islice(read_lines(find(corpus, f"{part}.{side}")), lines):
                    write_line(stream, line)
    return folder


def find(corpus: Path, name: str) -> Path:
    for suffix in ("", ".xz", ".gz", ".zst"):
        path = corpus / f"{name}{suffix}"
        if path.is_file():
            return path
    sys.exit(f"{corpus / name}: no such file, nor with .xz, .gz or .zst")


def plan_steps(options: argparse.Namespace, keys: list[str]) -> int:
    """How many steps fit into the minutes on this machine."""
    recipe = regard.load_recipe(options.recipe, [*keys, *options.set])
    with tempfile.TemporaryDirectory() as aside, Interrupts() as interrupts:
        assembly = assemble(recipe, Path(aside) / "data", say=make_reporter().say)
        trial = try_steps(
            assembly,
            Path(aside) / "run",
            steps=TRIAL_STEPS,
            interrupts=interrupts,
        )
    return max(20, int(60 * options.minutes * (1 - RESERVE) / trial.step_seconds))


def measure(
    options: argparse.Namespace,
    recipe: regard.Recipe,
    text: dict[str, Path],
    minutes: float,
) -> list[dict[str, object]]:
    """BLEU and chrF on dev of the model that training chose, as `regard evaluate` gives them."""
    dev = [list(read_lines(text[key])) for key in ("data.valid_source", "data.valid_target")]
    found = regard.load(options.out).judge(list(zip(*dev, strict=True)))
    print(f"recipe {options.recipe}, {recipe.training.max_steps:,} steps")
    print(f"{len(checkpoint_steps(options.out))} checkpoints kept; {found.bleu.signature}")
    name = f"{options.recipe} {options.name} {minutes:.0f} min"
    return [
        row(f"{name} BLEU on dev", found.bleu.value, "BLEU"),
        row(f"{name} chrF on dev", found.chrf.value, "chrF"),
        row(f"{name} perplexity on dev", found.perplexity, "per target token"),
        row(f"{name} training", minutes, "minutes"),
    ]


def row(name: str, ours: float, unit: str) -> dict[str, object]:
    return {"name": name, "ours": ours, "peer": None, "ratio": None, "unit": unit}


def show(rows: list[dict[str, object]]) -> None:
    print(f"regard {regard.__version__}, torch {torch.__version__}, Python "
          f"{platform.python_version()}, {cpu_model()}, {usable_cores()} cores")  # fmt: skip
    for line in rows:
        print(f"{line['name']!s:50} {line['ours']:10.2f} {line['unit']}")


if __name__ == "__main__":
    main()
