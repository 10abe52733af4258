"""metrics.jsonl read back, also one that a crash has torn."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.counts import counted
from regard.errors import RunFolderError
from regard.evaluation.records import curve, of_event, read_metrics, thinned


def quiet(words: str) -> None:
    raise AssertionError(words)


def test_whole_lines_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "start"}\n{"event": "train", "text": "a\u2028b\x85"}\n')
    assert read_metrics(path, quiet) == [
        {"event": "start"},
        {"event": "train", "text": "a\u2028b\x85"},
    ]
    path.write_text("")
    assert read_metrics(path, quiet) == []


def test_a_file_torn_at_any_byte_gives_its_whole_lines_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [b'{"event": "start", "name": "\xc3\xbc"}\n', b'{"event": "stop"}\n']
    data = b"".join(lines)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        said: list[str] = []
        found = read_metrics(path, said.append)
        assert len(found) == data[:length].count(b"\n")
        torn = length - (len(lines[0]) if found else 0)
        what = (
            f"{path}: the last line was torn by a crash and is left out ({counted(torn, 'byte')})"
        )
        assert said == ([what] if torn else [])


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"step": 1}', b"\xff"])
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"event": "start"}\n' + line + b'\n{"event": "stop"}\n')
    with pytest.raises(RunFolderError) as caught:
        read_metrics(path, quiet)
    assert str(caught.value) == (
        f"{path}, line 2: the line is no record of training\n  Remove the line."
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"none: cannot be read: No such file or directory"):
        read_metrics(tmp_path / "none", quiet)


def test_where_a_step_was_done_twice_the_later_counts() -> None:
    records = [
        {"event": "train", "step": 2, "loss": 9.0},
        {"event": "valid", "step": 2, "loss": 8.0},
        {"event": "train", "step": 3, "loss": 7.0},
        {"event": "train", "step": 2, "loss": 6.0},
    ]
    assert curve(of_event(records, "train"), "loss") == [(2, 6.0), (3, 7.0)]


def test_a_curve_leaves_out_what_was_not_measured() -> None:
    values = [1.0, None, float("nan"), float("inf"), "x", 2]
    records = [{"step": step, "loss": value} for step, value in enumerate(values)]
    assert curve(records, "loss") == [(0, 1.0), (5, 2.0)]
    assert curve([{"step": 1, "loss": 3.0}, {"step": 2, "nll": 1.0}], "nll", "loss") == [
        (1, 3.0),
        (2, 1.0),
    ]


@given(st.lists(st.floats(-1e3, 1e3), max_size=50), st.integers(1, 20))
def test_thinning_keeps_the_last_step_and_the_order_and_is_the_mean_of_neighbours(
    values: list[float], most: int
) -> None:
    points = list(enumerate(values))
    found = thinned(points, most)
    assert len(found) <= most
    assert [step for step, _ in found] == sorted({step for step, _ in found})
    if len(points) <= most:
        assert found == [(step, pytest.approx(value)) for step, value in points]
    else:
        assert found[-1][0] == points[-1][0]
        size = found[0][0] + 1
        assert found[0][1] == pytest.approx(sum(values[:size]) / size)
