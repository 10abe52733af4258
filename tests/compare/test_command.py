"""`regard compare` as it is typed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
from comparisons import example

from regard.cli import main
from regard.compare.layers import NAMES
from regard.compare.names import LayerName
from regard.compare.results import read_comparison
from regard.compare.summary import conclusion, summary


def test_the_names_that_the_command_takes_are_those_of_the_layers() -> None:
    assert get_args(LayerName) == NAMES


def test_the_command_writes_a_comparison_and_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    line = ["compare", "--minutes", "0.1", "--seed", "5", "--threads", "1", "--out", str(out)]
    assert main([*line, "--layers", "rnn", "plain"]) == 0
    made = read_comparison(out / "compare.json")
    assert [layer.name for layer in made.layers] == ["plain", "rnn"]
    assert (made.seed, made.minutes, made.machine.threads) == (5, 0.1, 1)
    printed = capsys.readouterr()
    assert printed.out == (
        f"{summary(made)}\n\n{conclusion(made)}\n\nwritten to {out}; open {out / 'compare.html'}\n"
    )
    assert "1 thread, " in printed.out
    assert (out / "compare.html").exists()
    assert (out / "compare.csv").exists()
    assert (out / "path.svg").exists()
    assert printed.err == ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--layers", "rnnn"], 'Invalid value "rnnn" for --layers. Choose from: "plain", "sdpa"'),
        (["--layers", "--minutes", "1"], "--layers requires at least 1 element"),
        (["--minutes", "inf"], 'Invalid value "inf" for --minutes. Must be above 0 and at most'),
        (["--minutes", "nan"], 'Invalid value "nan" for --minutes. Must be above 0 and at most'),
        (["--minutes", "0"], 'Invalid value "0.0" for --minutes. Must be above 0 and at most'),
        (["--steps", "0"], "--steps"),
        (["--seed", str(2**63)], f'Invalid value "{2**63}" for --seed'),
        (["--out", "file"], "file: expected a folder, got a file"),
        (["--out", "full"], "full: the folder holds something else than a comparison"),
    ],
)
def test_what_can_not_be_is_refused(
    options: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    assert main(["compare", *options]) == 2
    assert problem in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"file", "full"}


def test_ctrl_c_ends_it_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    words = ["compare", "--layers", "rnn", "--out", "deep/out", "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while process.poll() is None and not list(tmp_path.glob("deep/.out.*")):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, "", "interrupted\n")
    assert not list(tmp_path.rglob("*out*"))


def test_a_summary_has_measurement_and_theory_of_every_layer() -> None:
    lines = summary(example()).splitlines()
    assert lines[0] == "a processor, 2 threads, torch 2.11.0, d = 256, seed 7, 170 s"
    assert [line.split()[0] for line in lines[-3:]] == ["plain", "window", "linformer"]
    assert lines[-2].split() == [
        "window", "1.00", "(1)", "1.00", "(1)", "1.00", "(1)",
        "1", "8", "layers", "for", "32", "n", "=", "1,500",
    ]  # fmt: skip
