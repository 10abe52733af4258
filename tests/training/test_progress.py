import errno
import io
import sys

import pytest

from regard.training.progress import (
    PlainReporter,
    SilentReporter,
    Standing,
    TerminalReporter,
    make_reporter,
    visible,
)
from regard.training.validation import Sample, Validation

STANDING = Standing(
    step=50,
    max_steps=1000,
    epoch=0,
    seconds_left=754.0,
    loss=4.1234,
    nll=3.5,
    tokens_per_second=2250.4,
    learning_rate=1.25e-4,
)
VALIDATION = Validation(
    figures={"loss": 1.5, "perplexity": 4.4817, "bleu": 28.04, "chrf": 51.5},
    signatures={"bleu_signature": "b", "chrf_signature": "c"},
    samples=(Sample("a\rb", "Hallo\x1b[2J", "Guten Tag"),),
    seconds=12.3,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell(reporter: PlainReporter | TerminalReporter) -> None:
    reporter.begin(STANDING)
    reporter.advanced(STANDING)
    reporter.measured(STANDING)
    reporter.validated(50, VALIDATION, better=True)
    reporter.say("two\nlines")
    reporter.end()
    reporter.end()


def test_a_file_gets_whole_lines_without_carriage_returns_or_escapes() -> None:
    stream = io.StringIO()
    reporter = make_reporter(stream)
    assert isinstance(reporter, PlainReporter)
    tell(reporter)
    assert stream.getvalue() == (
        "step 50/1,000  loss 4.123  nll 3.500  2,250 tokens/s  lr 1.25e-04  13 min left\n"
        "validation at step 50: BLEU 28.0  chrF 51.5  perplexity 4.48  (12 s)  best so far\n"
        "  source       a\\x0db\n"
        "  reference    Hallo\\x1b[2J\n"
        "  translation  Guten Tag\n"
        "two\n"
        "lines\n"
    )


def test_a_terminal_gets_a_bar_with_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    reporter = make_reporter(stream)
    assert isinstance(reporter, TerminalReporter)
    tell(reporter)
    text = stream.getvalue()
    for part in ("50/1000", "loss 4.123", "2,250 tokens/s", "13 min left", "Guten Tag", "lines"):
        assert part in text
    assert "Hallo\\x1b[2J" in text
    # The cursor is hidden while the bar lives and comes back.
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_terminal_that_can_not_move_its_cursor_gets_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_reporter(Terminal()), PlainReporter)


@pytest.mark.parametrize("reason", [errno.EPIPE, errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("kind", [PlainReporter, TerminalReporter])
def test_a_stream_that_breaks_does_not_end_training(
    kind: type[PlainReporter] | type[TerminalReporter],
    reason: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Terminal):
        def write(self, text: str, /) -> int:
            raise OSError(reason, "no more")

        def flush(self) -> None:
            raise OSError(reason, "no more")

    monkeypatch.setenv("TERM", "xterm-256color")
    tell(kind(Broken()))


def test_without_a_standard_error_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(make_reporter(), SilentReporter)


def test_control_characters_are_written_out_and_others_are_left() -> None:
    assert visible("ü\u2028👩‍💻\x00\x7f\x85") == "ü\u2028👩‍💻\\x00\\x7f\\x85"
