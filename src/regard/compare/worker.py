"""A process of its own that times passes of one layer and sees how much memory they take."""

import contextlib
import ctypes
import gc
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import torch

from regard.compare.layers import Subject
from regard.compare.results import Pass
from regard.nn.cache import Cache
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions
from regard.shapes import Tensor
from regard.training.allocator import hold_memory

MOST_REPEATS: Final = 7
_WARM: Final = 256  # places of the first pass, at most: it loads what any pass needs
_PREFILL: Final = 512
_STEPS: Final = 15
# Options of glibc's mallopt, and the largest threshold that it sets by itself.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_MMAP_MAX: Final = -4
_LARGEST_KEPT: Final = 2**25


@dataclass(frozen=True, kw_only=True)
class PassOrder:
    """Passes over one sequence to measure.

    Attributes:
        of: forward, or forward and backward.
        n: places.
        d: width.
        heads: of layers that have some.
        seconds: what the passes may take together; one is made in any case.
    """

    of: Pass
    n: int
    d: int
    heads: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PassFound:
    """What passes took: the median time, how many it is of, bytes at the peak if known."""

    seconds: float
    repeats: int
    peak_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """Steps of decoding to measure after each of some contexts, by rising length."""

    contexts: tuple[int, ...]
    d: int
    heads: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepFound:
    """A step after so many tokens: the median time, and the bytes of the state."""

    context: int
    seconds: float
    state_bytes: int


def work(connection: Connection, subject: Subject, *, seed: int, threads: int) -> None:
    """Measure what comes over a connection until it is closed.

    A Ctrl-C is the business of the process that asked.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # If memory runs out, this process shall be the one to end.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, BrokenPipeError):
        connection.send("ready")
        while True:
            order = connection.recv()
            try:
                torch.manual_seed(seed)
                if isinstance(order, StepOrder):
                    connection.send(steps(subject, order))
                else:
                    connection.send(passes(subject, order))
            except (RuntimeError, MemoryError) as error:
                connection.send(f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")


def passes(subject: Subject, order: PassOrder) -> PassFound:
    """Make passes over one random sequence: the first for the memory, the others for the time.

    The first gives memory back as it goes, and the second has it anew from the system: both take
    some times as long as those after them, of which there is one at least.
    """
    layer = subject.build(order.d, order.heads, order.n)
    layer.train(order.of == "training")
    x = torch.randn(1, order.n, order.d)
    one_pass(subject, layer, x[:, :_WARM], order.of)
    started = time.perf_counter()
    with _returning_memory():
        memory = PeakMemory()
        one_pass(subject, layer, x, order.of)
        peak = memory.taken()
    one_pass(subject, layer, x, order.of)
    times: list[float] = []
    while not times or (
        len(times) < MOST_REPEATS and time.perf_counter() - started + min(times) <= order.seconds
    ):
        before = time.perf_counter()
        one_pass(subject, layer, x, order.of)
        times.append(time.perf_counter() - before)
    _give_back()
    return PassFound(seconds=statistics.median(times), repeats=len(times), peak_bytes=peak)


def one_pass(subject: Subject, layer: Mixer, x: Tensor, of: Pass) -> None:
    """A forward pass, or one with gradients of all weights and of the input."""
    if of == "forward":
        with torch.inference_mode():
            layer(x, Span.whole(Positions(), x, causal=subject.causal))
        return
    x = x.detach().requires_grad_()
    layer(x, Span.whole(Positions(), x, causal=subject.causal)).sum().backward()
    layer.zero_grad(set_to_none=True)


@torch.inference_mode()
def steps(subject: Subject, order: StepOrder) -> list[StepFound]:
    """Read random vectors step by step, and measure after each context; fewer if time is up."""
    layer = subject.build(order.d, order.heads, order.contexts[-1]).eval()
    cache = Cache([layer.new_past()], 1, torch.device("cpu"))
    scheme = Positions()

    def advance(added: int) -> float:
        x = torch.randn(1, added, order.d)
        started = time.perf_counter()
        span = Span.step(scheme, x, cache)
        layer(x, span, cache.pasts[0])
        cache.advance(span.size, span.held_bk)
        return time.perf_counter() - started

    began, found = time.perf_counter(), list[StepFound]()
    for context in order.contexts:
        while cache.length < context:
            added = min(_PREFILL, context - cache.length)
            took = advance(added)
            left = order.seconds - (time.perf_counter() - began)
            if took * (context - cache.length) / added > left:
                return found
        held = cache.pasts[0].nbytes
        times = [advance(1) for _ in range(_STEPS)]
        took = statistics.median(times)
        found.append(StepFound(context=context, seconds=took, state_bytes=held))
    return found


class PeakMemory:
    """The memory that this process takes at the peak from now on, above what it has now.

    On Linux by the kernel's own high-water mark, which can be set back; elsewhere by the
    largest size so far, which tells something only when it rises.
    """

    def __init__(self) -> None:
        gc.collect()
        _give_back()
        self._reset = _reset_peak()
        self._before = _status("VmRSS") if self._reset else _largest_so_far()

    def taken(self) -> int | None:
        """The bytes, or None if they can't be told."""
        after = _status("VmHWM") if self._reset else _largest_so_far()
        if after is None or self._before is None or after <= self._before:
            return None
        return after - self._before


def _give_back() -> None:
    """Return memory that was freed to the system, where the C library keeps it."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def _returning_memory() -> Iterator[None]:
    """Inside the block glibc returns what is freed at once, so that the peak is that of tensors.

    Otherwise it keeps blocks and their gaps, which makes the peak depend on what came before,
    and a pass faster: after the block they are kept as a training keeps them.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt if sys.platform.startswith("linux") else None
    except (OSError, AttributeError):
        set_option = None
    if set_option is not None:
        set_option(_MMAP_MAX, 2**16)
        set_option(_MMAP_THRESHOLD, 2**18)
        set_option(_TRIM_THRESHOLD, 2**18)
    try:
        yield
    finally:
        if set_option is not None:
            set_option(_MMAP_THRESHOLD, _LARGEST_KEPT)
            set_option(_TRIM_THRESHOLD, 2 * _LARGEST_KEPT)
            hold_memory()


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return _status("VmHWM") is not None


def _status(name: str) -> int | None:
    """A size from Linux's account of this process, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(words[1]) * 1024 for words in found), None)


def _largest_so_far() -> int | None:
    """The largest size that this process ever had, in bytes."""
    if os.name != "posix":
        return None
    import resource  # noqa: PLC0415 - there is none on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
