"""A run to translate with, and the command line called in this process."""

import io
import sys
from pathlib import Path

import pytest
from serving.command import Command, Done
from serving.tiny_runs import make_run

import regard
from regard.cli import main
from regard.serving.translator import Translator


@pytest.fixture(scope="session")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, only to be read."""
    return make_run(tmp_path_factory.mktemp("runs") / "ende")


@pytest.fixture(scope="session")
def translator(run_path: Path) -> Translator:
    return regard.load(run_path, device="cpu")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls `regard` with arguments and standard input."""

    def call(*arguments: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out, captured.err.decode("utf-8"))

    return call
