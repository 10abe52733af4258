"""How much memory do a million pairs take to prepare and to batch, against a hundred thousand?

Each size runs in a process of its own, which makes its text, prepares it, goes through a whole
epoch of batches and through the first batches of another from its middle. Peak resident size is
the most that the process ever held, pages of mapped files included; private is the part of it
that no file backs, measured every few milliseconds. A ratio near 1 means that memory does not
grow with the number of pairs.

    python benchmarks/memory.py [--quick] [--json FILE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

SIZES = (100_000, 1_000_000)
QUICK_SIZES = (20_000, 200_000)
WORDS_PER_LINE = 12
DISTINCT_WORDS = 50_000
BATCH_TOKENS = 4000


def write_text(folder: Path, pairs: int) -> None:
    """Write generated pairs: words of random letters, their frequency falling as in real text."""
    import numpy as np  # noqa: PLC0415 - the parent process imports nothing heavy

    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(random.choice(letters, int(random.integers(2, 11))))
             for _ in range(DISTINCT_WORDS)]  # fmt: skip
    for name in ("source", "target"):
        with (folder / name).open("w", encoding="utf-8", newline="\n") as stream:
            for start in range(0, pairs, 10_000):
                lengths = 1 + random.poisson(WORDS_PER_LINE - 1, min(10_000, pairs - start))
                picked = iter((random.zipf(1.2, int(lengths.sum())) % DISTINCT_WORDS).tolist())
                for length in lengths.tolist():
                    stream.write(" ".join([words[word] for word in islice(picked, length)]) + "\n")


class Watch:
    """Notes the largest private memory of this process while a stage runs."""

    def __init__(self) -> None:
        self._most = 0
        self._done = threading.Event()

    def __enter__(self) -> "Watch":
        # Writing 5 sets the peak back to what is held now, so that each stage has its own.
        Path("/proc/self/clear_refs").write_text("5")
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def _run(self) -> None:
        while not self._done.wait(0.005):
            self._most = max(self._most, memory("RssAnon"))

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.private = max(self._most, memory("RssAnon"))
        self.peak = memory("VmHWM")


def memory(name: str) -> int:
    """Return a size from this process's status, in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise SystemExit(f"this benchmark needs Linux: /proc/self/status has no {name}")


def measure(pairs: int, folder: Path) -> dict[str, float]:
    """Prepare and batch generated pairs in this process; return sizes in MB and seconds."""
    from regard.text.batches import Batches  # noqa: PLC0415
    from regard.text.config import DataConfig, VocabularyConfig  # noqa: PLC0415
    from regard.text.corpus import prepare_corpus  # noqa: PLC0415

    write_text(folder, pairs)
    imported = memory("VmRSS")
    config = DataConfig(source=(str(folder / "source"),), target=(str(folder / "target"),))
    began = time.perf_counter()
    with Watch() as preparing:
        data = prepare_corpus(config, VocabularyConfig(size=8000), folder / "data", log=print)
    prepared = time.perf_counter()
    with Watch() as batching:
        batches = Batches(data.train, data.tokenizers, batch_tokens=BATCH_TOKENS, seed=1)
        tokens = sum(batch.target_tokens for batch in batches.epoch(0))
        epoch_read = time.perf_counter()
        next(batches.epoch(1, start=batches.count(1) // 2))
    return {
        "imported": imported / 1024,
        "prepare peak": preparing.peak / 1024,
        "prepare private": preparing.private / 1024,
        "batches peak": batching.peak / 1024,
        "batches private": batching.private / 1024,
        "prepare": prepared - began,
        "tokens": tokens / (epoch_read - prepared),
        "resume": time.perf_counter() - epoch_read,
    }


def run_child(pairs: int) -> dict[str, float]:
    """Measure one size in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", str(pairs), "--folder", folder]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return measured


ROWS = (
    ("peak resident size, preparing", "prepare peak", "MB"),
    ("private memory, preparing", "prepare private", "MB"),
    ("peak resident size, an epoch of batches", "batches peak", "MB"),
    ("private memory, an epoch of batches", "batches private", "MB"),
    ("resident size before, torch imported", "imported", "MB"),
    ("time to prepare", "prepare", "s"),
    ("target tokens batched", "tokens", "tokens/s"),
    ("time to the first batch in mid-epoch", "resume", "s"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the pairs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.folder)))
        return
    few, many = QUICK_SIZES if arguments.quick else SIZES
    peer, ours = run_child(few), run_child(many)
    rows = [
        {
            "name": name,
            "ours": round(ours[key], 2),
            "peer": round(peer[key], 2),
            "ratio": round(ours[key] / peer[key], 3),
            "unit": unit,
        }
        for name, key, unit in ROWS
    ]
    print(f"{'':42}{f'{many:,} pairs':>18}{f'{few:,} pairs':>16}{'ratio':>8}")
    for row in rows:
        print(
            f"{row['name']:42}{row['ours']:>18,}{row['peer']:>16,}{row['ratio']:>8} {row['unit']}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
