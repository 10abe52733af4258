"""The plan in docs/scaling.md: its figures follow from what a training really holds and sends."""

from pathlib import Path

import pytest
import torch
from training.digits import DigitBatches, settings, tiny_model
from training.processes import together

import regard
from regard.models.count import total_parameters
from regard.recipes.describe import parts_of
from regard.training.feed import Feed
from regard.training.losses import BLOCK_BYTES, translation_loss
from regard.training.processes import ALONE, Processes
from regard.training.sharding import local
from regard.training.state import Window, take_tensors
from regard.training.step import Stepper
from regard.training.tally import Tally

TEXT = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
# One space between words: lines are broken where they are full.
PLAN = " ".join(TEXT.partition("## A plan")[2].split())
SIZES = {"model.d_model": 2048, "model.num_heads": 16, "model.num_kv_heads": 16,
         "model.num_layers": 18, "model.d_ff": 5632, "vocabulary.size": 32000}  # fmt: skip
GPUS = 64


def held(processes: Processes, ema: float, parallel: str) -> dict[str, float]:
    """The bytes a parameter that a process holds after a step, and those of a checkpoint."""
    model = tiny_model()
    numbers = sum(weight.numel() for weight in model.parameters())
    config = settings(ema_decay=ema, parallel=parallel)
    stepper = Stepper(model, config, device=torch.device("cpu"), precision="float32",
                      loss=translation_loss, processes=processes)  # fmt: skip
    feed = Feed(DigitBatches(), epoch=0, start=0, parts=1, device=torch.device("cpu"),
                rank=processes.rank, count=processes.count)  # fmt: skip
    with feed:
        stepper.take(next(iter(feed)), 1, 1e-3, Tally(Window()))
    saved = take_tensors(model, stepper.optimizer, stepper.average)
    moments = [tensor for state in stepper.optimizer.state.values() for tensor in state.values()]
    groups = {
        "weights": list(model.parameters()),
        "gradients": [weight.grad for weight in model.parameters() if weight.grad is not None],
        "moments": [tensor for tensor in moments if tensor.ndim],
        "average": list(stepper.average.weights.values()) if stepper.average else [],
        "checkpoint": [tensor for name in ("model", "optimizer", "ema") if name in saved
                       for tensor in saved[name].values() if tensor.ndim],
    }  # fmt: skip
    return {
        name: sum(local(tensor).numel() * tensor.element_size() for tensor in tensors) / numbers
        for name, tensors in groups.items()
    }


def test_a_training_holds_the_bytes_a_parameter_that_the_plan_reckons_with() -> None:
    plain = {"weights": 4, "gradients": 4, "moments": 8, "average": 0, "checkpoint": 12}
    assert held(ALONE, 0.0, "replicate") == plain
    averaged = {**plain, "average": 4, "checkpoint": 16}
    assert held(ALONE, 0.9, "replicate") == averaged
    # Each of two keeps half of everything; vectors of odd size are not cut evenly.
    both = together(2, lambda one: held(one, 0.9, "shard"))
    for name, size in averaged.items():
        assert sum(one[name] for one in both) == pytest.approx(size)
        assert both[0][name] == pytest.approx(size / 2, rel=0.05)


def test_the_plans_figures_are_those_of_its_formulas() -> None:
    recipe = regard.load_recipe("llama-mini", [f"{key}={value}" for key, value in SIZES.items()])
    for key, value in SIZES.items():
        assert f"{key}={value}" in PLAN
    parameters = total_parameters(parts_of(recipe, *[SIZES["vocabulary.size"]] * 2))
    billions = parameters / 1e9
    batch = 2**20
    tokens = batch // GPUS
    share = (GPUS - 1) / GPUS
    ring, cut = 2 * share * 4 * billions, 3 * share * 4 * billions
    flops = 6 * parameters * tokens / 1e12
    matrix = SIZES["vocabulary.size"] * SIZES["model.d_model"] * 4 / 1e6
    layer = tokens * SIZES["model.d_model"] * 4 / 1e9
    rows = BLOCK_BYTES // (2 * SIZES["vocabulary.size"])
    logits = rows * SIZES["vocabulary.size"] / 1e6
    steps = 20 * parameters / batch
    for figure in (
        f"{parameters / 1e6:.0f} M parameters",
        f"| weights, gradients, Adam | 16 | {16 * billions:.1f} |",
        f"| bfloat16 weights of a pass | 2 | {2 * billions:.1f} |",
        f"| moving average, if any | 4 | {4 * billions:.1f} |",
        f"| together | 22 | {22 * billions:.1f} |",
        f"training.batch_tokens={batch}",
        f"{tokens:,} tokens a GPU",
        f"{1000 * layer:.0f} MB a layer, {18 * layer:.1f} GB for 18",
        f"{rows:,} tokens at a time: {2 * logits:.0f} MB",
        f"twice {4 * logits:.0f} MB of float32",
        f"{ring:.1f} GB for N = {GPUS}",
        f"| 100 Gb/s, 12.5 GB/s | {ring / 12.5:.2f} s |",
        f"| 400 Gb/s, 50 GB/s | {ring / 50:.2f} s |",
        f"{flops:.0f} TFLOP a GPU a step ({flops * 4 / 3:.0f} with recomputation)",
        f"{20 * billions / GPUS:.1f} GB, beside {2 * billions:.1f} GB",
        f"= {matrix:.0f} MB each",
        f"= {cut:.1f} GB a process a step",
        f"{cut / 50:.2f} s at 400 Gb/s and {cut / 12.5:.2f} s at 100 Gb/s",
        f"{12 * billions:.1f} GB, copied",
        f"{GPUS} × {12 * billions:.1f} = {GPUS * 12 * billions:.0f} GB",
        f"8 × {12 * billions:.1f} = {8 * 12 * billions:.0f} GB",
        f"{20 * billions:.1f} G tokens: {round(steps, -2):,.0f} steps",
    ):
        assert figure in PLAN, figure
