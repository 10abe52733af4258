"""REGARD_* variables with a value that there is not: refused before any work, by all that works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import COMMANDS, main
from regard.engine import native
from regard.errors import RegardError
from regard.recipes.load import load_recipe
from regard.recipes.run import resume, train

SWITCHES = ["REGARD_KERNELS", "REGARD_MALLOC"]
NAMES = [made.__name__.strip("_") for made in COMMANDS]
REPORTING = ["info", "doctor"]


@pytest.mark.parametrize("variable", SWITCHES)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REPORTING])
def test_every_command_that_works_refuses_a_wrong_switch_first(
    name: str,
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, "maybe")
    assert main([name, "no/such/run"]) == 2
    assert capsys.readouterr().err == (
        f'error: {variable}: it is "maybe", expected on or off\n  Unset it, and it is on.\n'
    )


@pytest.mark.parametrize("line", ["train --help", "recipe list", "--version"])
def test_what_only_reports_takes_the_environment_as_it_is(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in SWITCHES:
        monkeypatch.setenv(variable, "maybe")
    assert main(line.split()) == 0
    assert capsys.readouterr().out


@pytest.mark.skipif(not native.available(), reason="there is no engine")
def test_instructions_that_are_not_there_are_refused_before_a_training_begins(
    tmp_path: Path,
) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\tc d\n" * 20)
    done = subprocess.run(
        [sys.executable, "-m", "regard", "train", "tiny", "--tsv", "pairs.tsv", "--out", "run",
         "--set", "training.max_steps=1"],
        cwd=tmp_path, env={**os.environ, "REGARD_ISA": "z80"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: REGARD_ISA: this processor has portable")
    assert not (tmp_path / "run").exists()


def test_a_training_from_python_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_MALLOC", "maybe")
    recipe = load_recipe("tiny", [f'data.tsv=["{tmp_path / "pairs.tsv"}"]'])
    for work in (lambda: train(recipe, tmp_path / "run"), lambda: resume(tmp_path / "run")):
        with pytest.raises(RegardError, match=r"^REGARD_MALLOC: "):
            work()
    assert not (tmp_path / "run").exists()
