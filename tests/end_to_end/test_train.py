"""`regard train` as typed: a recipe file, a stop and going on, a second writer, fine-tuning."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from end_to_end.conftest import environment, pairs, regard_command

from regard.recipes.load import load_recipe
from regard.weights.checkpoints import checkpoint_steps
from regard.weights.run_folder import RunFolder

STEPS = 60
SHOW = (
    f"regard recipe show tiny --set training.max_steps={STEPS} --set training.batch_tokens=200 "
    "--set training.log_every=1 --set training.precision=float32 --set training.device=cpu "
    "--set vocabulary.size=300 --set model.encoder_layers=1 --set model.decoder_layers=1 "
    "--set decoding.beam=1 --set decoding.max_extra_tokens=1 > my.toml"
)
TRAIN = (
    "train my.toml --source train.en --target train.de "
    "--valid-source dev.en --valid-target dev.de --out"
)


@dataclass(frozen=True)
class Stopped:
    """How a training ended that got Ctrl-C, and a second one that was started beside it."""

    code: int
    steps: list[int]
    lines: list[str]
    pid: int
    second: "subprocess.CompletedProcess[str]"


def typed(line: str, *, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a line in which `regard` is the command."""
    return subprocess.run(
        ["bash", "-c", f'regard() {{ $REGARD "$@"; }}; set -eo pipefail\n{line}'],
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@contextlib.contextmanager
def training(line: str, *, cwd: Path) -> "Iterator[subprocess.Popen[str]]":
    """A training that has done a step; it is killed if the test fails."""
    process = subprocess.Popen(
        regard_command(*line.split()),
        cwd=cwd,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = threading.Timer(120, process.kill)
    patience.start()
    try:
        assert process.stderr is not None
        while not (said := process.stderr.readline()).startswith("step "):
            assert said, "the training ended before its first step"
        yield process
    finally:
        patience.cancel()
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, a recipe file, and the run of a training that was not stopped."""
    folder = tmp_path_factory.mktemp("typed")
    lines = pairs()
    for name, part in (("train", lines[:100]), ("dev", lines[100:])):
        for side, ending in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in part)
            (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
    done = typed(f"{SHOW}\nregard {TRAIN} runs/whole", cwd=folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return folder


@pytest.fixture(scope="module")
def stopped(folder: Path) -> Stopped:
    with training(f"{TRAIN} runs/cut", cwd=folder) as process:
        # It stands still, so that it surely lives while the second one starts.
        process.send_signal(signal.SIGSTOP)
        second = typed("regard train runs/cut --resume", cwd=folder)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    steps = checkpoint_steps(folder / "runs/cut")
    return Stopped(process.returncode, steps, said.splitlines(), process.pid, second)


def test_a_second_writer_is_refused_and_named(stopped: Stopped) -> None:
    assert (stopped.second.returncode, stopped.second.stdout) == (2, "")
    assert stopped.second.stderr.startswith(
        f"error: runs/cut: another process (pid {stopped.pid}) is writing to this run folder\n"
    )


def test_ctrl_c_saves_and_says_how_to_go_on(stopped: Stopped) -> None:
    assert stopped.code == 130
    (step,) = stopped.steps
    assert 1 <= step < STEPS
    assert stopped.lines[-2:] == [
        f"stopped as asked at step {step} of {STEPS}; everything is saved",
        "  Go on with it: regard train runs/cut --resume",
    ]
    assert "Traceback" not in "".join(stopped.lines)


def test_the_printed_command_goes_on_to_the_weights_of_the_whole_run(
    folder: Path, stopped: Stopped
) -> None:
    command = stopped.lines[-1].partition("Go on with it: ")[2]
    done = typed(command, cwd=folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    runs = [folder / "runs" / name for name in ("whole", "cut")]
    whole, cut = (RunFolder.open(run).load_weights() for run in runs)
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    for name in ("model", "optimizer", "random"):
        one, other = (run / f"checkpoints/step-{STEPS:08}/{name}.safetensors" for run in runs)
        assert one.read_bytes() == other.read_bytes()


def test_fine_tuning_starts_where_the_other_run_ended(folder: Path) -> None:
    line = f"regard {TRAIN} runs/tuned --init runs/whole --set training.max_steps=1"
    done = typed(line, cwd=folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert load_recipe(folder / "runs/tuned").init == "runs/whole"
    losses = {
        run: [
            record["loss"]
            for record in map(
                json.loads, (folder / f"runs/{run}/metrics.jsonl").read_text().splitlines()
            )
            if record["event"] == "train"
        ]
        for run in ("whole", "tuned")
    }
    first, last = losses["whole"][0], losses["whole"][-1]
    assert last < 0.7 * first
    assert abs(losses["tuned"][0] - last) < 0.1 * first


def test_a_dry_run_leaves_nothing(folder: Path) -> None:
    aside = folder / "aside"
    aside.mkdir()
    before = sorted(folder.rglob("*"))
    line = f"regard {TRAIN} runs/tried --dry-run"
    done = typed(line, cwd=folder, TMPDIR=os.fspath(aside))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"{STEPS} steps, and 1 validation of " in done.stderr
    # torch makes a folder of its own where temporary files go.
    left = [path for path in folder.rglob("*") if "torchinductor" not in path.name]
    assert sorted(left) == before
