"""How much of a training's time do its checkpoints take, at the recipe's own interval?

    python benchmarks/checkpoints.py [--recipe small] [--steps 60] [--saves 3] [--rounds 3]
    python benchmarks/checkpoints.py --quick --json quick.json

The same steps, on the same random tokens, by turns without checkpoints, with checkpoints written
beside the training (ours) and with checkpoints that the training waits for (peer). What a save
costs is the difference in wall time to the steps without, by the number of saves: copying the
state, waiting for the save before, and whatever the writing takes from the steps beside it. The
share is that cost by the time between two saves at the recipe's `checkpoint_every`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import regard
from regard.models.build import build_model
from regard.recipes.recipe import Recipe
from regard.text.batches import Batch
from regard.training.keeper import Keeper
from regard.training.loop import Trainer
from regard.training.progress import SilentReporter, Standing
from regard.weights.run_folder import RunFolder

LINE_TOKENS = 30
GOAL = 0.03


class RandomTokens:
    """The same batches of random tokens in each epoch, as large as the recipe says."""

    def __init__(self, recipe: Recipe) -> None:
        self._rows = max(1, recipe.training.batch_tokens // LINE_TOKENS)
        self._size = recipe.vocabulary.size

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches from the `start`-th on."""
        generator = torch.Generator().manual_seed(1)
        shape = (self._rows, LINE_TOKENS)
        for place in range(16):
            source, target = (torch.randint(9, self._size, shape, generator=generator)
                              for _ in range(2))  # fmt: skip
            lengths = torch.full((self._rows,), LINE_TOKENS)
            if place >= start:
                yield Batch(source, lengths, target, target, lengths, torch.arange(self._rows))


class Stopwatch(SilentReporter):
    """Notes when training began and when its last step was done."""

    def begin(self, standing: Standing) -> None:
        """Training starts here."""
        self.began = time.perf_counter()

    def advanced(self, standing: Standing) -> None:
        """A step is done."""
        self.ended = time.perf_counter()


@contextmanager
def waited_for(waits: bool) -> Iterator[list[float]]:
    """Let the training wait for each save, or not; gives the seconds each save held it up."""
    save = Keeper.save
    held: list[float] = []

    def timed(self: Keeper, *arguments: object, **named: object) -> None:
        began = time.perf_counter()
        save(self, *arguments, **named)  # type: ignore[arg-type]
        if waits:
            self.wait()
        held.append(time.perf_counter() - began)

    Keeper.save = timed  # type: ignore[method-assign,assignment]
    try:
        yield held
    finally:
        Keeper.save = save  # type: ignore[method-assign]


def once(recipe: Recipe, steps: int, every: int, *, waits: bool, folder: Path) -> dict[str, float]:
    """Train so many steps, with a save every so many; the seconds until the last step was done."""
    update = {"max_steps": steps, "checkpoint_every": every, "keep_last": 1, "log_every": steps}
    training = recipe.training.model_copy(update=update)
    size = recipe.vocabulary.size
    model = build_model(recipe.model, source_vocabulary=size, target_vocabulary=size, seed=1)
    stopwatch = Stopwatch()
    with waited_for(waits) as held, RunFolder.create(folder) as run:
        Trainer(model, RandomTokens(recipe), training, run, reporter=stopwatch).run()
    size_of = sum(path.stat().st_size for path in (folder / "checkpoints").rglob("*.*"))
    # The last save comes after the last step, which ends the time taken here.
    amid = held[:-1]
    return {
        "seconds": stopwatch.ended - stopwatch.began,
        "held": statistics.fmean(amid) if amid else 0.0,
        "megabytes": size_of / 1e6,
    }


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    recipe = regard.load_recipe(options.recipe, ["data.tsv=['none']", *options.set])
    if not isinstance(recipe, Recipe):
        raise SystemExit("this benchmark trains translators: take small, base or big")
    every = options.steps // (options.saves + 1)
    found: dict[str, list[dict[str, float]]] = {"none": [], "ours": [], "peer": []}
    for turn in range(options.rounds + 1):
        for name, interval in (("none", options.steps), ("ours", every), ("peer", every)):
            with tempfile.TemporaryDirectory(dir=options.folder) as aside:
                one = once(recipe, options.steps, interval, waits=name == "peer",
                           folder=Path(aside) / "run")  # fmt: skip
            if turn:  # the first turn warms up
                found[name].append(one)
    median = {
        name: {key: statistics.median(one[key] for one in ones) for key in ones[0]}
        for name, ones in found.items()
    }
    step = median["none"]["seconds"] / options.steps
    interval_seconds = recipe.training.checkpoint_every * step
    saves = -(-options.steps // every) - 1

    def cost(name: str) -> float:
        return (median[name]["seconds"] - median["none"]["seconds"]) / saves

    def row(name: str, ours: float, peer: float | None, unit: str) -> dict[str, object]:
        ratio = ours / peer if peer else None
        return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit}

    return [
        row("a step", 1000 * step, None, "ms"),
        row("a checkpoint", median["ours"]["megabytes"], None, "MB"),
        row("held up by a save", median["ours"]["held"], median["peer"]["held"], "s"),
        row("cost of a save", cost("ours"), cost("peer"), "s"),
        row(
            f"share of the time at {recipe.training.checkpoint_every:,} steps",
            100 * cost("ours") / interval_seconds,
            100 * cost("peer") / interval_seconds,
            "%",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write, to measure another disk")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quick", action="store_true", help="a small model, once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 1, 24
        options.set = ["training.batch_tokens=600", *options.set]
    rows = measure(options)
    print(f"{'':40}{'beside it':>12}{'waited for':>12}")
    for row in rows:
        peer = "" if row["peer"] is None else f"{row['peer']:.3f}"
        print(f"{row['name']:40}{row['ours']:>12.3f}{peer:>12} {row['unit']}")
    share = rows[-1]["ours"]
    print(f"goal: under {GOAL:.0%}; {'reached' if share < 100 * GOAL else 'missed'}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
