"""Files of results: whole or not there, and pipes and devices written as they come."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.serving.outputs import open_output, refuse_same_file

GOLDEN = Path(__file__).parents[1] / "golden" / "run"


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with open_output(path) as writer:
        writer.write("ein\nZweizeiler")
        writer.write("")
        writer.flush()
        assert not path.exists()
    assert path.read_bytes() == b"ein Zweizeiler\n\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), open_output(path) as writer:
        writer.write("after")
        raise KeyboardInterrupt
    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_goes_and_what_another_writes_stays(tmp_path: Path) -> None:
    path, killed = tmp_path / "out.txt", tmp_path / ".out.txt.123-0123abcd.partial"
    kept = [tmp_path / name for name in (".out.txt.mine.partial", ".out.tx.1-0123abcd.partial")]
    for each in (killed, *kept):
        each.touch()
    with open_output(path) as first, open_output(path) as second:  # as another process would
        assert not killed.exists()
        assert sum(each.name.startswith(".out.txt.") for each in tmp_path.iterdir()) == 3
        first.write("first")
        second.write("second")
    assert path.read_text(encoding="utf-8") == "first\n"  # which ended last
    assert sorted(tmp_path.iterdir()) == sorted([path, *kept])


def test_a_link_is_written_through(tmp_path: Path) -> None:
    path, link = tmp_path / "out.txt", tmp_path / "link.txt"
    link.symlink_to(path)
    with open_output(link) as writer:
        writer.write("x")
    assert link.is_symlink()
    assert path.read_bytes() == b"x\n"


def test_a_pipe_is_written_as_lines_come(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    met = threading.Event()

    def read() -> None:
        with path.open("rb") as stream:
            if stream.readline() == b"x\n":
                met.set()

    reader = threading.Thread(target=read)
    reader.start()
    with open_output(path) as writer:
        writer.write("x")
        writer.flush()
        assert met.wait(30)
    reader.join()
    assert path.is_fifo()


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    for path, problem in {
        tmp_path: "wanted a file, found a folder",
        tmp_path / "no" / "out.txt": "cannot be written: No such file or directory",
    }.items():
        with pytest.raises(RegardError) as caught, open_output(path):
            pass
        assert str(caught.value) == f"{path}: {problem}"
    if Path("/dev/full").exists():
        with pytest.raises(RegardError) as caught, open_output(Path("/dev/full")) as writer:
            writer.write("x")
            writer.flush()
        assert str(caught.value) == "/dev/full: cannot be written: No space left on device"


@pytest.mark.parametrize("name", ["recipe.toml", "model.safetensors", "manifest.json"])
def test_a_file_of_a_run_folder_is_not_written_over(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(GOLDEN, run)
    before = (run / name).read_bytes()
    (tmp_path / "link").symlink_to(run / name)
    for path in (run / name, tmp_path / "link"):
        with (
            pytest.raises(RegardError, match="the file is part of a run folder"),
            open_output(path) as writer,
        ):
            writer.write("a line")
        assert (run / name).read_bytes() == before
    with open_output(run / "translations.txt") as writer:
        writer.write("a line")
    assert (run / "translations.txt").read_text() == "a line\n"


def test_a_result_in_the_place_of_standard_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("a line\n")
    (tmp_path / "same").hardlink_to(tmp_path / "text")
    with (tmp_path / "text").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        for name in ("text", "same"):
            with pytest.raises(RegardError, match="the file is that of standard input too"):
                refuse_same_file({"--output": tmp_path / name}, {"--input": None})
        refuse_same_file({"--output": tmp_path / "other"}, {"--input": None})
        refuse_same_file({"--output": tmp_path / "text"}, {"--input": tmp_path / "other"})
