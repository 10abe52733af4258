"""What training shows: a live bar on a terminal, plain lines without carriage returns elsewhere."""

import os
import sys
import unicodedata
from dataclasses import asdict, dataclass
from typing import IO, Protocol, cast, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from regard.durations import duration
from regard.evaluation.figures import shown
from regard.streams import Stream, Unfailing
from regard.training.validation import Validation


@dataclass(frozen=True, slots=True)
class Standing:
    """Where training stands: losses in nats a target, `None` before the first figure.

    `unit` is what is counted and predicted: tokens, or texts with a label.
    """

    step: int
    max_steps: int
    epoch: int
    seconds_left: float | None = None
    loss: float | None = None
    nll: float | None = None
    tokens_per_second: float | None = None
    learning_rate: float | None = None
    unit: str = "token"


@runtime_checkable
class Reporter(Protocol):
    """Takes in what happens while a model trains and shows it to a person, on stderr."""

    def say(self, text: str) -> None:
        """Show a line of words."""

    def begin(self, standing: Standing) -> None:
        """Training starts or goes on here."""

    def advanced(self, standing: Standing) -> None:
        """A step is done."""

    def measured(self, standing: Standing) -> None:
        """New figures of loss and speed are there."""

    def validated(self, step: int, validation: Validation, *, better: bool) -> None:
        """A validation is done; `better` when it is the best so far."""

    def end(self) -> None:
        """Training ends, by itself or by an error; must be safe to call twice."""


class SilentReporter:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def begin(self, standing: Standing) -> None:
        """Show nothing."""

    def advanced(self, standing: Standing) -> None:
        """Show nothing."""

    def measured(self, standing: Standing) -> None:
        """Show nothing."""

    def validated(self, step: int, validation: Validation, *, better: bool) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


class PlainReporter:
    """Whole lines only: for files, pipes and logs. A stream that breaks doesn't end training."""

    def __init__(self, stream: Stream) -> None:
        self._stream = Unfailing(stream)

    def say(self, text: str) -> None:
        """Write the text, each of its lines on one line."""
        for line in text.split("\n"):
            self._stream.write(visible(line) + "\n")
        self._stream.flush()

    def begin(self, standing: Standing) -> None:
        """Say nothing: the run says by itself what it does."""

    def advanced(self, standing: Standing) -> None:
        """Say nothing: a line a step is too much."""

    def measured(self, standing: Standing) -> None:
        """Write one line of figures."""
        self.say(f"step {standing.step:,}/{standing.max_steps:,}  {figures(standing)}")

    def validated(self, step: int, validation: Validation, *, better: bool) -> None:
        """Write the figures and the sample lines."""
        self.say(validation_text(step, validation, better=better))

    def end(self) -> None:
        """Say nothing."""


class TerminalReporter:
    """A live bar at the bottom of the terminal, and lines above it.

    A terminal that is closed doesn't end training.
    """

    def __init__(self, stream: Stream) -> None:
        self._console = Console(
            file=cast(IO[str], Unfailing(stream)), highlight=False, markup=False, emoji=False
        )
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._figures = ""

    def say(self, text: str) -> None:
        """Print above the bar."""
        lines = "\n".join(visible(line) for line in text.split("\n"))
        self._console.print(lines, soft_wrap=True)

    def begin(self, standing: Standing) -> None:
        """Show the bar."""
        self._progress = Progress(
            TextColumn("step", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task(
            "starting", total=standing.max_steps, completed=standing.step
        )
        self._progress.start()

    def advanced(self, standing: Standing) -> None:
        """Move the bar; the figures stay those of the last measurement."""
        if self._progress is not None:
            shown = self._figures or left_text(standing)
            self._progress.update(self._task, completed=standing.step, description=shown)

    def measured(self, standing: Standing) -> None:
        """Show new figures beside the bar."""
        self._figures = figures(standing)
        self.advanced(standing)

    def validated(self, step: int, validation: Validation, *, better: bool) -> None:
        """Print the figures and the sample lines above the bar."""
        self.say(validation_text(step, validation, better=better))

    def end(self) -> None:
        """Leave the bar as it is and give the cursor back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def make_reporter(stream: Stream | None = None) -> Reporter:
    """A live bar where `stream` (stderr by default) is a terminal that can show one, else lines.

    Where there is no stderr at all, as under pythonw, nothing is shown.
    """
    stream = stream or sys.stderr
    if stream is None:
        return SilentReporter()
    if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        return TerminalReporter(stream)
    return PlainReporter(stream)


def figures(standing: Standing) -> str:
    """Loss, speed, learning rate and time left on one line."""
    parts = []
    if standing.loss is not None:
        parts.append(f"loss {standing.loss:.3f}")
    if standing.nll is not None:
        parts.append(f"nll {standing.nll:.3f}")
    if standing.tokens_per_second is not None:
        parts.append(f"{standing.tokens_per_second:,.0f} {standing.unit}s/s")
    if standing.learning_rate is not None:
        parts.append(f"lr {standing.learning_rate:.2e}")
    left = left_text(standing)
    return "  ".join([*parts, left] if left else parts)


def left_text(standing: Standing) -> str:
    """The time left in words, or nothing before there is an estimate."""
    return "" if standing.seconds_left is None else f"{duration(standing.seconds_left)} left"


def validation_text(step: int, validation: Validation, *, better: bool) -> str:
    """A validation for people: its figures, then each sample with what it was made of."""
    head = (
        f"validation at step {step:,}: {shown(validation.figures)}  "
        f"({duration(validation.seconds)})"
    )
    lines = [head + ("  best so far" if better else "")]
    for sample in validation.samples:
        texts = asdict(sample)
        width = max(map(len, texts))
        lines += [f"  {name:{width}}  {visible(text)}" for name, text in texts.items()]
    return "\n".join(lines)


def visible(text: str) -> str:
    """The text with control characters written out, so that it can't move the cursor."""
    return "".join(
        f"\\x{ord(character):02x}" if unicodedata.category(character) == "Cc" else character
        for character in text
    )
