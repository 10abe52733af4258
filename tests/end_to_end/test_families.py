"""A language model and an encoder as typed: from raw text to what they are for."""

from pathlib import Path

import pytest
from end_to_end.conftest import WORDS, call, pairs

SMALL = [
    "--set", "model.d_model=32", "--set", "model.num_heads=2", "--set", "model.d_ff=32",
    "--set", "model.num_layers=1", "--set", "training.max_steps=6",
    "--set", "training.checkpoint_every=3", "--set", "training.batch_tokens=256",
    "--set", "training.precision=float32", "--set", "training.device=cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{source}\n" for source, _ in pairs()), encoding="utf-8")
    return path


def test_a_language_model_is_trained_stopped_gone_on_with_and_asked(
    text: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = call(["train", "gpt-char", "--text", text, "--out", run, *SMALL])
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    assert b"bits per byte" in done.stderr
    assert f"regard generate {run}".encode() in done.stderr
    more = call(["train", run, "--resume", "--set", "training.max_steps=8"])
    assert more.returncode == 0, more.stderr.decode()
    assert b"done: 8 steps" in more.stderr
    info = call(["info", run])
    assert b"char" in info.stdout
    said = call(["generate", run, "--prompt", "the ", "--max-tokens", 5])
    assert said.returncode == 0, said.stderr.decode()
    assert said.stdout.startswith(b"the ")


def test_an_encoder_is_trained_fine_tuned_and_asked(text: Path, tmp_path: Path) -> None:
    run, topics, labels = tmp_path / "run", tmp_path / "topics", tmp_path / "labels.tsv"
    things = list(WORDS)[:6]
    lines = [
        f"{things.index(thing) % 2}\t{line}"
        for line, _ in pairs()
        for thing in things
        if line.startswith(thing)
    ]
    labels.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    size = ["--set", "vocabulary.size=300"]
    done = call(["train", "bert", "--text", text, "--out", run, *SMALL, *size])
    assert done.returncode == 0, done.stderr.decode()
    assert b"accuracy" in done.stderr
    rate = ["--set", "training.schedule.learning_rate=0.01"]
    tuned = call(["finetune", run, "--labels", labels, "--out", topics, "--epochs", 6, *rate])
    assert tuned.returncode == 0, tuned.stderr.decode()
    assert b"macro F1" in tuned.stderr
    assert "What it took for what" in (topics / "report.html").read_text(encoding="utf-8")
    told = call(["classify", topics], "".join(f"{line}\n" for line, _ in pairs()).encode())
    assert told.returncode == 0, told.stderr.decode()
    assert {line.split("\t")[0] for line in told.stdout.decode().splitlines()} <= {"0", "1"}
