"""Curves against length and width, as far as time and memory allow, and steps of decoding."""

import time
from collections.abc import Sequence

from regard.compare.helper import Helper
from regard.compare.results import Axis, Curve, Decode, DecodePoint, Pass, Point
from regard.compare.scaling import LEAST_BYTES, fit_or_reason
from regard.compare.worker import PassFound, PassOrder, StepOrder
from regard.machine import memory

# The seconds that a point may take at least, if there is time for that.
_SHORT = 0.15
# What a point takes, in passes: the first two are slow, and one more is timed.
_A_POINT = 6.0
# What a measurement may take of the memory that is free.
_MEMORY_SHARE = 0.8
# From one point to the next, cost is expected to rise as it just did, within these bounds.
_LEAST_RISE, _MOST_RISE = 1.8, 4.5


class Growing:
    """A curve under way: one kind of pass at rising lengths, or widths.

    Args:
        helper: measures.
        of: forward or training.
        axis: what `values` are.
        values: lengths or widths, rising.
        fixed: the other.
        heads: of layers that have some.
    """

    def __init__(
        self,
        helper: Helper,
        *,
        of: Pass,
        axis: Axis,
        values: Sequence[int],
        fixed: int,
        heads: int,
    ) -> None:
        self._helper = helper
        self._of: Pass = of
        self._axis: Axis = axis
        self._values = tuple(values)
        self._fixed = fixed
        self._heads = heads
        self._points: list[Point] = []
        self._stopped = ""

    @property
    def next(self) -> int | None:
        """The length, or width, to be measured next; None where the curve has ended."""
        done = self._stopped or len(self._points) == len(self._values)
        return None if done else self._values[len(self._points)]

    @property
    def expected(self) -> float:
        """The seconds that a pass at the next point should take, by those before; 0 if unknown."""
        return _expected([point.seconds for point in self._points])

    def step(self, left: float) -> None:
        """Measure the next point within so many seconds, or end the curve and note why."""
        value = self.next
        if value is None:
            return
        self._stopped = _too_much(self._points, _A_POINT * self.expected, left)
        if self._stopped:
            return
        n, d = (value, self._fixed) if self._axis == "n" else (self._fixed, value)
        most = min(left, max(_SHORT, _A_POINT * self.expected))
        found = self._helper.passes(
            PassOrder(of=self._of, n=n, d=d, heads=self._heads, seconds=most)
        )
        if isinstance(found, str):
            self._points.append(Point(n=n, d=d, note=found))
            self._stopped = found
        else:
            self._points.append(_point(n, d, found))

    def curve(self) -> Curve:
        """What was measured so far."""
        along = [(point, point.n if self._axis == "n" else point.d) for point in self._points]
        times, time_note = fit_or_reason([(x, point.seconds or 0.0) for point, x in along])
        held, memory_note = fit_or_reason(
            [(x, float(point.peak_bytes or 0)) for point, x in along], least=LEAST_BYTES
        )
        return Curve(
            of=self._of,
            axis=self._axis,
            fixed=self._fixed,
            points=tuple(self._points),
            stopped=self._stopped,
            time=times,
            memory=held,
            time_note=time_note,
            memory_note=memory_note,
        )


def grow(curves: Sequence[tuple[Growing, float]], *, seconds: float) -> None:
    """Measure several curves side by side, the shortest lengths first, until time is up.

    So all of them come about as far, whatever time there is. A point is begun if it should take
    no more than the curve's share of what is left; once no curve has such a point, what is left
    goes to those that it is enough for, shortest first.

    Args:
        curves: each with its weight: how much time it gets beside the others.
        seconds: what all may take together.
    """
    ends = time.perf_counter() + seconds
    while True:
        left = ends - time.perf_counter()
        going = [(growing, weight) for growing, weight in curves if growing.next is not None]
        if not going:
            return
        share = left / sum(weight for _, weight in going)
        near = [each for each, weight in going if each.expected * _A_POINT <= share * weight]
        far = [each for each, _ in going if each.expected * _A_POINT <= left]
        chosen = min(near or far or [each for each, _ in going], key=lambda each: each.next or 0)
        chosen.step(left)


def decode(
    helper: Helper, *, contexts: tuple[int, ...], d: int, heads: int, seconds: float
) -> Decode:
    """Measure a step of decoding after each of some contexts."""
    found = helper.steps(StepOrder(contexts=contexts, d=d, heads=heads, seconds=seconds))
    if isinstance(found, str):
        return Decode(reason=found)
    points = tuple(
        DecodePoint(context=each.context, seconds=each.seconds, state_bytes=each.state_bytes)
        for each in found
    )
    times, _ = fit_or_reason([(each.context, each.seconds) for each in points])
    state, _ = fit_or_reason([(each.context, float(each.state_bytes)) for each in points])
    return Decode(
        points=points,
        reason="" if len(points) == len(contexts) else "no time left for longer contexts",
        time=times,
        state=state,
    )


def _point(n: int, d: int, found: PassFound) -> Point:
    told = found.peak_bytes is not None and found.peak_bytes >= LEAST_BYTES
    return Point(
        n=n,
        d=d,
        seconds=found.seconds,
        repeats=found.repeats,
        peak_bytes=found.peak_bytes,
        note="" if told else "less memory than can be told",
    )


def _too_much(points: Sequence[Point], expected: float, left: float) -> str:
    """Why the next point can't be measured; "" if it can."""
    if left <= 0 or expected > left:
        needed = f"about {expected:.1f} s would be needed, " if expected else ""
        return f"no time left: {needed}{max(left, 0.0):.1f} s are left"
    peaks = [point.peak_bytes for point in points]
    needed_bytes, free = _expected(peaks), _free_memory()
    if free is not None and needed_bytes > _MEMORY_SHARE * free:
        return (
            f"no memory left: about {needed_bytes / 2**30:.1f} GiB would be needed, "
            f"{free / 2**30:.1f} GiB are free"
        )
    return ""


def _expected(figures: Sequence[float | int | None]) -> float:
    """The next of some rising figures; 0 if there are none."""
    known = [float(figure) for figure in figures if figure]
    if not known:
        return 0.0
    rise = known[-1] / known[-2] if len(known) > 1 else 2.0
    return known[-1] * min(max(rise, _LEAST_RISE), _MOST_RISE)


def _free_memory() -> float | None:
    """The bytes that may still be taken; None if unknown."""
    sizes = memory()
    known = [sizes[name] for name in ("available", "allowed by the container") if name in sizes]
    return min(known) * 2**30 if known else None
