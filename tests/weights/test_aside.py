"""What is built aside is gone afterwards, whoever ended the process that built it, and how."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.weights.aside import folder_aside

pytestmark = pytest.mark.usefixtures("hang_up")

# Builds aside of a file until it is ended.
BUILD = """
import sys, time
from pathlib import Path
from regard.exits import run_guarded
from regard.weights.aside import folder_aside

def build():
    with folder_aside(Path(sys.argv[1])) as aside:
        (aside / "deep").mkdir()
        (aside / "deep" / "file").write_text("some")
        print(aside, flush=True)
        time.sleep(600)

sys.exit(run_guarded(build))
"""


def build(path: Path) -> subprocess.Popen[str]:
    """A process at work aside of a path."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    aside = Path(process.stdout.readline().rstrip("\n"))
    assert aside.parent == path.parent
    assert (aside / "deep").is_dir()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_can_be_caught_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = build(tmp_path / "it")
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_the_next_one_removes_what_a_killed_one_left_and_not_what_one_is_at_work_in(
    tmp_path: Path,
) -> None:
    killed, other = build(tmp_path / "it"), build(tmp_path / "it")
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    with folder_aside(tmp_path / "it", private=True) as aside:
        left = list(tmp_path.iterdir())
        assert len(left) == 2
        assert aside in left
        assert aside.stat().st_mode & 0o777 == 0o700
    other.terminate()
    other.communicate()
    assert list(tmp_path.iterdir()) == []


def test_what_only_looks_alike_is_left_alone(tmp_path: Path) -> None:
    names = [
        ".it.mine.partial", ".it.1-0123abcd.partial.old", ".it.1-0123abcg.partial",
        ".others.1-0123abcd.partial", "it.1-0123abcd.partial", ".it.x.1-0123abcd.partial",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".it.2-0123abcd.partial").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / ".it.3-0123abcd.partial")
    before = set(tmp_path.iterdir())
    with folder_aside(tmp_path / "it"):
        pass
    assert set(tmp_path.iterdir()) == before


def test_what_was_renamed_stays(tmp_path: Path) -> None:
    with folder_aside(tmp_path / "new" / "it") as aside:
        (aside / "file").touch()
        aside.rename(tmp_path / "new" / "it")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["it"]
    assert (tmp_path / "new" / "it" / "file").exists()
    assert (tmp_path / "new" / "it").stat().st_mode == (tmp_path / "new").stat().st_mode


def test_a_failure_leaves_nothing_and_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), folder_aside(tmp_path / "it") as aside:
        (aside / "file").touch()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
