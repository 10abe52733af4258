"""How fast is each sequence layer beside other libraries' own, and how does it grow with length?

    python benchmarks/layers.py [--quick] [--json FILE] [--only WORD] [--part peers|growth]

Peers: ours and theirs hold the same weights (tests/nn/mixers/test_peers.py: they are equal; of
BigBird and Performer see there). They take turns in one process; each time is the median of
forward passes, and of training steps (forward and backward), by the wall clock. The ratio is
theirs by ours: above 1, ours is faster. "fused" says that what does the peer's work is one kernel
of torch. transformers' BigBird also writes out all n x n weights, which nobody asked for: that is
its own doing, and is counted. Its blocks look at as many blocks as ours.

Growth: training steps of one row at d 256, each layer and length in a process of its own, which
measures the peak resident size above that before a first step, with malloc told to give back what
is freed, and then the median time of others, with malloc as `regard train` sets it (so it is for
the peers, on both sides). Plain is attention by `attend`; the exponent is fitted over the three
longest lengths. Steps longer than 10 s are taken three times instead of five.
"""

import argparse
import ctypes
import gc
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import peers

import regard
from regard.counts import counted
from regard.machine import cpu_model, usable_cores
from regard.nn.attention import Heads, HeadShape, attend
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    GRUConfig,
    LinearConfig,
    LSTMConfig,
    MambaConfig,
    MixerConfig,
    PerformerConfig,
    RNNConfig,
    WindowConfig,
)
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions
from regard.training.allocator import hold_memory

HEAD = 64
SIZES = ((512, 8), (2048, 2), (8192, 1))  # lengths and rows
WIDTHS = (256, 512)
LENGTHS = (2048, 4096, 8192, 16384)
QUICK_LENGTHS = (512, 1024, 2048)
LIBRARIES = ("torch", "x-transformers", "local-attention", "performer-pytorch", "transformers")
Layer = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Pair:
    """A layer of ours and one of another library."""

    name: str
    config: MixerConfig
    peer: Callable[[torch.nn.Module, int], torch.nn.Module]
    causal: bool = False
    bias: bool = True
    fused: bool = False
    longest: int = 10**9


def by_torch(causal: bool) -> Callable[[torch.nn.Module, int], torch.nn.Module]:
    return lambda ours, _: peers.ByTorch(ours, causal=causal)


def by_recurrence(ours: torch.nn.Module, _: int) -> torch.nn.Module:
    return peers.torch_recurrence(ours)


FEATURES = 266  # what performer-pytorch takes for heads of 64
PAIRS = (
    Pair("full, torch's fused product", FullConfig(), by_torch(False), fused=True),
    Pair("full causal, torch's fused product", FullConfig(), by_torch(True), True, fused=True),
    Pair("full, nn.MultiheadAttention", FullConfig(),
         lambda ours, _: peers.torch_multihead(ours), fused=True),
    Pair("full, x-transformers", FullConfig(),
         lambda ours, _: peers.x_transformers(ours, causal=False), bias=False, fused=True),
    Pair("full causal, x-transformers", FullConfig(),
         lambda ours, _: peers.x_transformers(ours, causal=True), True, False, True),
    Pair("window 257, local-attention", WindowConfig(window=257),
         lambda ours, _: peers.local_attention(ours), bias=False),
    Pair("window 257 causal, local-attention", WindowConfig(window=257),
         lambda ours, _: peers.local_attention(ours), True, False),
    Pair("window 257 + 1 global, Longformer", WindowConfig(window=257, global_tokens=1),
         peers.longformer),
    Pair("bigbird, transformers", BigBirdConfig(global_blocks=2), peers.bigbird),
    Pair("performer, performer-pytorch", PerformerConfig(features=FEATURES),
         lambda ours, _: peers.performer(ours), bias=False),
    Pair("performer causal, performer-pytorch", PerformerConfig(features=FEATURES),
         lambda ours, _: peers.performer(ours), True, False, longest=2048),
    Pair("rnn causal, torch.nn", RNNConfig(), by_recurrence, True, fused=True),
    Pair("lstm causal, torch.nn", LSTMConfig(), by_recurrence, True, fused=True),
    Pair("lstm, torch.nn", LSTMConfig(), by_recurrence, fused=True),
    Pair("gru causal, torch.nn", GRUConfig(), by_recurrence, True, fused=True),
)  # fmt: skip
# What grows with the length: a name, the layer (None: plain attention) and whether it is causal.
GROWING: dict[str, tuple[MixerConfig | None, bool]] = {
    "plain attention": (None, False),
    "full (fused)": (FullConfig(), False),
    "full causal (fused)": (FullConfig(), True),
    "window 512": (WindowConfig(window=512), False),
    "bigbird": (BigBirdConfig(), False),
    "performer": (PerformerConfig(), False),
    "performer causal": (PerformerConfig(), True),
    "linear causal": (LinearConfig(), True),
    "mamba": (MambaConfig(), True),
    "rnn": (RNNConfig(), True),
    "lstm": (LSTMConfig(), True),
    "gru": (GRUConfig(), True),
    "convolution": (ConvolutionConfig(), True),
}


def built(config: MixerConfig, width: int, *, causal: bool, bias: bool = True) -> torch.nn.Module:
    torch.manual_seed(0)
    heads = width // HEAD
    shape = HeadShape(
        d_model=width,
        num_heads=heads,
        d_k=HEAD,
        d_v=HEAD,
        num_kv_heads=heads,
        bias=bias,
        output_bias=bias,
    )
    return build_mixer(config, shape, causal=causal)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def forward(layer: Layer, x: torch.Tensor) -> None:
    with torch.no_grad():
        layer(x)


def step(layer: Layer, x: torch.Tensor) -> None:
    layer(x).square().mean().backward()


def compared(pair: Pair, length: int, rows: int, width: int, times: int) -> list[dict]:
    """Two rows of results: forward passes and training steps."""
    layer = built(pair.config, width, causal=pair.causal, bias=pair.bias)
    theirs = pair.peer(layer, length)

    def ours(x: torch.Tensor) -> torch.Tensor:
        return layer(x, Span.whole(Positions(), x, causal=pair.causal))

    x = torch.randn(rows, length, width, requires_grad=True)
    results = []
    for what, work in (("forward", forward), ("training step", step)):
        taken: dict[str, list[float]] = {"ours": [], "peer": []}
        for turn in range(times + 1):
            for who, one in (("ours", ours), ("peer", theirs)):
                took = seconds(lambda work=work, one=one: work(one, x))
                if turn:  # the first of each warms up
                    taken[who].append(took)
        mine, other = median(taken["ours"]), median(taken["peer"])
        results.append(
            {
                "name": f"{pair.name}: {what}",
                "n": length,
                "rows": rows,
                "d": width,
                "ours": mine,
                "peer": other,
                "ratio": other / mine,
                "unit": "s",
                "fused": pair.fused,
            }
        )
    return results


def compare(options: argparse.Namespace) -> list[dict]:
    results: list[dict] = []
    sizes, widths = (SIZES[:2], WIDTHS[:1]) if options.quick else (SIZES, WIDTHS)
    for pair in PAIRS:
        for width in widths:
            for length, rows in sizes:
                if options.only not in pair.name or length > pair.longest:
                    continue
                try:
                    made = compared(pair, length, rows, width, 3 if options.quick else 5)
                except ImportError as error:
                    print(f"{pair.name}: left out, {error}")
                    continue
                for row in made:
                    print(f"{row['name']:52} n {length:6,} x {rows} d {width} "
                          f"{row['ours']:8.4f} s {row['peer']:8.4f} s  ratio {row['ratio']:.2f}"
                          f"{'  fused' if pair.fused else ''}", flush=True)  # fmt: skip
                results += made
                gc.collect()
    return results


def resident(name: str) -> int:
    """A size from this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"this benchmark needs Linux: /proc/self/status has no {name}")


def plain(layer: Heads, x: torch.Tensor) -> torch.Tensor:
    query, seen = layer.project(x)
    return layer.join(attend(query, seen.key_bhke, seen.value_bhkw))


def measured(name: str, length: int, width: int = 256) -> dict[str, float]:
    """The time and the peak memory of a training step, in this process."""
    config, causal = GROWING[name]
    layer = built(config or FullConfig(), width, causal=causal)

    def run(x: torch.Tensor) -> torch.Tensor:
        if config is None:
            return plain(layer, x)
        return layer(x, Span.whole(Positions(), x, causal=causal))

    step(run, torch.randn(1, 300, width))  # what is loaded or made once
    x = torch.randn(1, length, width, requires_grad=True)
    # Large blocks go back to the system at once (M_MMAP_THRESHOLD), or the peak would depend on
    # the gaps that malloc keeps. Writing 5 sets the peak back to what is held now.
    ctypes.CDLL(None).mallopt(-3, 2**18)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    taken = [seconds(lambda: step(run, x))]
    peak = resident("VmHWM") - before
    hold_memory()  # as in training
    while len(taken) < (5 if taken[0] > 10 else 7):
        taken.append(seconds(lambda: step(run, x)))
    return {"seconds": median(taken[2:]), "bytes": peak}


def slope(points: list[tuple[int, float]]) -> float:
    """The exponent of a power of the length, by least squares on logarithms."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    across = sum((x - mean_x) * (y - mean_y) for x, y in logs)
    return across / sum((x - mean_x) ** 2 for x, _ in logs)


def grow(options: argparse.Namespace) -> list[dict]:
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    results: list[dict] = []
    for name in GROWING:
        if options.only not in name and name != "plain attention":
            continue
        points = []
        for length in lengths:
            command = [sys.executable, __file__, "--child", name, str(length)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            points.append(json.loads(output.splitlines()[-1]))
        row = {
            "name": f"{name}: training step, 1 x d 256",
            "n": lengths,
            "seconds": [point["seconds"] for point in points],
            "bytes": [point["bytes"] for point in points],
        }
        last = slice(-3, None)
        for unit in ("seconds", "bytes"):
            pairs = list(zip(lengths, row[unit], strict=True))[last]
            row[f"exponent of {unit}"] = slope(pairs)
        results.append(row)
        base = results[0]
        row["times as fast as plain"] = base["seconds"][-1] / row["seconds"][-1]
        row["part of plain's memory"] = row["bytes"][-1] / base["bytes"][-1]
        faster, part = row["times as fast as plain"], row["part of plain's memory"]
        print(f"{name:22}", " ".join(f"{value:8.3f} s" for value in row["seconds"]),
              f" n^{row['exponent of seconds']:.2f} |",
              " ".join(f"{value / 2**20:7.0f} MB" for value in row["bytes"]),
              f" n^{row['exponent of bytes']:.2f} | {faster:.1f} times as fast as plain, "
              f"{part:.3f} of its memory", flush=True)  # fmt: skip
    return results


def versions() -> str:
    found = []
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            found.append(f"no {library}")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short lengths, fewer times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--only", default="", metavar="WORD", help="layers with it in their name")
    parser.add_argument("--part", choices=("peers", "growth"), help="one of the two")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child[0], int(options.child[1]))))
        return
    print(f"regard {regard.__version__}, {versions()}, Python {platform.python_version()}, "
          f"{cpu_model()}, {counted(usable_cores(), 'core')}, "
          f"{counted(torch.get_num_threads(), 'thread')}")  # fmt: skip
    hold_memory()  # as in training, for both sides
    rows = compare(options) if options.part != "growth" else []
    rows += grow(options) if options.part != "peers" else []
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
