"""`torchrun -m regard train` as typed: one prints, one lost ends all, and it is gone on with.

So does one that Ctrl-C stopped.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from end_to_end.conftest import environment, pairs

import regard
from regard.recipes.run import resume
from regard.training.progress import SilentReporter
from regard.weights.checkpoints import checkpoint_steps

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
KEYS = (
    "training.batch_tokens=200", "training.log_every=1", "training.precision=float32",
    "training.device=cpu", "training.checkpoint_every=5", "training.validate_every=100000",
    "vocabulary.size=300", "model.d_model=16", "model.num_heads=2", "model.d_ff=32",
    "model.encoder_layers=1", "model.decoder_layers=1", "decoding.beam=1",
    "decoding.max_extra_tokens=1",
)  # fmt: skip


@dataclass(frozen=True)
class Killed:
    """How a training of two processes ended, of which one was killed."""

    folder: Path
    rank: int
    code: int
    said: str
    out: str


def command(*words: str) -> list[str]:
    return [*TORCHRUN, "-m", "regard", "train", *words]


def worker(parent: int, rank: int) -> int:
    """The pid of the process of that rank which a torchrun has started."""
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and f"RANK={rank}".encode() in (
                (entry / "environ").read_bytes().split(b"\0")
            ):
                return int(entry.name)
        except (OSError, ValueError, IndexError):
            continue
    raise AssertionError(f"no process of rank {rank}")


def begin(folder: Path, *keys: str) -> list[str]:
    """What to type after `train` for a run of some pairs, which are written there."""
    text = "".join(f"{source}\t{target}\n" for source, target in pairs())
    (folder / "pairs.tsv").write_text(text, encoding="utf-8")
    sets = [word for key in (*KEYS, *keys) for word in ("--set", key)]
    return ["tiny", "--tsv", "pairs.tsv", "--out", "run", *sets]


@pytest.fixture(scope="module", params=[("replicate", 1), ("shard", 0)], ids=lambda each: each[0])
def killed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Killed:
    parallel, rank = request.param
    folder = tmp_path_factory.mktemp("torchrun")
    process = subprocess.Popen(
        command(*begin(folder, f"training.parallel={parallel}", "training.max_steps=100000")),
        cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=(folder / "said").open("w"),
    )  # fmt: skip
    try:
        patience = time.monotonic() + 240
        while not checkpoint_steps(folder / "run"):
            assert process.poll() is None, (folder / "said").read_text()
            assert time.monotonic() < patience
            time.sleep(0.1)
        os.kill(worker(process.pid, rank), signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    return Killed(folder, rank, process.returncode, (folder / "said").read_text(), out)


def test_one_process_prints_and_says_how_many_they_are(killed: Killed) -> None:
    assert killed.out == ""
    assert killed.said.count(", 2 processes, in float32") == 1
    steps = [line for line in killed.said.splitlines() if line.startswith("step ")]
    assert len(steps) == len(set(steps)) > 4


def test_a_killed_process_ends_the_other_within_a_minute_with_a_message(killed: Killed) -> None:
    assert killed.code != 0
    whose = "[rank 1] " if killed.rank == 0 else ""
    lost = "error: training: another process has ended or does not answer, at step"
    assert f"\n{whose}{lost}" in killed.said
    assert killed.said.count(lost) == 1
    assert "-m regard train run --resume" in killed.said


def test_the_run_goes_on_with_two_processes_and_then_with_one(killed: Killed) -> None:
    folder = killed.folder
    step = checkpoint_steps(folder / "run")[-1] + 3
    done = subprocess.run(
        command("run", "--resume", "--set", f"training.max_steps={step}"),
        cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\ndone: ") == 1
    assert "Warning" not in done.stderr  # of a library, in any process
    assert checkpoint_steps(folder / "run")[-1] == step
    changed = [f"training.max_steps={step + 2}", f'data.tsv=["{folder / "pairs.tsv"}"]']
    assert resume(folder / "run", changed, reporter=SilentReporter()).step == step + 2
    assert len(regard.load(folder / "run").translate([pairs()[0][0]])) == 1


@pytest.mark.parametrize("times", ["once", "to each as well"])
def test_ctrl_c_in_a_terminal_saves_and_ends_all_as_it_does_one_process(
    tmp_path: Path, times: str
) -> None:
    process = subprocess.Popen(
        command(*begin(tmp_path, "training.max_steps=100000")),
        cwd=tmp_path, env=environment(), stderr=(tmp_path / "said").open("w"),
        start_new_session=True,
    )  # fmt: skip
    try:
        patience = time.monotonic() + 240
        while "\nstep 3" not in (tmp_path / "said").read_text():
            assert process.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < patience
            time.sleep(0.1)
        workers = [worker(process.pid, rank) for rank in range(2)]
        os.killpg(process.pid, signal.SIGINT)
        if times != "once":
            # As a launcher does that signals all; they get it from torchrun, too.
            for pid in workers:
                os.kill(pid, signal.SIGINT)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
    said = (tmp_path / "said").read_text()
    step = checkpoint_steps(tmp_path / "run")[-1]
    assert f"stopped as asked at step {step} of 100000; everything is saved" in said
    assert said.count("regard: stopping after this step") == said.count("stopped as asked") == 1
    assert "[rank 1]" not in said
    keys = [f"training.max_steps={step + 1}", f'data.tsv=["{tmp_path / "pairs.tsv"}"]']
    assert resume(tmp_path / "run", keys, reporter=SilentReporter()).step == step + 1


# A fault of one process alone: `regard` as typed, but for a step that fails in that of rank 1.
FAULTY = """
import os, sys
from regard.cli import main
from regard.training.step import Stepper

take = Stepper.take

def taking(self, batch, step, rate, tally):
    if step == 3 and os.environ["RANK"] == "1":
        raise ValueError("the memory of this one is broken")
    take(self, batch, step, rate, tally)

Stepper.take = taking
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("parallel", ["replicate", "shard"])
def test_what_one_process_meets_is_shown_with_its_rank_and_ends_all(
    tmp_path: Path, parallel: str
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    keys = (f"training.parallel={parallel}", "training.max_steps=100000")
    done = subprocess.run(
        [*TORCHRUN, "faulty.py", "train", *begin(tmp_path, *keys)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode != 0
    assert "\n[rank 1] ValueError: the memory of this one is broken\n" in done.stderr
    assert "\n[rank 1] error: this is a bug in regard; please report the lines above" in done.stderr
    assert "[rank 0]" not in done.stderr
    assert done.stderr.count(", 2 processes, in float32") == 1


def test_a_mistake_that_all_make_is_said_once(tmp_path: Path) -> None:
    done = subprocess.run(
        command("tiny", "--set", "training.max_stepz=3"),
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.count("training.max_stepz") == 1
