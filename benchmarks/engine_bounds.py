"""What bounds the engine: the share of the machine's bandwidth and arithmetic that a call reaches.

    python benchmarks/engine_bounds.py --quick --json bounds.json
    python benchmarks/engine_bounds.py [--models small,base] [--batches 1,8,64] [--beams 1,4]

One thread. First the machine, by the engine's own kernels: bytes a second of weights that lie in
the second cache, in the third and in memory, read for one row; and products a second with 252 rows
over weights that stay in the cache, for each dtype. No call can be faster than its weights are
read or its products are made at these rates. Then forced calls, 32 ids in and 32 out, with random
weights: the time that the bound allows, beside the time that the call took. What is left is
attention, norms, exponentials, quantising and the search, and weights that were not read ahead.
"""

import argparse
import json
import platform
import random
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from regard.engine import native
from regard.engine.engine import Dtype, Engine
from regard.machine import cpu_model
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.recipes.load import load_recipe

TOKENS = 32
STEPS = TOKENS + 1  # the end is a step too
VOCABULARIES = {"base": 37_000, "small": 8_000}
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16", "int8")
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
PLACES = {"second cache": 512 << 10, "third cache": 12 << 20, "memory": 192 << 20}
CACHED = 24 << 20  # weights of a step up to this are in the third cache at the next one

Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="small,base")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--dtypes", default="float32,int8")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few cells of the small model")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.models, options.batches, options.beams, options.repeats = "small", "1,8", "1", 3
    bandwidth = {place: read_rate(size, options.repeats) for place, size in PLACES.items()}
    for place, rate in bandwidth.items():
        print(f"{place:28} {rate / 1e9:8.1f} GB/s")
    peaks: dict[str, float] = {dtype: product_rate(dtype, options.repeats) for dtype in DTYPES}
    for dtype, rate in peaks.items():
        print(f"{dtype:28} {rate / 1e9:8.1f} billion products/s")
    cells = []
    for name, dtype in product(options.models.split(","), options.dtypes.split(",")):
        config = load_recipe(name).model
        assert isinstance(config, TransformerConfig)
        engine = random_engine(config, VOCABULARIES[name], dtype)
        for batch, beam in product(
            map(int, options.batches.split(",")), map(int, options.beams.split(","))
        ):
            cell = bounded(config, VOCABULARIES[name], batch, beam, dtype, bandwidth, peaks)
            call = forced(engine, VOCABULARIES[name], batch, beam)
            cell |= {"name": f"{name} {batch}x{beam} {dtype}", "taken": best(call, options.repeats)}
            print(
                f"{cell['name']:28} {1e3 * cell['taken']:8.1f} ms; "
                f"{100 * cell['bound'] / cell['taken']:3.0f}% of what {cell['by']} allow",
                flush=True,
            )
            cells.append(cell)
    if options.json:
        about = {
            "cpu": cpu_model(),
            "isa": native.isa(),
            "python": platform.python_version(),
            "bandwidth": bandwidth,
            "peaks": peaks,
            "cells": cells,
        }
        options.json.write_text(json.dumps(about, indent=1), encoding="utf-8")


def best(call: Callable[[], object], repeats: int) -> float:
    """Seconds of processor time of the fastest call, after one that warms up."""
    call()
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        taken.append(time.process_time() - started)
    return min(taken)


def repeated(rows: int, out: int, width: int, dtype: str, repeats: int) -> float:
    """Seconds of one layer."""
    rng = np.random.default_rng(0)
    layer = native.module().kernels.Linear(
        rng.standard_normal((out, width), dtype=np.float32), None, dtype
    )
    x = rng.standard_normal((rows, width), dtype=np.float32)
    y = np.zeros((rows, out), np.float32)
    times = max(1, int(3e8 / (rows * out * width)))
    return best(lambda: layer.repeat(x, y, times), repeats) / times


def read_rate(size: int, repeats: int) -> float:
    """Bytes a second of float32 weights of that size."""
    width = 512
    return size / repeated(1, size // width // 4, width, "float32", repeats)


def product_rate(dtype: str, repeats: int) -> float:
    rows, out, width = 252, 256, 1024
    return rows * out * width / repeated(rows, out, width, dtype, repeats)


def random_engine(config: TransformerConfig, vocabulary: int, dtype: Dtype) -> Engine:
    model = build_model(config, source_vocabulary=vocabulary, target_vocabulary=vocabulary, seed=1)
    return Engine(
        config,
        {name: tensor.float().numpy() for name, tensor in model.state_dict().items()},
        source_vocabulary=vocabulary,
        target_vocabulary=vocabulary,
        dtype=dtype,
        threads=1,
    )


def forced(engine: Engine, vocabulary: int, batch: int, beam: int) -> Callable[[], object]:
    draw = random.Random(batch)
    sources = [
        [*(draw.randrange(100, vocabulary) for _ in range(TOKENS - 1)), 2] for _ in range(batch)
    ]
    return lambda: engine.translate(
        sources,
        max_tokens=[TOKENS] * batch,
        prefixes=[[]] * batch,
        bos=1,
        eos=2,
        never=[0, 1, 3],
        beam=beam,
        n_best=1,
        alpha=0.6,
        min_tokens=TOKENS,
        no_repeat_ngram=0,
        batch_tokens=4096,
    )


def weights_of(config: TransformerConfig, vocabulary: int) -> tuple[int, int]:
    """Weights that a source token meets, and those that a row meets at a step."""
    width, d_ff = config.d_model, config.d_ff
    query, value = config.num_heads * config.key_dim, config.num_heads * config.value_dim
    attention = width * (2 * query + 2 * value)
    cross = width * (query + value)  # at both ends
    source = config.encoder_layers * (attention + 2 * width * d_ff) + config.decoder_layers * cross
    step = config.decoder_layers * (attention + cross + 2 * width * d_ff) + width * vocabulary
    return source, step


def bounded(
    config: TransformerConfig,
    vocabulary: int,
    batch: int,
    beam: int,
    dtype: str,
    bandwidth: dict[str, float],
    peaks: dict[str, float],
) -> dict[str, Any]:
    """The least seconds of a call, and what they are spent on."""
    source, step = weights_of(config, vocabulary)
    # The first step has one hypothesis a sentence.
    rows = batch * (1 + (STEPS - 1) * beam)
    products = batch * TOKENS * source + rows * step
    at_once = max(1, min(batch, 4096 // (TOKENS * beam)))
    passes = -(-batch // at_once) * STEPS
    read = passes * step * BYTES[dtype]
    place = "third cache" if step * BYTES[dtype] <= CACHED else "memory"
    seconds = {"products": products / peaks[dtype], f"reads from {place}": read / bandwidth[place]}
    by = max(seconds, key=lambda what: seconds[what])
    return {"bound": seconds[by], "by": by, "products": products, "bytes": read}


if __name__ == "__main__":
    main()
