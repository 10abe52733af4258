"""How far a comparison is, for who watches: a bar on a terminal, else nothing."""

import os
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, Self, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from regard.streams import Stream, Unfailing


class Bar(AbstractContextManager["Bar"]):
    """A bar on a terminal that can show one; nothing on any other stream.

    Args:
        stream: where to show it; standard error by default.
    """

    def __init__(self, stream: Stream | None = None) -> None:
        stream = stream or sys.stderr
        self._progress: Progress | None = None
        if stream is None or not stream.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
            return
        console = Console(
            file=cast(IO[str], Unfailing(stream)), highlight=False, markup=False, emoji=False
        )
        self._progress = Progress(
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=2,
        )
        self._task = self._progress.add_task("starting", total=1.0)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, text: str, share: float) -> None:
        """Show what is being done, and which share of all is done."""
        if self._progress is not None:
            self._progress.update(self._task, description=text, completed=min(share, 1.0))
