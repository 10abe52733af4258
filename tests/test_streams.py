import io
import subprocess
import sys
from pathlib import Path

import pytest

from regard.streams import Unfailing, say


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
        "    print('result')\n"
        "    print('words', file=sys.stderr)\n"
        "    file.write(str(file.fileno()))\n"
    )
    line = f'"$0" -c "$1" {closed}'
    command = ["bash", "-c", line, sys.executable, code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == ("" if ">&- " in f"{closed} ".replace("2>&-", "") else "result\n")
    assert done.stderr == ("" if "2>&-" in closed else "words\n")
    assert int((tmp_path / "file").read_text()) > 2
