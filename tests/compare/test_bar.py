"""A bar is shown on a terminal, and nothing anywhere else."""

import io

import pytest

from regard.compare.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    with Bar(stream) as bar:
        bar("plain: decoding", 0.5)
        bar("writing the page", 1.2)
    return stream.getvalue()


def test_a_terminal_sees_what_is_done_and_how_much_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(Terminal())
    assert "writing the page" in text
    assert "100%" in text


def test_no_other_stream_gets_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO()) == ""
    monkeypatch.setenv("TERM", "dumb")
    assert shown(Terminal()) == ""
