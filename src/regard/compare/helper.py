"""Asking a process of its own for measurements: it may run out of memory, or of time."""

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

from regard.compare.layers import Subject
from regard.compare.worker import PassFound, PassOrder, StepFound, StepOrder, work

# How much longer than it should an answer may take until the process is ended.
SLACK = 3.0
_START = 60.0


def processes() -> ForkServerContext | SpawnContext:
    """How processes are started: copies of one that has imported what all need, where it can be."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.compare.worker"])
    # Both of its processes ignore a Ctrl-C, but not before they have imported what they need.
    resource_tracker.ensure_running()  # by itself it blocks the signal, and lets it through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


class Helper:
    """A process that measures one layer; a new one takes its place when it had to be ended.

    Args:
        subject: the layer.
        seed: of all random numbers.
        threads: of PyTorch.
    """

    def __init__(self, subject: Subject, *, seed: int, threads: int) -> None:
        self._subject = subject
        self._seed = seed
        self._threads = threads
        self._context = processes()
        self._process: BaseProcess | None = None

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def passes(self, order: PassOrder) -> PassFound | str:
        """What passes take, or why that can't be told."""
        found = self._ask(order, order.seconds)
        return found if isinstance(found, PassFound | str) else "an answer to something else"

    def steps(self, order: StepOrder) -> list[StepFound] | str:
        """What steps take, or why that can't be told."""
        found = self._ask(order, order.seconds)
        return found if isinstance(found, list | str) else "an answer to something else"

    def _ask(self, order: PassOrder | StepOrder, seconds: float) -> object:
        try:
            if self._process is None:
                self._start()
            self._connection.send(order)
            if self._connection.poll(max(seconds, 0.0) + SLACK):
                return self._connection.recv()
            reason = f"stopped after {max(seconds, 0.0) + SLACK:.0f} s, for want of time"
            self._end()
        except (EOFError, OSError):
            reason = self._end()
        return reason

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=work,
            args=(theirs, self._subject),
            kwargs={"seed": self._seed, "threads": self._threads},
            daemon=True,
        )
        self._process.start()
        theirs.close()
        # The first of all waits for an import of torch.
        if self._connection.poll(_START):
            self._connection.recv()

    def _end(self) -> str:
        """End the process, and say how it ended if that was before."""
        process, self._process = self._process, None
        if process is None:
            return "it had ended"
        self._connection.close()
        process.join(0.2)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        if code is not None and code < 0:
            return f"the process was ended by signal {-code}, as when there is no more memory"
        return f"the process ended with exit code {code}"
