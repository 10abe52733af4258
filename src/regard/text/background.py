"""Long calls into native code, which a signal can still end at once."""

import threading
from collections.abc import Callable, Iterable, Iterator

_PAUSE = 0.1


# Passes lines on for as long as the caller waits for the outcome.
Going = Callable[[Iterable[str]], Iterator[str]]


def in_background(call: Callable[[Going], object]) -> None:
    """Make a call in another thread and wait for it, so that signals are heard meanwhile.

    Python handles signals in the main thread and between two of its own instructions only: a
    call that stays in native code for minutes would hold them up for as long. What a handler
    raises is raised here; the call is then left behind, and does not keep the process alive.

    Args:
        call: is given a function to wrap the lines that it reads in, which ends once nobody waits.

    Raises:
        What the call does.
    """
    abandoned = threading.Event()
    errors: list[BaseException] = []

    def going(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if abandoned.is_set():
                return
            yield line

    def run() -> None:
        try:
            call(going)
        except BaseException as error:  # it is raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_PAUSE)
    finally:
        abandoned.set()
    if errors:
        raise errors[0]
