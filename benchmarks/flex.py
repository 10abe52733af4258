"""Does torch's FlexAttention serve as a form of the sliding window, beside the blocks of ours?

The same layer, its projections included, with torch.compile(flex_attention) under a block mask in
the place of our blocks, by turns in one process: the forward pass and a training step, where each
can do it; and what the first call costs before it (compiling, making the mask of a length). Its
outputs are compared with the plain form first. On a CPU or, with --device cuda, on a GPU.

    python benchmarks/flex.py [--device cuda] [--threads N] [--quick] [--json FILE]
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.nn.attention import HeadShape, attend
from regard.nn.mixers.config import WindowConfig
from regard.nn.mixers.span import Span
from regard.nn.mixers.window import WindowAttention
from regard.nn.positions import Positions

Tensor = torch.Tensor
WINDOW, WIDTH, HEADS = 256, 256, 4
LENGTHS, QUICK_LENGTHS = (1024, 4096, 16384), (512, 1024)


def seconds(work: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def sees(_b: Tensor, _h: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) & (query - key < WINDOW)


def stepped(layer: Callable[[Tensor], Tensor], x: Tensor) -> None:
    x.grad = None
    layer(x.requires_grad_()).sum().backward()


def measure(length: int, device: str, repeats: int) -> dict[str, object]:
    torch.manual_seed(0)
    shape = HeadShape(
        d_model=WIDTH, num_heads=HEADS, d_k=WIDTH // HEADS, d_v=WIDTH // HEADS, num_kv_heads=HEADS
    )
    layer = WindowAttention(WindowConfig(window=WINDOW), shape, causal=True).to(device)
    x = torch.randn(1, length, WIDTH, device=device)
    torch._dynamo.reset()  # the first call of every length is timed as such
    compiled = torch.compile(flex_attention, dynamic=False)
    made: list[BlockMask] = []

    def make_mask() -> None:
        made.append(create_block_mask(sees, None, None, length, length, device=device))

    def ours(x: Tensor) -> Tensor:
        return layer(x, Span.whole(Positions(), x, causal=True))

    def flexible(x: Tensor) -> Tensor:
        query, seen = layer.project(x)
        out = compiled(query, seen.key_bhke, seen.value_bhkw, block_mask=made[0])
        return layer.join(out)

    found: dict[str, object] = {"length": length, "mask": seconds(make_mask, device)}
    with torch.no_grad():
        found["first call"] = seconds(lambda: flexible(x), device)
        query, seen = layer.project(x)
        places = torch.arange(length, device=device)
        mask = sees(places, places, places[:, None], places)[None, None]
        plain = layer.join(attend(query, seen.key_bhke, seen.value_bhkw, mask))
        found["error"] = float((flexible(x) - plain).abs().max())
        found["our error"] = float((ours(x) - plain).abs().max())
        del plain, mask
        pairs = [
            (seconds(lambda: flexible(x), device), seconds(lambda: ours(x), device))
            for _ in range(repeats)
        ]
    found["forward"], found["our forward"] = (median(column) for column in zip(*pairs, strict=True))
    stepped(ours, x)
    found["our training"] = median(
        seconds(lambda: stepped(ours, x), device) for _ in range(repeats)
    )
    try:
        stepped(flexible, x)
    except NotImplementedError as problem:  # torch's own: on a CPU it has no backward pass
        found["training"] = f"refused: {problem}"
    else:
        found["training"] = median(
            seconds(lambda: stepped(flexible, x), device) for _ in range(repeats)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="two short lengths")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for length in QUICK_LENGTHS if arguments.quick else LENGTHS:
        row = measure(length, arguments.device, 3 if arguments.quick else 7)
        rows.append(row)
        shown = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in row.items()
        )
        print(f"{shown} (seconds; FlexAttention's, and ours)", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
