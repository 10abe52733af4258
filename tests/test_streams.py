import io
import subprocess
import sys
from pathlib import Path

import pytest
from serving.tiny_families import make_encoder_run

from regard.cli import main
from regard.streams import ClosedOutput, Unfailing, say


class Refusing(io.StringIO):
    """A stream that refuses each write with the error that is set."""

    def __init__(self, error: OSError | None) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str, /) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)


def test_a_stream_that_refused_once_is_written_no_more() -> None:
    for error in (BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")):
        stream = Refusing(error)
        unfailing = Unfailing(stream)
        assert unfailing.write("one") == 3
        stream.error = None
        unfailing.write("two")
        unfailing.flush()
        assert not stream.getvalue()


def test_a_stream_that_is_busy_is_written_again() -> None:
    stream = Refusing(BlockingIOError(11, "Resource temporarily unavailable"))
    unfailing = Unfailing(stream)
    unfailing.write("one")
    stream.error = None
    unfailing.write("two")
    assert stream.getvalue() == "two"


@pytest.mark.parametrize("stream", [None, Refusing(OSError(5, "Input/output error"))])
def test_what_nobody_can_read_is_not_said(
    stream: Refusing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    say("hello")


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-", ">&-", "<&-", "<&- 2>&-"])
def test_a_file_opened_later_gets_no_standard_number(closed: str, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from regard.streams import open_missing\n"
        "open_missing()\n"
        "with open('file', 'w') as file:\n"
        "    print('words', file=sys.stderr)\n"
        "    file.write(str(file.fileno()))\n"
    )
    line = f'"$0" -c "$1" {closed}'
    command = ["bash", "-c", line, sys.executable, code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ("" if "2>&-" in closed else "words\n")
    assert int((tmp_path / "file").read_text()) > 2


@pytest.mark.parametrize("command", ["recipe list", "info tiny", "recipe show tiny"])
def test_a_result_for_a_closed_output_is_refused(command: str) -> None:
    line = f'"$0" -m regard {command} >&-'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "error: standard output: it is closed\n"
        "  The result goes there: leave out >&-, or write > FILE.\n",
    )


def test_a_closed_output_is_refused_before_the_work_and_not_missed_by_who_needs_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = make_encoder_run(tmp_path / "bert")
    text = tmp_path / "text"
    text.write_text("red\n")
    monkeypatch.setattr(sys, "stdout", ClosedOutput())
    for command in (["classify", str(run), "--input", str(text)], ["fill", str(run), "[MASK]"]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith("error: standard output: it is closed\n")
    out = tmp_path / "labels"
    assert main(["classify", str(run), "--input", str(text), "--output", str(out)]) == 0
    assert out.read_text().count("\n") == 1
