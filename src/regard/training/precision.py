"""Float32 or bfloat16 autocast: decided by a short measurement on this machine, and said."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from regard.kernels.products import linear
from regard.shapes import Tensor
from regard.training.config import TrainingConfig
from regard.training.processes import Processes

Precision = Literal["float32", "bfloat16"]

# bfloat16 loses digits, so it has to win clearly; this also keeps noise from deciding.
_WORTHWHILE = 1.15
_SECONDS_EACH = 0.35


@dataclass(frozen=True, slots=True)
class GemmSizes:
    """The matrix sizes of a training step: rows of hidden states and the widths they meet."""

    rows: int = 8192
    d_model: int = 512
    d_ff: int = 2048
    vocabulary: int = 8192

    def measurable(self, device: torch.device) -> "GemmSizes":
        """No larger than what a device does in a small part of a second."""
        rows, vocabulary = (8192, 8192) if device.type == "cuda" else (256, 2048)
        return replace(self, rows=min(self.rows, rows), vocabulary=min(self.vocabulary, vocabulary))


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """What a run computes in, and the figures that decided it.

    The two figures are billions of multiplications and additions a second (GFLOP/s) of a
    training-like set of matrix products; both are 0 where nothing was measured.
    """

    name: Precision
    reason: str
    float32_gflops: float = 0.0
    bfloat16_gflops: float = 0.0

    def __str__(self) -> str:
        if not self.float32_gflops:
            return f"{self.name} ({self.reason})"
        return (
            f"{self.name} ({self.reason}: float32 {self.float32_gflops:,.0f} GFLOP/s, "
            f"bfloat16 autocast {self.bfloat16_gflops:,.0f} GFLOP/s)"
        )


def choose_precision(
    wanted: Literal["auto", "float32", "bfloat16"],
    device: torch.device,
    sizes: GemmSizes | None = None,
) -> PrecisionChoice:
    """Take what the recipe says or, for `auto`, the one that a measurement finds faster.

    The measurement takes under a second. bfloat16 is taken only where it is at least 1.15 times
    as fast; the master weights, the softmax and the sums stay float32 in either case.
    """
    if wanted != "auto":
        return PrecisionChoice(wanted, "set in the recipe")
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return PrecisionChoice("float32", "this GPU has no bfloat16")
    sizes = (sizes or GemmSizes()).measurable(device)
    speeds = {
        name: measure_gemms(name, device, sizes, _SECONDS_EACH) / 1e9
        for name in ("float32", "bfloat16")
    }
    faster = speeds["bfloat16"] >= _WORTHWHILE * speeds["float32"]
    return PrecisionChoice(
        "bfloat16" if faster else "float32",
        "measured as faster" if faster else "bfloat16 is not clearly faster here",
        speeds["float32"],
        speeds["bfloat16"],
    )


def agreed_precision(
    model: nn.Module,
    config: TrainingConfig,
    device: torch.device,
    processes: Processes,
    *,
    former: Precision | None,
) -> PrecisionChoice:
    """What a training computes in: all of its processes in what the main one chooses.

    Args:
        model: one with `config.d_model` and a projection to its vocabulary.
        config: says what is wanted.
        device: what it computes on.
        processes: those that train.
        former: what the run that is gone on with has computed in; None at a beginning.
    """
    if config.precision == "auto" and former:
        # Measuring again might choose otherwise, and the run would not go on as it began.
        return PrecisionChoice(former, "as the run began")
    d_model = int(model.config.d_model)  # type: ignore[union-attr, arg-type]
    sizes = GemmSizes(
        rows=max(1, config.batch_tokens // config.accumulate),
        d_model=d_model,
        d_ff=getattr(model.config, "d_ff", 4 * d_model),
        vocabulary=len(model.output_weight),  # type: ignore[arg-type]
    )
    chosen: list[PrecisionChoice] = []

    def choose() -> Precision:
        chosen.append(choose_precision(config.precision, device, sizes))
        return chosen[0].name

    name = processes.from_main(choose)
    return chosen[0] if chosen else PrecisionChoice(name, "as process 0 chose")


def autocast(name: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context that forward passes run in."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=name == "bfloat16")


def measure_gemms(name: Precision, device: torch.device, sizes: GemmSizes, seconds: float) -> float:
    """Floating-point operations a second of forward and backward passes, casts included.

    Three products, as in a Transformer: square (attention), into and out of the feed-forward,
    and a projection to the vocabulary, each with its two gradients.
    """
    generator = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> Tensor:
        values = torch.randn(rows, columns, generator=generator) / math.sqrt(columns)
        return values.to(device).requires_grad_()

    hidden = matrix(sizes.rows, sizes.d_model)
    square = matrix(sizes.d_model, sizes.d_model)
    inner, outer = matrix(sizes.d_ff, sizes.d_model), matrix(sizes.d_model, sizes.d_ff)
    output = matrix(sizes.vocabulary, sizes.d_model)
    weights = sum(weight.numel() for weight in (square, inner, outer, output))

    def once() -> None:
        with autocast(name, device):
            hidden_ = linear(torch.relu(linear(linear(hidden, square), inner)), outer)
            logits = linear(hidden_, output)
        logits.sum().backward()  # type: ignore[no-untyped-call]

    return 6 * sizes.rows * weights * _repetitions_a_second(once, device, seconds)


def _repetitions_a_second(once: Callable[[], None], device: torch.device, seconds: float) -> float:
    """The best of several timed runs, which is what the machine can do when left alone."""

    def timed() -> float:
        started = time.perf_counter()
        once()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed()  # The first call chooses and builds kernels.
    end = time.perf_counter() + seconds
    best = timed()
    while time.perf_counter() < end:
        best = min(best, timed())
    return 1 / best
