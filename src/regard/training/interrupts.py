"""Ctrl-C, SIGTERM, SIGHUP: the first asks for a stop at the next safe point, the second leaves."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from regard.errors import Interrupted, RegardError, command
from regard.signals import HANG_UP, answered
from regard.weights.checkpoints import checkpoint_steps

_SHOW_CURSOR = b"\x1b[?25h"
# One Ctrl-C may reach a process of several twice: from the terminal, and by who started it.
_SAME_SECONDS: Final = 2.0


class Interrupts:
    """Takes these signals over inside a `with` block, in the main thread.

    By default the first signal raises `Interrupted` at once, wherever the program is: right for
    reading data and for a validation, which change nothing that is kept. Inside `deferred()` it
    only sets `requested`, and the loop stops at the end of the step. The second signal ends the
    process with exit code 130 and saves nothing; it says what is kept in `run`, the folder that
    is trained into, once that is known. A hang-up is never the second.

    With `quiet`, as in all but one of several processes, a signal says nothing. In one of several
    a second signal within two seconds is the first one, which came by two ways.

    Once `trained` names a run folder, the error says that the model is in it.

    In any thread but the main one Python allows no signal handlers, and this does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._several = os.environ.get("WORLD_SIZE", "1") != "1"
        self.quiet = self._several and os.environ.get("RANK", "0") != "0"
        self.run: Path | None = None
        self.trained: Path | None = None
        self._first = 0.0
        self._deferred = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in answered():
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block a signal only sets `requested`."""
        with self._mode(deferred=True):
            yield

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Inside the block a signal raises `Interrupted` at once, and one that waits does too."""
        with self._mode(deferred=False):
            if self.requested:
                raise self._error()
            yield

    @contextmanager
    def _mode(self, *, deferred: bool) -> Iterator[None]:
        before, self._deferred = self._deferred, deferred
        try:
            yield
        finally:
            self._deferred = before

    def _error(self) -> Interrupted:
        if self.trained is None:
            return stopped()
        return Interrupted(
            f"stopped as asked; the training is done and its model is in {self.trained}",
            hint=f"What comes after it is done by {command('train', self.trained, '--resume')}",
        )

    def _kept(self) -> str:
        """What a process that leaves at once leaves behind, and how to go on from there."""
        if self.trained is not None:
            go_on = command("train", self.trained, "--resume")
            return f"the model is in {self.trained}; what comes after it is done by {go_on}"
        if self.run is None:
            return "nothing of this start is saved"
        try:
            steps = checkpoint_steps(self.run)
        except (RegardError, OSError):
            return f"what is kept is in {self.run}"
        if not steps:
            return "no checkpoint was saved, so nothing of the training is kept"
        go_on = command("train", self.run, "--resume")
        return f"the checkpoint of step {steps[-1]:,} is kept, to go on from by {go_on}"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Only os.write is safe here: the signal may come amid a write to the same stream.
        if self.requested:
            by_two_ways = self._several and time.monotonic() - self._first < _SAME_SECONDS
            if by_two_ways or number == HANG_UP:
                return
            _say(_SHOW_CURSOR if os.isatty(2) else b"")
            if not self.quiet:
                _say(f"\nregard: left at once; {self._kept()}\n".encode(errors="surrogateescape"))
            os._exit(Interrupted.exit_code)
        self.requested, self._first = True, time.monotonic()
        if self._deferred:
            if not self.quiet:
                _say(b"\nregard: stopping after this step; once more to leave at once\n")
        else:
            raise self._error()


def stopped(place: str = "", folder: Path | None = None) -> Interrupted:
    """The error that ends the program with exit code 130; with a folder, how to go on."""
    if folder is None:
        return Interrupted("stopped as asked, before there was anything to save")
    return Interrupted(
        f"stopped as asked at {place}; everything is saved",
        hint=f"Go on with it: {command('train', folder, '--resume')}",
    )


def _say(message: bytes) -> None:
    with suppress(OSError):  # Nobody may be left to read it.
        os.write(2, message)
