import gzip
import io
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text.lines import read_lines, read_pairs, write_line


def lines_of(data: bytes) -> list[str]:
    return list(read_lines(io.BytesIO(data), name="f.txt"))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("a\u2028b\n", ["a\u2028b"]),
        ("a\x85b\n", ["a\x85b"]),
        ("a\x0cb\n", ["a\x0cb"]),
        ("a\rb\n", ["a\rb"]),
        ("x.\r y ;\r\n", ["x.\r y ;"]),
        ("a\r\r\n", ["a\r"]),
        ("a\n\n \nb", ["a", "", " ", "b"]),
        ("a\r", ["a\r"]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        ("\ufeff\n", [""]),
        ("\ufeff", []),
        ("", []),
        ("\n", [""]),
        ("a\0b\n", ["a\0b"]),
    ],
)
def test_only_a_newline_ends_a_line(data: str, lines: list[str]) -> None:
    assert lines_of(data.encode()) == lines


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\ufeff"))))
def test_written_lines_are_read_back_in_number_and_order(lines: list[str]) -> None:
    stream = io.BytesIO()
    for line in lines:
        write_line(stream, line)
    assert lines_of(stream.getvalue()) == [line.removesuffix("\r") for line in lines]


def test_the_ends_of_lines_are_left_where_they_are_asked_for() -> None:
    data = io.BytesIO(b"\xef\xbb\xbfa\r\n\nb")
    assert list(read_lines(data, ends=True)) == ["a\n", "\n", "b"]


def test_a_newline_inside_a_written_text_does_not_make_two_lines() -> None:
    stream = io.BytesIO()
    write_line(stream, "a\nb")
    assert stream.getvalue() == b"a b\n"


def test_a_line_is_yielded_before_the_next_one_is_asked_for() -> None:
    class Pipe(io.BytesIO):
        asked = 0

        def __next__(self) -> bytes:
            self.asked += 1
            return super().__next__()

    pipe = Pipe(b"one\ntwo\n")
    assert next(read_lines(pipe)) == "one"
    assert pipe.asked == 1


def test_packed_files_hold_the_same_lines(tmp_path: Path) -> None:
    data = "Grüße\n\nzwei".encode()
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.xz").write_bytes(lzma.compress(data))
    for name in ("a.gz", "a.xz"):
        assert list(read_lines(tmp_path / name)) == ["Grüße", "", "zwei"]


def test_zst_files_hold_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the error says what to install; with it, the text is read."""
    path = tmp_path / "a.zst"
    try:
        import zstandard
    except ImportError:
        path.write_bytes(b"anything")
    else:
        parts = [zstandard.compress("Grüße\n".encode()), zstandard.compress(b"\nzwei")]
        path.write_bytes(b"".join(parts))
        assert list(read_lines(path)) == ["Grüße", "", "zwei"]
        monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value) == (
        f"{path}: reading .zst needs the package zstandard\n  python -m pip install 'regard[zst]'"
    )


def test_invalid_utf8_names_file_line_and_byte() -> None:
    with pytest.raises(DataError) as caught:
        lines_of("eins\nzwöi ".encode() + b"\xff drei\n")
    assert str(caught.value) == (
        "f.txt, line 2: byte 7 of the line is 0xff, which is not valid UTF-8 here\n"
        "  convert the file, for example: iconv -f latin1 -t utf-8 OLD > NEW"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path / "no.txt"))
    assert str(caught.value) == f"{tmp_path / 'no.txt'}: no such file\n  check the path"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path))
    assert str(caught.value) == f"{tmp_path}: wanted a file, found a folder"


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_damaged_packed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    whole = {".gz": gzip.compress, ".xz": lzma.compress}[suffix](bytes(range(256)) * 99)
    for data in (whole[:60], b"not packed at all", whole[:40] + b"\xff" * 40):
        path.write_bytes(data)
        with pytest.raises(DataError) as caught:
            list(read_lines(path))
        assert str(caught.value).startswith(f"{path}: the compressed file is damaged or cut short")


def test_quotes_in_a_tsv_are_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b'"a\tb"\n\tc\r\n')
    assert list(read_pairs(path)) == [('"a', 'b"'), ("", "c")]


@pytest.mark.parametrize(("line", "found"), [("no tab", "none"), ("a\tb\tc", "2"), ("", "none")])
def test_a_tsv_line_without_exactly_one_tab_is_named(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"a\tb\n{line}\n", newline="\n")
    with pytest.raises(DataError) as caught:
        list(read_pairs(path))
    assert str(caught.value) == (
        f"{path}, line 2: wanted one tab, between the source and the target, found {found}"
    )
