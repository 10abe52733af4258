"""The figures of a comparison as rows for a spreadsheet, and as cells of the page's tables."""

import csv
import io
from collections.abc import Iterator

from regard.compare.results import Comparison, Counted, Fit, Layer, Order

COLUMNS = ("layer", "what", "quantity", "n", "d", "value", "note")
Row = tuple[str, str, str, int | str, int | str, float | str, str]


def csv_text(found: Comparison) -> str:
    """Everything that was measured or counted, one figure a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for layer in found.layers:
        writer.writerows(_rows(layer, found.d_model))
    for each in found.crossovers:
        value = "" if each.length is None else each.length
        what = f"{each.of} {each.quantity} below {each.baseline}"
        writer.writerow((each.layer, what, "crossover", "", found.d_model, value, each.note))
    return out.getvalue()


def _rows(layer: Layer, d_model: int) -> Iterator[Row]:
    name = layer.name
    for curve in layer.curves:
        for point in curve.points:
            time = "" if point.seconds is None else point.seconds
            held = "" if point.peak_bytes is None else point.peak_bytes
            yield name, curve.of, "seconds", point.n, point.d, time, point.note
            yield name, curve.of, "peak bytes", point.n, point.d, held, point.note
        for quantity, fit in (("time", curve.time), ("memory", curve.memory)):
            if fit is not None:
                what = f"{quantity} exponent in {curve.axis}"
                yield name, curve.of, what, "", "", fit.exponent, f"{fit.first} to {fit.last}"
    for what, counted in (("operations in sequence", layer.sequential), ("path", layer.path)):
        for count in counted.counts if counted is not None else ():
            yield name, what, "count", count.n, "", count.value, ""
    for step in layer.decode.points if layer.decode is not None else ():
        yield name, "decode", "seconds", step.context, d_model, step.seconds, ""
        yield name, "decode", "state bytes", step.context, d_model, step.state_bytes, ""
    for quality in layer.quality:
        for seed, accuracy in zip(quality.seeds, quality.accuracies, strict=True):
            yield name, quality.task, "accuracy", "", "", accuracy, f"seed {seed}"
    if layer.gradients is not None:
        for distance, norm in zip(layer.gradients.distances, layer.gradients.norms, strict=True):
            yield name, "gradient", "norm", distance, "", norm, ""


def power(fit: Fit | None, order: Order) -> tuple[str, str]:
    """A measured exponent, and what theory says."""
    if fit is None:
        return "-", order.formula
    return f"n^{fit.exponent:.2f}", order.formula


def count_cell(counted: Counted | None, theory: str, unit: str) -> tuple[str, str]:
    """The last count with how it grows, and what theory says."""
    if counted is None or not counted.counts:
        return "-", theory
    last = counted.counts[-1]
    grows = f", grows as {counted.growth}" if counted.growth not in (None, "1") else ""
    name = unit if last.value != 1 else unit.removesuffix("s")
    return f"{last.value:,} {name} at {last.n:,}{grows}", theory


def size(count: float | int) -> str:
    """So many bytes, in a unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def span(seconds: float) -> str:
    """So many seconds, in a unit that fits."""
    for unit, least in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= least:
            return f"{seconds / least:.3g} {unit}"
    return f"{seconds:.2g} s"
