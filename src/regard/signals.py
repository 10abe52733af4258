"""Ctrl-C, SIGTERM, SIGHUP outside of training: they end a command, even amid an import of torch."""

import atexit
import importlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# The terminal is gone. It comes twice: from the system, and from the shell, to all that it started.
# Windows has none.
HANG_UP: signal.Signals | None = getattr(signal, "SIGHUP", None)


def answered() -> tuple[signal.Signals, ...]:
    """The signals to take over; a hang-up that is ignored, as by nohup, stays so."""
    both = (signal.SIGINT, signal.SIGTERM)
    if HANG_UP is None or signal.getsignal(HANG_UP) is signal.SIG_IGN:
        return both
    return (*both, HANG_UP)


class Ending:
    """A handler that raises KeyboardInterrupt; while `holding`, it only notes that it was `asked`.

    So it does once all is `over`. A second signal then, or while holding, ends the process at once,
    with exit code 130. A second hang-up is nothing.
    """

    def __init__(self) -> None:
        self.holding = False
        self.over = False
        self.asked = False
        self._hung_up = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End what is under way, or note that it must end."""
        if number == HANG_UP:
            if self._hung_up:
                return
            self._hung_up = True
        if not (self.holding or self.over):
            raise KeyboardInterrupt
        if self.asked:
            os._exit(130)
        self.asked = True


@contextmanager
def interruptible(*, to_the_end: bool = False) -> Iterator[None]:
    """Inside the block these signals raise KeyboardInterrupt.

    In any thread but the main one Python allows no signal handlers, and this does nothing.

    Args:
        to_the_end: the process ends with the block. What comes after, such as Python taking itself
            apart, is no time to be interrupted: what was asked for is done.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or isinstance(signal.getsignal(signal.SIGTERM), Ending):
        yield
        return
    handler = Ending()
    before = {number: signal.signal(number, handler) for number in answered()}
    if to_the_end:
        # Python's end gives signals that it handles back to the system, which kills by them.
        atexit.register(_ignore)
    try:
        yield
    finally:
        if to_the_end:
            handler.over = True
            handler.asked = False
        else:
            for number, former in before.items():
                signal.signal(number, former)


def _ignore() -> None:
    for number in answered():
        signal.signal(number, signal.SIG_IGN)


def load_torch(*modules: str) -> None:
    """Import torch, and modules that need it, as `load` does.

    Every command calls this before it imports anything that needs torch.

    Raises:
        ImportError, OSError: one can't be imported.
    """
    load("torch", *modules)


def load(*modules: str) -> None:
    """Import modules that take a while; a signal meanwhile raises KeyboardInterrupt after.

    An exception raised inside an import of torch is swallowed by numpy's part of it and by other
    libraries', or aborts the process in that of C++; NumPy's own import swallows some, too.

    Raises:
        ImportError, OSError: one can't be imported.
    """
    with held_back():
        _import(*modules)


@contextmanager
def held_back() -> Iterator[None]:
    """Inside the block, which must be short, a signal waits; it raises KeyboardInterrupt after."""
    handler = signal.getsignal(signal.SIGTERM)
    if not isinstance(handler, Ending) or handler.holding:
        yield
        return
    handler.holding = True
    try:
        yield
    finally:
        handler.holding = False
    if handler.asked:
        raise KeyboardInterrupt


def _import(*modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
