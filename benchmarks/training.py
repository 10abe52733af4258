"""How many target tokens a second does a training see, and in how much memory, beside others?

    python benchmarks/training.py CORPUS [--recipes small,base] [--rounds 5] [--json out.json]
    python benchmarks/training.py CORPUS --quick

CORPUS is a folder with `train.en.xz` and `train.de.xz` (`--source` and `--target` name other
files in it); without one, the text in the package. The recipes `small` (8,000 tokens) and `base`
(37,000) are trained on the same batches of it, which regard's tokenizer and `Batches` make:

- regard: the model, the loss and the `Stepper` that `regard train` runs;
- torch: `torch.nn.Transformer` in the loop that anyone would write: all logits,
  `cross_entropy` over them, `clip_grad_norm_`, AdamW;
- transformers: `MarianMTModel` with what its `Trainer` does in a step: `LabelSmoother` over all
  logits, clipping, fused AdamW (its default), `zero_grad`;
- joeynmt: the model, batch and loss of JoeyNMT 2.3.0, where it is installed (it wants protobuf
  below 3.21, so give it an environment of its own: `pip install joeynmt==2.3.0
  importlib_metadata`). OpenNMT-py 3.5.1 wants torch below 2.3, which no longer goes with
  regard's, and is left out.

Each in float32 and under bfloat16 autocast, with the recipe's depth, widths, ReLU, dropout of
0.1, label smoothing of 0.1 and clipping at 1, and Adam's state in float32. They take turns in one
process, all with regard's settings of the allocator (`--plain-malloc`: none of them), one batch
each a turn, every batch seen by all. Real target tokens count, padding does not. What is printed
is the median over batches and the ratio of medians: regard in the same precision, and regard in
the one that `precision = "auto"` would take here, against each.

A step has `--batch-tokens` tokens a side: 3,000 for `small`, as its recipe says, and 2,048 for
`base`, whose 25,000 would hold several times 3.7 GB of logits in the others. Peak memory is the
most that was ever resident in a process of its own with that contestant alone (imports, weights,
three steps over the largest of the batches); each of those runs after the timing.
"""

import argparse
import json
import logging
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peers import CLIP, PEERS, RATE, has_joeynmt

import regard
from regard.corpora import HOME_ASSISTANT_EN_DE
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
from regard.training.precision import Precision
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally

VOCABULARY = {"small": 8000, "base": 37_000}
BATCH_TOKENS = {"small": 3000, "base": 2048}
CONTESTANTS = ("regard", *PEERS)
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")

PRODUCTS = {f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "addmm_")} | {
    "mkldnn::_linear_pointwise"
}
KINDS = {
    kind: {f"aten::{name}" for name in names.split()}
    for kind, names in {
        "copies and casts": "copy_ cat contiguous clone _to_copy",
        "softmax of attention": "_softmax _softmax_backward_data",
        "dropout": "random_ ge_ bernoulli_ native_dropout",
        "norms": "native_layer_norm native_layer_norm_backward",
        "sums and additions": "sum add add_",
        "products by elements": "mul mul_",
        "ReLU": "clamp_min threshold_backward relu",
        "filling with zeros": "fill_ zero_ zeros",
        "embeddings": "embedding index_select embedding_dense_backward index_add_",
        "norm of the gradient": "linalg_vector_norm _foreach_norm",
    }.items()
}

# What is known by what it is done for.
OWN = {
    "optimizer": ("Optimizer.",),
    "the loss": ("_LinearCrossEntropy",),
    "attention kernel": ("_Attention",),
    "dropout, residual, norm kernels": ("_Residual", "_Norm"),
}

Step = Callable[[Batch], None]


def ours(recipe: Recipe, data: PreparedData, precision: Precision) -> Step:
    """The step of `regard train`."""
    model = build_model(
        recipe.model,
        source_vocabulary=data.tokenizers.source.size,
        target_vocabulary=data.tokenizers.target.size,
        seed=1,
    ).train()
    stepper = Stepper(
        model,
        recipe.training,
        device=torch.device("cpu"),
        precision=precision,
        loss=translation_loss,
    )
    tally, numbers = Tally(Window()), count(1)

    def step(batch: Batch) -> None:
        parts = tuple(split_batch(batch, 1))
        whole = StepBatch(parts, batch.target_tokens, batch.pairs_b, 0, 0)
        stepper.take(whole, next(numbers), RATE, tally)
        tally.look()  # as training does on a CPU

    return step


def maker(which: str, recipe: Recipe, data: PreparedData) -> Step:
    """The step of a contestant, by its name and precision."""
    who, kind = which.split()
    if who == "regard":
        return ours(recipe, data, "bfloat16" if kind == "bfloat16" else "float32")
    return PEERS[who](recipe, data.tokenizers.target, narrow=kind == "bfloat16").step


def recipe_of(name: str, tokens: int, options: argparse.Namespace) -> Recipe:
    """The recipe, on this text, with the same optimizer and clipping as the others."""
    folder, source, target = options.corpus, options.source, options.target
    text = {"tsv": [str(HOME_ASSISTANT_EN_DE)]}
    if folder:
        text = {"source": [str(folder / source)], "target": [str(folder / target)]}
    overrides = {
        **{f"data.{key}": json.dumps(value) for key, value in text.items()},
        "vocabulary.size": str(options.vocabulary or VOCABULARY[name]),
        "training.batch_tokens": str(tokens),
        "training.clip_norm": str(CLIP),
        "training.ema_decay": "0",
        "training.optimizer.kind": "adamw",
    }
    return load_recipe_of(Recipe, name, [f"{key}={value}" for key, value in overrides.items()])


def prepared(name: str, options: argparse.Namespace, folder: Path) -> tuple[Recipe, PreparedData]:
    """A recipe and its text, tokenised once."""
    recipe = recipe_of(name, options.batch_tokens or BATCH_TOKENS[name], options)
    return recipe, prepare_corpus(recipe.data, recipe.vocabulary, folder, log=lambda _: None)


def batches_of(recipe: Recipe, data: PreparedData, number: int) -> list[Batch]:
    """The first batches of the training text, as `regard train` sees them."""
    batches = Batches(
        data.train, data.tokenizers, batch_tokens=recipe.training.batch_tokens, seed=1
    )
    return list(islice(batches.epoch(0), number))


def compare(name: str, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Let all contestants learn from the same batches by turns."""
    recipe, data = prepared(name, options, folder)
    batches = batches_of(recipe, data, options.warm_up + options.rounds)
    names = [f"{who} {kind}" for kind in options.precisions for who in options.contestants]
    steps = {which: maker(which, recipe, data) for which in names}
    speeds: dict[str, list[float]] = {which: [] for which in names}
    places = sum(batch.target_in_bt.numel() for batch in batches)
    padding = 1 - sum(batch.target_tokens for batch in batches) / places
    print(
        f"\n{name}: vocabulary {data.tokenizers.target.size:,}, {len(batches)} batches of "
        f"{recipe.training.batch_tokens:,} tokens a side, {padding:.1%} of the target side padding"
    )
    for turn, batch in enumerate(batches):
        for which in names[turn % len(names) :] + names[: turn % len(names)]:
            began = time.perf_counter()
            steps[which](batch)
            taken = time.perf_counter() - began
            if turn >= options.warm_up:
                speeds[which].append(batch.target_tokens / taken)
    steps.clear()
    rows = []
    for which in names:
        peak = None if options.no_memory else peak_memory(name, which, options, folder)
        rows.append(
            {
                "recipe": name,
                "contestant": which,
                "tokens_per_second": median(speeds[which]),
                "lowest": min(speeds[which]),
                "highest": max(speeds[which]),
                "batches": len(speeds[which]),
                "peak_mb": peak,
            }
        )
    return rows


def kind_of(event: Any) -> str:  # noqa: ANN401 - torch's have no public type
    """What kind of work an operation is, by its name and by what it is done for."""
    above, names = event, []
    while above is not None:
        names.append(above.name)
        above = above.cpu_parent
    backward = any(name.startswith("autograd::engine") for name in names)
    for kind, marks in OWN.items():
        if any(mark in name for mark in marks for name in names):
            return f"products of {kind}" if event.name in PRODUCTS else kind
    if event.name in PRODUCTS:
        return "products, backward" if backward else "products, forward"
    for kind, operations in KINDS.items():
        if event.name in operations:
            return kind
    return "all else"


def profile(name: str, options: argparse.Namespace, folder: Path) -> None:
    """Print where the time of regard's step goes, by kind of work, in percent."""
    recipe, data = prepared(name, options, folder)
    batches = batches_of(recipe, data, options.warm_up + options.rounds)
    for kind in options.precisions:
        step = ours(recipe, data, kind)
        for batch in batches[: options.warm_up]:
            step(batch)
        began = time.perf_counter()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            for batch in batches[options.warm_up :]:
                step(batch)
        each = 1000 * (time.perf_counter() - began) / options.rounds
        times: Counter[str] = Counter()
        for event in found.events() or ():
            times[kind_of(event)] += event.self_cpu_time_total
        print(f"\n{name} {kind}: {each:,.0f} ms a step while profiled")
        for work, spent in times.most_common():
            print(f"{work:34}{100 * spent / times.total():6.1f} %")


def peak_memory(name: str, which: str, options: argparse.Namespace, folder: Path) -> float:
    """The most that is resident in a process with this contestant alone, in MB."""
    command = [sys.executable, __file__, *options.passed_on, "--alone", name, which, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def alone(name: str, which: str, folder: str, options: argparse.Namespace) -> None:
    """Do three steps over the largest of the batches and print the peak of memory in MB."""
    recipe, data = prepared(name, options, Path(folder))
    batches = batches_of(recipe, data, options.warm_up + options.rounds)
    step = maker(which, recipe, data)
    largest = max(batches, key=lambda batch: batch.target_in_bt.numel() + batch.source_bs.numel())
    for _ in range(3):
        step(largest)
    print(most_resident())


def most_resident() -> float:
    """The most that was ever resident in this process, in MB."""
    # A child's ru_maxrss begins with that of the process it was forked from; Linux has better.
    if sys.platform.startswith("linux"):
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def versions(package: str) -> str:
    """The version of a package, or that it is not here."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def show(rows: list[dict[str, Any]]) -> None:
    """A line a contestant, and how many times as fast regard is: in the same precision, at best."""
    speeds = {row["contestant"]: row["tokens_per_second"] for row in rows}
    own = [speed for which, speed in speeds.items() if which.startswith("regard")]
    print(f"{'':26}{'tokens/s':>10}{'(range)':>18}{'peak MB':>10}  regard alike   at its best")
    for row in rows:
        who, kind = row["contestant"].split()
        span = f"{row['lowest']:,.0f}-{row['highest']:,.0f}"
        peak = "" if row["peak_mb"] is None else f"{row['peak_mb']:,.0f}"
        line = f"{who:14}{kind:12}{row['tokens_per_second']:10,.0f}{span:>18}{peak:>10}"
        if who != "regard" and own:
            alike = speeds.get(f"regard {kind}")
            row["ratio_alike"] = alike / row["tokens_per_second"] if alike else None
            row["ratio_best"] = max(own) / row["tokens_per_second"]
            line += f"{row['ratio_alike'] or 0:10.2f} times{row['ratio_best']:8.2f} times"
        print(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="?", help="a folder with the two files")
    parser.add_argument("--source", default="train.en.xz")
    parser.add_argument("--target", default="train.de.xz")
    parser.add_argument("--recipes", default="small,base")
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--rounds", type=int, default=9, help="batches that count")
    parser.add_argument("--warm-up", type=int, default=3, help="batches that do not")
    parser.add_argument("--batch-tokens", type=int, help="on each side of a batch")
    parser.add_argument("--vocabulary", type=int, help="another size for all")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--prepared", type=Path, help="keep the tokenised text in this folder")
    parser.add_argument("--plain-malloc", action="store_true", help="no settings of the allocator")
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak of memory")
    parser.add_argument("--profile", action="store_true", help="where regard's time goes, alone")
    parser.add_argument("--quick", action="store_true", help="small only, few and small batches")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.recipes, options.batch_tokens = "small", options.batch_tokens or 512
        options.rounds, options.warm_up = min(options.rounds, 5), 1
        options.vocabulary = options.vocabulary or 4000
    options.contestants = options.contestants.split(",")
    if "joeynmt" in options.contestants and not has_joeynmt():
        options.contestants.remove("joeynmt")
        print("JoeyNMT is not here and left out: pip install joeynmt==2.3.0 importlib_metadata")
    options.precisions = options.precisions.split(",")
    options.passed_on = [given for given in sys.argv[1:] if given != "--no-memory"]
    return options


def main() -> None:
    options = parse()
    logging.disable(logging.INFO)  # JoeyNMT tells much
    if not options.plain_malloc:
        hold_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.alone:
        alone(*options.alone, options)
        return
    machine = {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "regard": regard.__version__,
        "torch": torch.__version__,
        **{name: versions(name) for name in ("transformers", "joeynmt")},
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    rows = []
    with tempfile.TemporaryDirectory() as aside:
        for name in options.recipes.split(","):
            folder = (options.prepared or Path(aside)) / name
            if options.profile:
                profile(name, options, folder)
                continue
            found = compare(name, options, folder)
            show(found)
            rows += found
    if options.json:
        found_all = {"machine": machine, "rows": rows}
        options.json.write_text(json.dumps(found_all, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
