"""Does a training that is killed again and again end with the weights of one that never was?

    python benchmarks/kills.py [--kills 200] [--seed 1] [--json FILE] [--quick]

A tiny translator is trained as `regard train` does it: accumulation, dropout, BPE-dropout, moving
averages, validations, a checkpoint every few steps. Every start of it gets `kill -9`: half of them
at any moment, half at a call that changes the disk amid a save, every second of those with half of
the data written. Then it is gone on with. Whenever a training has come to its end, the SHA-256 of
its weights must be that of the training that was left alone; and a new one begins, until all kills
are done. There is no peer in this one: `peer` and `ratio` are null.

Every start is a forked process, which saves the import of torch; all of the rest is as typed.
"""

import argparse
import hashlib
import importlib
import json
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from regard.cli import main as regard_main
from regard.training import keeper
from regard.training.loop import Trainer
from regard.weights import files
from regard.weights.checkpoints import checkpoint_steps, latest_checkpoint
from regard.weights.run_folder import MODEL, RunFolder

INTERVAL = 4
STEPS = 40
DISK_CALLS = ("_write", "_sync", "_rename", "_remove", "_make_folder")
SETTINGS = (
    f"training.max_steps={STEPS}", f"training.checkpoint_every={INTERVAL}",
    "training.validate_every=8", "training.batch_tokens=80", "training.accumulate=2",
    "training.log_every=3", "training.ema_decay=0.9", "training.keep_last=2",
    "training.precision=float32", "training.device=cpu", "training.sample_lines=1",
    "vocabulary.size=290", "vocabulary.bpe_dropout=0.1",
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.dropout=0.1",
    "model.encoder_layers=1", "model.decoder_layers=1",
    "decoding.beam=1", "decoding.max_extra_tokens=1",
)  # fmt: skip
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# What a training imports on its way, so that no start has to.
IMPORTED = ("regard.recipes.run", "torch._dynamo", "sacrebleu", "torch.utils.tensorboard")


class Account:
    """What a training has done, told to the process that kills it: three numbers in shared memory.

    The last step done, and the steps of the last save that began and of the last that ended.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 24)

    def clear(self) -> None:
        """Forget all three."""
        self._memory[:] = bytes(24)

    def tell(self, place: int, step: int) -> None:
        """Set one of the three."""
        struct.pack_into("<q", self._memory, 8 * place, step)

    @property
    def numbers(self) -> tuple[int, int, int]:
        """All three."""
        step, begun, ended = struct.unpack("<3q", self._memory[:])
        return step, begun, ended


Disk = Callable[[int, str, tuple[object, ...]], None]


def watch(account: Account, disk: Disk | None) -> None:
    """Tell steps and saves, and call `disk` before each call amid a save that changes the disk."""
    step, save = Trainer._step, keeper.save_checkpoint

    def stepping(trainer: Trainer, *arguments: object) -> None:
        step(trainer, *arguments)  # type: ignore[arg-type]
        account.tell(0, trainer.position.step)

    def saving(folder: Path, number: int, *arguments: object) -> object:
        account.tell(1, number)
        made = save(folder, number, *arguments)  # type: ignore[arg-type]
        account.tell(2, number)
        return made

    Trainer._step, keeper.save_checkpoint = stepping, saving  # type: ignore[method-assign,assignment]
    if disk is None:
        return
    calls = 0

    def intercepted(name: str) -> None:
        original = getattr(files, name)

        def call(*arguments: object) -> object:
            nonlocal calls
            _, begun, ended = account.numbers
            if begun > ended:
                disk(calls, name, arguments)
                calls += 1
            return original(*arguments)

        setattr(files, name, call)

    for name in DISK_CALLS:
        intercepted(name)


@dataclass
class Work:
    """A text, the command that trains on it, and what starts of it have done."""

    folder: Path
    account: Account = field(default_factory=Account)

    def __post_init__(self) -> None:
        for name in IMPORTED:
            with suppress(ImportError):
                importlib.import_module(name)
        generator = random.Random(1)
        lines = [generator.choices(WORDS, k=generator.randint(1, 6)) for _ in range(60)]
        text = "".join(f"{' '.join(line)}\t{' '.join(line[::-1])}\n" for line in lines)
        (self.folder / "pairs.tsv").write_text(text, encoding="utf-8")

    def command(self, run: str) -> list[str]:
        """What to type to begin this run, or to go on with it."""
        if checkpoint_steps(self.folder / run):
            return ["train", str(self.folder / run), "--resume"]
        keys = [word for setting in SETTINGS for word in ("--set", setting)]
        text = ["--tsv", str(self.folder / "pairs.tsv")]
        return ["train", "tiny", *text, *keys, "--out", str(self.folder / run)]

    def start(self, run: str, disk: Disk | None = None) -> int:
        """Start it in a process of its own; return its pid. What it says is in `said`."""
        arguments = self.command(run)
        self.account.clear()
        child = os.fork()
        if child:
            return child
        code = 1
        with suppress(BaseException):
            said = os.open(self.folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 2)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            watch(self.account, disk)
            code = regard_main(arguments)
            sys.stderr.flush()
        os._exit(code)

    def end(self, child: int) -> int:
        """Wait for it; return its exit code, that of a signal being negative."""
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @property
    def said(self) -> str:
        """The standard error of the last start."""
        return (self.folder / "said").read_text(encoding="utf-8")

    def weights_sum(self, run: str) -> str:
        """The SHA-256 of the weights to use and of those of the last checkpoint."""
        path = self.folder / run
        found = RunFolder.open(path)
        last = latest_checkpoint(path, print)
        if last is None or last.step != STEPS:
            raise SystemExit(f"{path}: the training is not at its end")
        digest = hashlib.sha256(found.sha256(MODEL).encode())
        for name in ("model", "optimizer", "ema"):
            digest.update((last.path / f"{name}.safetensors").read_bytes())
        return digest.hexdigest()


@dataclass
class Outcome:
    """What the kills came to."""

    kills: int = 0
    amid_saves: int = 0
    trainings: int = 0
    redone: list[int] = field(default_factory=list)


def dying(number: int, halfway: bool) -> Disk:
    """Kill this process at that call, with half of the data written where it is a write."""

    def die(at: int, name: str, arguments: tuple[object, ...]) -> None:
        if at == number:
            if halfway and name == "_write":
                descriptor, data = arguments
                os.write(descriptor, data[: len(data) // 2])  # type: ignore[arg-type,index]
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def require_little_lost(work: Work, run: str) -> int:
    """Return how many steps must be done again; all that had been saved must be there.

    A training goes on while a save is written. So at most the steps of one interval are lost, and
    those that were done beside a save that was under way.
    """
    step, begun, ended = work.account.numbers
    complaints: list[str] = []
    folder = work.folder / run
    found = latest_checkpoint(folder, complaints.append) if checkpoint_steps(folder) else None
    newest = found.step if found else 0
    redone = max(0, step - newest)
    beside = max(0, step - begun) if begun > ended else 0
    if complaints or newest < ended or redone > INTERVAL + beside:
        raise SystemExit(
            f"{run}: step {step} was done, the save of {ended} had ended, and {newest} is there; "
            f"{complaints}"
        )
    return redone


def kill_again_and_again(folder: Path, kills: int, seed: int) -> Outcome:
    """Do so many kills; raise SystemExit where a promise is broken."""
    work, outcome, generator = Work(folder), Outcome(), random.Random(seed)
    began = time.monotonic()
    if code := work.end(work.start("whole")):
        raise SystemExit(f"the training ended with {code}: {work.said}")
    whole_seconds = time.monotonic() - began
    wanted = work.weights_sum("whole")
    run = "run-0"
    while outcome.kills < kills:
        amid = outcome.kills % 2 == 1
        number = generator.randrange(1, 150) if amid else -1
        child = work.start(run, dying(number, generator.random() < 0.5) if amid else None)
        if not amid:
            time.sleep(generator.uniform(0, 0.8 * whole_seconds))
            os.kill(child, signal.SIGKILL)
        code = work.end(child)
        if code == 0:  # it came to its end before its turn
            outcome.trainings += 1
            if work.weights_sum(run) != wanted:
                raise SystemExit(f"{run}: other weights than of the training left alone")
            run = f"run-{outcome.trainings}"
            continue
        if code != -signal.SIGKILL:
            raise SystemExit(f"{run} ended with {code}: {work.said}")
        outcome.kills += 1
        outcome.amid_saves += amid
        outcome.redone.append(require_little_lost(work, run))
    if code := work.end(work.start(run)):
        raise SystemExit(f"{run} ended with {code}: {work.said}")
    if work.weights_sum(run) != wanted:
        raise SystemExit(f"{run}: other weights than of the training left alone")
    outcome.trainings += 1
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="twenty kills")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        kills = 20 if options.quick else options.kills
        outcome = kill_again_and_again(Path(folder), kills, options.seed)
    found = {
        "kills": (outcome.kills, "kills"),
        "of them amid a save": (outcome.amid_saves, "kills"),
        "trainings that ended with the same SHA-256": (outcome.trainings, "trainings"),
        "most steps done again": (max(outcome.redone), "steps"),
        "steps between checkpoints": (INTERVAL, "steps"),
    }
    for name, (value, _) in found.items():
        print(f"{name:45}{value:>6}")
    if options.json:
        rows = [
            {"name": name, "ours": value, "peer": None, "ratio": None, "unit": unit}
            for name, (value, unit) in found.items()
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
