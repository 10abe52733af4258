from collections.abc import Callable

import pytest
import torch

from regard.errors import DataError, Interrupted
from regard.exits import run_guarded


def raising(error: Exception) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.usefixtures("second_of_two")
def test_an_error_of_a_process_among_several_has_its_rank_on_every_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_guarded(raising(DataError("it is missing", where="a.en", hint="Bring it."))) == 2
    assert capsys.readouterr().err == (
        "[rank 1] error: a.en: it is missing\n[rank 1]   Bring it.\n"
    )
    assert run_guarded(raising(ZeroDivisionError("a bug"))) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "[rank 1] Traceback (most recent call last):"
    assert all(line.startswith("[rank 1] ") for line in said)


@pytest.mark.usefixtures("second_of_two")
def test_what_all_processes_meet_alike_is_left_to_the_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_guarded(raising(Interrupted("stopped as asked"))) == 130
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    assert run_guarded(raising(Interrupted("stopped as asked"))) == 130
    assert capsys.readouterr().err == "stopped as asked\n"


def test_memory_that_ran_out_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(2**50, dtype=torch.int64)

    for error in (MemoryError(), of_torch.value, torch.cuda.OutOfMemoryError("CUDA")):
        assert run_guarded(raising(error)) == 2
        assert capsys.readouterr().err.startswith(
            "error: the machine has not the memory that this needs\n  Train with a smaller "
        )
    assert run_guarded(raising(RuntimeError("another"))) == 1
