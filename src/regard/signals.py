"""Ctrl-C and SIGTERM outside of training: they end a command, even amid an import of torch."""

import importlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """A handler that raises KeyboardInterrupt; while `loading`, it only notes that it was `asked`.

    A second signal while loading ends the process at once, with exit code 130.
    """

    def __init__(self) -> None:
        self.loading = False
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End what is under way, or note that it must end."""
        if not self.loading:
            raise KeyboardInterrupt
        if self.asked:
            os._exit(130)
        self.asked = True


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block both signals raise KeyboardInterrupt.

    In any thread but the main one Python allows no signal handlers, and this does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or isinstance(signal.getsignal(signal.SIGTERM), Ending):
        yield
        return
    handler = Ending()
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


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
    handler = signal.getsignal(signal.SIGTERM)
    if not isinstance(handler, Ending) or handler.loading:
        _import(*modules)
        return
    handler.loading = True
    try:
        _import(*modules)
    finally:
        handler.loading = False
    if handler.asked:
        raise KeyboardInterrupt


def _import(*modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
