"""Lines in windows: full where they come fast, alone where they are typed, and never lost."""

import gzip
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.serving.windows import Input, open_input
from regard.text.lines import read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[io.FileIO, Input]]:
    """Both ends of a pipe; what is written to the first is there at once."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, os.fdopen(writing, "wb", buffering=0) as into:
        yield into, Input(out, "standard input")


def test_a_typed_line_is_there_before_the_next_is_typed(pipe: tuple[io.FileIO, Input]) -> None:
    into, source = pipe
    windows = source.windows()
    for line in ("Hello", "", "wörld"):
        into.write(f"{line}\n".encode())
        assert next(windows) == [line]
    into.write(b"half a li")
    into.close()
    assert list(windows) == [["half a li"]]


def test_half_a_line_is_waited_for(pipe: tuple[io.FileIO, Input]) -> None:
    into, source = pipe
    into.write(b"one\ntw")
    windows = source.windows()
    assert next(windows) == ["one"]
    later = threading.Timer(0.1, into.write, [b"o\n"])
    later.start()
    assert next(windows) == ["two"]
    later.join()


def test_what_is_in_the_pipe_comes_in_one_window(pipe: tuple[io.FileIO, Input]) -> None:
    into, source = pipe
    lines = [f"line {number}" for number in range(50)]
    into.write("".join(f"{line}\n" for line in lines).encode())
    assert next(source.windows()) == lines


def test_windows_of_a_file_grow_and_are_bounded(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(10_000)]
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with open_input(path) as source:
        windows = list(source.windows())
    assert [line for window in windows for line in window] == lines
    assert [len(window) for window in windows] == [
        64, 128, 256, 512, 1024, 2048, 2048, 2048, 1872,
    ]  # fmt: skip


def test_a_window_of_long_lines_holds_fewer(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes((b"x" * 200_000 + b"\n") * 7)
    with open_input(path) as source:
        assert [len(window) for window in source.windows()] == [3, 3, 1]


def test_no_more_is_read_than_the_window_needs() -> None:
    stream = io.BytesIO(b"some words in a line\n" * 500_000)
    next(Input(stream, "standard input").windows())
    assert stream.tell() <= 1 << 16


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfone\r\ntwo"))
    with open_input(path) as source:
        assert list(source.windows()) == [["one", "two"]]


def test_lines_before_a_bad_byte_are_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nthr\xffee\nfour\n")
    with open_input(path) as source:
        windows = source.windows()
        assert next(windows) == ["one", "two"]
        with pytest.raises(DataError) as caught:
            next(windows)
    assert str(caught.value).startswith(
        f"{path}, line 3: byte 4 of the line is 0xff, which is not valid UTF-8 here\n"
    )


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\x0c", "\u2028".encode()])))
def test_lines_are_those_of_read_lines(parts: list[bytes]) -> None:
    data = b"".join(parts)
    lines = [line for window in Input(io.BytesIO(data), "x").windows() for line in window]
    assert lines == list(read_lines(io.BytesIO(data)))
    assert len(lines) == data.count(b"\n") + (data[-1:] not in {b"", b"\n"})


def test_a_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError) as caught, open_input(None):
        pass
    assert str(caught.value) == "standard input: it is closed\n  Give a file: --input FILE."
