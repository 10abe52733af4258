"""How good is a translator after so many minutes of training, beside another library's?

    python benchmarks/quality_per_minute.py CORPUS [--minutes 20] [--peer joeynmt]
    python benchmarks/quality_per_minute.py --quick --json quick.json

CORPUS is a folder with `train.en`, `train.de`, `dev.en` and `dev.de`, packed or not; without one
the corpus in the package. Two trainings of recipe `small` take turns, a slice of some seconds
each, on the same batches of the same text with regard's tokens, until each has had the minutes by
its own clock: regard as `regard train` would do it (the recipe's optimizer, schedule and moving
average, in the precision that `auto` measures as faster), and a peer of the same shape: JoeyNMT
2.3.0 where it is installed (see training.py), else a plain loop around `torch.nn.Transformer`.
The peer has AdamW, the recipe's schedule as well, and the faster precision here. Both schedules
end with the minutes: what counts is the share of the time that is gone.

At some points on the way both translate the first lines of dev greedily, for which their clocks
stand. What is printed is BLEU by sacreBLEU, and tokens seen.
"""

import argparse
import json
import logging
import platform
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol

import torch
from peers import PEERS, has_joeynmt
from quality import find, shipped

import regard
from regard.decoding.config import DecodingConfig
from regard.decoding.translate import translate
from regard.evaluation.metrics import bleu
from regard.machine import cpu_model, usable_cores
from regard.models.build import build_model
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import Recipe
from regard.text.batches import Batch, Batches
from regard.text.corpus import PreparedData, prepare_corpus
from regard.training.allocator import hold_memory
from regard.training.feed import StepBatch
from regard.training.losses import translation_loss
from regard.training.parts import split_batch
from regard.training.precision import GemmSizes, choose_precision
from regard.training.schedules import learning_rate
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally

TRIAL_STEPS, SLICE_SECONDS, ROWS = 12, 15.0, 64


class Contestant(Protocol):
    """A model in training."""

    name: str

    def step(self, batch: Batch, share: float, steps: int) -> None:
        """Learn from a batch, when that share of the time is gone, in which `steps` fit."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate lines greedily."""


class Ours:
    """What `regard train` does."""

    def __init__(self, recipe: Recipe, data: PreparedData) -> None:
        self._recipe, self._data = recipe, data
        self.model = build_model(
            recipe.model,
            source_vocabulary=data.tokenizers.source.size,
            target_vocabulary=data.tokenizers.target.size,
            seed=recipe.training.seed,
        ).train()
        cpu, training = torch.device("cpu"), recipe.training
        sizes = GemmSizes(
            rows=training.batch_tokens,
            d_model=recipe.model.d_model,
            d_ff=recipe.model.d_ff,
            vocabulary=data.tokenizers.target.size,
        )
        self.precision = choose_precision(training.precision, cpu, sizes)
        self.name = f"regard, {self.precision.name}"
        self._stepper = Stepper(
            self.model,
            training,
            device=cpu,
            precision=self.precision.name,
            loss=translation_loss,
        )
        self._tally, self._numbers = Tally(Window()), count(1)

    def step(self, batch: Batch, share: float, steps: int) -> None:
        """Learn from a batch."""
        schedule, width = self._recipe.training.schedule, self._recipe.model.d_model
        rate = learning_rate(schedule, 1 + int(share * steps), width, steps)
        parts = tuple(split_batch(batch, 1))
        whole = StepBatch(parts, batch.target_tokens, batch.pairs_b, 0, 0)
        self._stepper.take(whole, next(self._numbers), rate, self._tally)
        self._tally.look()  # as training does on a CPU

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate lines greedily, by PyTorch, as the peer does."""
        self.model.eval()
        average = self._stepper.average
        with average.applied() if average else nullcontext():
            found = translate(
                [self.model],
                [self._data.tokenizers.source],
                self._data.tokenizers.target,
                lines,
                DecodingConfig(beam=1),
                trained_length=self._recipe.data.max_tokens,
            )
        self.model.train()
        return [each.text for each in found]


class Other:
    """A peer with the recipe's schedule."""

    def __init__(self, which: str, recipe: Recipe, data: PreparedData, *, narrow: bool) -> None:
        self.name = f"{which}, {'bfloat16' if narrow else 'float32'}"
        self._recipe, self._data = recipe, data
        self._peer = PEERS[which](recipe, data.tokenizers.target, narrow=narrow)

    def step(self, batch: Batch, share: float, steps: int) -> None:
        """Learn from a batch."""
        schedule = self._recipe.training.schedule
        rate = learning_rate(schedule, 1 + int(share * steps), self._recipe.model.d_model, steps)
        for group in self._peer.optimizer.param_groups:
            group["lr"] = rate
        self._peer.step(batch)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate lines greedily, those of like length together."""
        source, target = self._data.tokenizers.source, self._data.tokenizers.target
        longest = self._recipe.data.max_tokens
        rows = [
            [*source.prefix, *ids[: longest - 1], *source.suffix]
            for ids in source.encode_batch(list(lines))
        ]
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        texts = [""] * len(rows)
        for start in range(0, len(order), ROWS):
            some = order[start : start + ROWS]
            width = max(len(rows[index]) for index in some)
            ids = torch.full((len(some), width), source.pad_id)
            padding = torch.ones_like(ids, dtype=torch.bool)
            for row, index in enumerate(some):
                ids[row, : len(rows[index])] = torch.tensor(rows[index])
                padding[row, : len(rows[index])] = False
            most = min(longest, 2 * width + 10)
            found = self._peer.greedy(ids, padding, target.start_id, target.eos_id, most)
            for index, made in zip(some, found, strict=True):
                texts[index] = target.decode(made)
        return texts


class Run:
    """One contestant's training: its batches, its clock and its curve."""

    def __init__(self, contestant: Contestant, recipe: Recipe, data: PreparedData) -> None:
        self.contestant = contestant
        self.seconds, self.tokens, self.done = 0.0, 0, 0
        self.curve: list[dict[str, float]] = []
        batches = Batches(
            data.train, data.tokenizers, batch_tokens=recipe.training.batch_tokens, seed=1
        )
        self._batches = chain.from_iterable(batches.epoch(epoch) for epoch in count())

    def train(self, until: float, total: float, steps: int) -> None:
        """Train until the clock shows so many seconds."""
        while self.seconds < until:
            began = time.perf_counter()
            batch = next(self._batches)
            self.contestant.step(batch, self.seconds / total, steps)
            self.seconds += time.perf_counter() - began
            self.tokens += batch.target_tokens
            self.done += 1

    def measure(self, lines: Sequence[str], references: Sequence[str]) -> None:
        """Put BLEU at this point of the clock into the curve, and print it."""
        value = bleu(self.contestant.translate(lines), references).value
        self.curve.append(
            {"minutes": self.seconds / 60, "steps": self.done, "tokens": self.tokens, "bleu": value}
        )
        print(f"{self.contestant.name:24} {self.seconds / 60:6.2f} min  step {self.done:7,}  "
              f"{self.tokens:12,} tokens  BLEU {value:5.1f}", flush=True)  # fmt: skip


def step_seconds(contestant: Contestant, recipe: Recipe, data: PreparedData) -> float:
    """How long a step takes, after the first ones."""
    run = Run(contestant, recipe, data)
    run.train(1e-9, 1.0, 1)
    for _ in range(TRIAL_STEPS // 3):
        run.train(run.seconds + 1e-9, 1e9, 1000)
    before = run.seconds
    for _ in range(TRIAL_STEPS):
        run.train(run.seconds + 1e-9, 1e9, 1000)
    return (run.seconds - before) / TRIAL_STEPS


def contestants(recipe: Recipe, data: PreparedData, which: str) -> list[tuple[Contestant, int]]:
    """New ones, each with the milliseconds of its step."""
    other = {narrow: Other(which, recipe, data, narrow=narrow) for narrow in (False, True)}
    times = {narrow: step_seconds(peer, recipe, data) for narrow, peer in other.items()}
    narrow = times[True] < times[False]
    mine = step_seconds(Ours(recipe, data), recipe, data)
    return [
        (Ours(recipe, data), mine),
        (Other(which, recipe, data, narrow=narrow), times[narrow]),
    ]  # type: ignore[list-item]


def compare(recipe: Recipe, data: PreparedData, options: argparse.Namespace) -> list[Run]:
    """Both by turns; a line a point."""
    total = 60 * options.minutes
    lines = data.valid.source_lines[: options.lines]
    references = data.valid.target_lines[: options.lines]
    runs, steps = [], []
    for contestant, seconds in contestants(recipe, data, options.peer):
        runs.append(Run(contestant, recipe, data))
        steps.append(max(20, int(total / seconds)))
    marks = [total * (point + 1) / options.points for point in range(options.points)]
    for low, high in zip([0.0, *marks], marks, strict=False):
        slices = max(1, round((high - low) / SLICE_SECONDS))
        for part in range(1, slices + 1):
            for run, planned in zip(runs, steps, strict=True):
                run.train(low + (high - low) * part / slices, total, planned)
        for run in runs:
            run.measure(lines, references)
    return runs


def recipe_of(options: argparse.Namespace, folder: Path) -> Recipe:
    """The recipe on this text."""
    corpus = options.corpus or shipped(folder)
    sides = (options.source, options.target)
    train, dev = (
        [str(find(corpus, f"{part}.{side}")) for side in sides] for part in ("train", "dev")
    )
    overrides = [
        f'data.source=["{train[0]}"]',
        f'data.target=["{train[1]}"]',
        f'data.valid_source="{dev[0]}"',
        f'data.valid_target="{dev[1]}"',
        *options.set,
    ]
    return load_recipe_of(Recipe, options.recipe, overrides)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "corpus", type=Path, nargs="?", help="a folder; that in the package if none"
    )
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--minutes", type=float, default=20.0, help="for each of the two")
    parser.add_argument("--points", type=int, default=8, help="at which BLEU is measured")
    parser.add_argument("--lines", type=int, default=500, help="of dev that are translated")
    parser.add_argument("--peer", choices=tuple(PEERS), help="instead of the one that is there")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="half a minute each")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.peer = options.peer or ("joeynmt" if has_joeynmt() else "torch")
    if options.quick:
        options.minutes, options.points = min(options.minutes, 0.5), 2
        options.lines = min(options.lines, 50)
        options.set += ["training.batch_tokens=800", "vocabulary.size=4000"]
    return options


def main() -> None:
    options = parse()
    hold_memory()
    logging.disable(logging.INFO)  # JoeyNMT tells much
    machine = (
        f"regard {regard.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {cpu_model()}, {usable_cores()} cores"
    )
    print(machine)
    with tempfile.TemporaryDirectory() as aside:
        recipe = recipe_of(options, Path(aside))
        data = prepare_corpus(recipe.data, recipe.vocabulary, Path(aside) / "data", log=print)
        runs = compare(recipe, data, options)
    mine, other = ([point["bleu"] for point in run.curve] for run in runs)
    reached = next((run["minutes"] for run in runs[0].curve if run["bleu"] >= other[-1]), None)
    print(f"BLEU after {options.minutes:g} minutes each: {mine[-1]:.1f} and {other[-1]:.1f}")
    if reached is not None:
        print(f"regard was where {runs[1].contestant.name} ended after {reached:.1f} minutes")
    if options.json:
        found: dict[str, Any] = {"machine": machine, "minutes": options.minutes}
        found["curves"] = {run.contestant.name: run.curve for run in runs}
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
