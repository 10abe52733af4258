"""A run to translate with, and the command line called in this process."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from serving.tiny_runs import make_run

import regard
from regard.cli import main
from regard.serving.translator import Translator


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output, which ends with a newline if it holds anything."""
        assert self.out.endswith(b"\n") or not self.out
        return self.out.decode("utf-8").split("\n")[:-1]


@pytest.fixture(scope="session")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, only to be read."""
    return make_run(tmp_path_factory.mktemp("runs") / "ende")


@pytest.fixture(scope="session")
def translator(run_path: Path) -> Translator:
    return regard.load(run_path, device="cpu")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Done]:
    """Calls `regard` with arguments and standard input."""

    def call(*arguments: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out, captured.err.decode("utf-8"))

    return call
