"""Curves against length and width, as far as time and memory allow, and steps of decoding."""

import time
from collections.abc import Sequence

from regard.compare.helper import Helper
from regard.compare.results import Axis, Curve, Decode, DecodePoint, Pass, Point
from regard.compare.scaling import fit_power
from regard.compare.worker import PassFound, PassOrder, StepOrder
from regard.machine import memory

# A pass that should take longer than this is made twice, if there is time for that.
_SHORT = 0.15
_TWICE = 2.5
# What a measurement may take of the memory that is free.
_MEMORY_SHARE = 0.8
# From one point to the next, cost is expected to rise as it just did, within these bounds.
_LEAST_RISE, _MOST_RISE = 1.8, 4.5


def curve(
    helper: Helper,
    *,
    of: Pass,
    axis: Axis,
    values: Sequence[int],
    fixed: int,
    heads: int,
    seconds: float,
) -> Curve:
    """Measure one kind of pass at rising lengths, or widths, until time or memory ends it.

    A measurement that should take more than is left is not begun.

    Args:
        helper: measures.
        of: forward or training.
        axis: what `values` are.
        values: lengths or widths, rising.
        fixed: the other.
        heads: of layers that have some.
        seconds: what all may take together.
    """
    ends = time.perf_counter() + seconds
    points: list[Point] = []
    stopped = ""
    for value in values:
        left = ends - time.perf_counter()
        expected = _expected([point.seconds for point in points])
        stopped = _too_much(points, expected, left)
        if stopped:
            break
        n, d = (value, fixed) if axis == "n" else (fixed, value)
        most = min(left, max(_SHORT, _TWICE * expected))
        found = helper.passes(PassOrder(of=of, n=n, d=d, heads=heads, seconds=most))
        if isinstance(found, str):
            points.append(Point(n=n, d=d, note=found))
            stopped = found
            break
        points.append(_point(n, d, found))
    measured = [(point, point.n if axis == "n" else point.d) for point in points]
    return Curve(
        of=of,
        axis=axis,
        fixed=fixed,
        points=tuple(points),
        stopped=stopped,
        time=fit_power([(x, point.seconds) for point, x in measured if point.seconds]),
        memory=fit_power(
            [(x, float(point.peak_bytes)) for point, x in measured if point.peak_bytes]
        ),
    )


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
    return Decode(
        points=points,
        reason="" if len(points) == len(contexts) else "no time left for longer contexts",
        time=fit_power([(each.context, each.seconds) for each in points]),
        state=fit_power([(each.context, float(each.state_bytes)) for each in points]),
    )


def _point(n: int, d: int, found: PassFound) -> Point:
    note = "" if found.peak_bytes is not None else "less memory than can be told"
    return Point(
        n=n,
        d=d,
        seconds=found.seconds,
        repeats=found.repeats,
        peak_bytes=found.peak_bytes,
        note=note,
    )


def _too_much(points: Sequence[Point], expected: float, left: float) -> str:
    """Why the next point can't be measured; "" if it can."""
    if left <= 0 or expected > left:
        return (
            f"no time left: about {expected:.1f} s would be needed, {max(left, 0.0):.1f} s are left"
        )
    peaks = [point.peak_bytes for point in points]
    needed, free = _expected(peaks), _free_memory()
    if free is not None and needed > _MEMORY_SHARE * free:
        return (
            f"no memory left: about {needed / 2**30:.1f} GiB would be needed, "
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
