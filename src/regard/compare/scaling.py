"""How measured figures grow: fitted exponents, kinds of growth, and where two curves cross."""

import math
from collections.abc import Sequence

from regard.compare.results import Count, Counted, Crossover, Fit, Growth, Layer, Pass, Quantity

# A fit takes the upper half of a curve, and this many points at least.
FEWEST = 3
# A peak below this says more of pages and buffers than of what a layer holds.
LEAST_BYTES = 4.0 * 2**20
# With a larger standard error, or a steeper fall, an exponent is noise.
_MOST_ERROR, _FALL = 0.3, -0.1


def fit_power(points: Sequence[tuple[int, float]]) -> Fit | None:
    """The power law through the upper half of some points, three of them at least.

    Least squares of the logarithms. None with fewer than three points that are above 0.

    Args:
        points: x and y, by rising x.
    """
    usable = [(x, y) for x, y in points if x > 0 and y > 0]
    if len(usable) < FEWEST:
        return None
    top = usable[-max(FEWEST, (len(usable) + 1) // 2) :]
    logs = [math.log(x) for x, _ in top]
    slope, _, left = _line(logs, [math.log(y) for _, y in top])
    middle = sum(logs) / len(logs)
    error = math.sqrt(left / (len(top) - 2) / sum((x - middle) ** 2 for x in logs))
    return Fit(
        exponent=round(slope, 3) + 0.0,
        error=round(error, 3),
        points=len(top),
        first=top[0][0],
        last=top[-1][0],
    )


def fit_or_reason(
    points: Sequence[tuple[int, float]], *, least: float = 0.0
) -> tuple[Fit | None, str]:
    """The power law through the upper half of some points, or why none can be told.

    Args:
        points: x and y, by rising x; y is 0 where it was not measured.
        least: points that are lower say nothing.
    """
    measured = [(x, y) for x, y in points if y > 0]
    usable = [(x, y) for x, y in measured if y >= least]
    fit = fit_power(usable)
    if fit is None:
        if len(measured) > len(usable):
            return None, "too little to be told"
        count = {0: "not measured", 1: "one point only", 2: "two points only"}
        return None, count[len(usable)]
    if fit.error > _MOST_ERROR:
        return None, "the points lie on no line"
    if fit.exponent < _FALL:
        return None, "it falls, which is noise"
    return fit, ""


def growth_of(points: Sequence[tuple[int, float]]) -> Growth | None:
    """Which of `a`, `a + b log n` and `a + b n` runs nearest to some points.

    "1" only where they are all the same, for these are counts, not measurements. None with
    fewer than three points.
    """
    if len(points) < FEWEST:
        return None
    values = [y for _, y in points]
    if max(values) == min(values):
        return "1"
    _, _, by_log = _line([math.log(x) for x, _ in points], values)
    _, _, by_length = _line([float(x) for x, _ in points], values)
    return "log n" if by_log < by_length else "n"


def counted(
    points: Sequence[tuple[int, int]], settings: dict[str, int], unreached: str = ""
) -> Counted:
    """Counts with their growth and exponent.

    The exponent is that of the upper half, as in `fit_power`. What is the same in the upper half
    grows as "1"; else all counts tell, for a few small ones go up and down.
    """
    values = [(n, float(value)) for n, value in points]
    fit = fit_power(values)
    top = growth_of(values[-max(FEWEST, (len(values) + 1) // 2) :])
    return Counted(
        counts=tuple(Count(n=n, value=value) for n, value in points),
        settings=settings,
        growth=top if top == "1" else growth_of(values),
        exponent=None if fit is None else fit.exponent,
        unreached=unreached,
    )


def crossing(
    cure: Sequence[tuple[int, float]], baseline: Sequence[tuple[int, float]]
) -> tuple[int | None, str]:
    """The x from which on one curve stays below another, interpolated between logarithms.

    Only what both have is looked at.

    Returns:
        The x and "", or None and why there is none: "always" where the one is below everywhere,
        "not up to" the last x where it is not below there; or that both have fewer than three.
    """
    other = dict(baseline)
    both = [(x, math.log(y / other[x])) for x, y in cure if y > 0 and other.get(x, 0) > 0]
    if not both:
        return None, "no length in common"
    if len(both) < FEWEST:
        return None, f"too few lengths ({', '.join(f'{x:,}' for x, _ in both)})"
    above = [place for place, (_, ratio) in enumerate(both) if ratio >= 0]
    if not above:
        return None, f"always (from {both[0][0]:,})"
    last = above[-1]
    if last == len(both) - 1:
        return None, f"not up to {both[-1][0]:,}"
    (x0, r0), (x1, r1) = both[last], both[last + 1]
    share = r0 / (r0 - r1)
    return round(math.exp(math.log(x0) + share * math.log(x1 / x0))), ""


def crossovers(layers: Sequence[Layer]) -> tuple[Crossover, ...]:
    """Where each cure pays against each form of full attention, by time and by memory."""
    baselines = [layer for layer in layers if layer.kind == "full"]
    cures = [layer for layer in layers if layer.kind != "full"]
    passes: tuple[Pass, ...] = ("forward", "training")
    quantities: tuple[Quantity, ...] = ("time", "memory")
    found = []
    for cure in cures:
        for baseline in baselines:
            for of in passes:
                for quantity in quantities:
                    ours, theirs = (_points(layer, of, quantity) for layer in (cure, baseline))
                    if ours and theirs:
                        if quantity == "memory":
                            ours = _told(ours, theirs)
                        length, note = crossing(ours, theirs)
                        found.append(
                            Crossover(
                                layer=cure.name,
                                baseline=baseline.name,
                                of=of,
                                quantity=quantity,
                                length=length,
                                note=note,
                            )
                        )
    return tuple(found)


def _points(layer: Layer, of: Pass, quantity: Quantity) -> list[tuple[int, float]]:
    curve = layer.curve(of, "n")
    if curve is None:
        return []
    if quantity == "time":
        return [(point.n, point.seconds) for point in curve.points if point.seconds]
    return [(point.n, float(point.peak_bytes)) for point in curve.points if point.peak_bytes]


def _told(
    ours: Sequence[tuple[int, float]], theirs: Sequence[tuple[int, float]]
) -> list[tuple[int, float]]:
    """The points of a curve of bytes without those where both curves are too low to be told."""
    other = dict(theirs)
    return [(n, held) for n, held in ours if max(held, other.get(n, 0.0)) >= LEAST_BYTES]


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """Slope, intercept and the sum of squares left over of the line through some points."""
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle_x) ** 2 for x in xs)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / spread
    start = middle_y - slope * middle_x
    left = sum((y - start - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return slope, start, left
