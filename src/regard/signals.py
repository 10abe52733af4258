"""Ctrl-C and SIGTERM outside of training: they end a command, even amid an import of torch."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Remembering:
    """A handler that raises KeyboardInterrupt, and remembers that it was asked to.

    Importing torch swallows an exception that is raised while numpy loads; who comes after it
    calls `raise_if_asked`.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End what is under way."""
        self.asked = True
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block both signals raise KeyboardInterrupt and are remembered.

    In any thread but the main one Python allows no signal handlers, and this does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or isinstance(signal.getsignal(signal.SIGTERM), Remembering):
        yield
        return
    handler = Remembering()
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def raise_if_asked() -> None:
    """Raise the KeyboardInterrupt that a signal asked for and that was swallowed."""
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, Remembering) and handler.asked:
        raise KeyboardInterrupt
