"""The figures of a comparison as rows for a spreadsheet, and as cells of the page's tables."""

import csv
import io
from collections.abc import Iterator

from regard.compare.results import Comparison, Counted, Fit, Layer, Order

COLUMNS = ("layer", "what", "quantity", "n", "d", "seed", "value", "note")
Value = float | str | None
Row = tuple[str, str, str, int | None, int | None, int | None, Value, str]


def csv_text(found: Comparison) -> str:
    """Everything that was measured or counted, one figure a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for layer in found.layers:
        writer.writerows(_curve_rows(layer))
        writer.writerows(_other_rows(layer, found.d_model))
        writer.writerows(_quality_rows(layer))
    for each in found.crossovers:
        what = f"{each.of} {each.quantity} below {each.baseline}"
        writer.writerow(
            (each.layer, what, "crossover", None, found.d_model, None, each.length, each.note)
        )
    return out.getvalue()


def _curve_rows(layer: Layer) -> Iterator[Row]:
    name = layer.name
    for curve in layer.curves:
        for point in curve.points:
            at = (point.n, point.d, None)
            timed = f"median of {point.repeats}" if point.repeats > 1 else ""
            yield name, curve.of, "seconds", *at, point.seconds, timed or point.note
            yield name, curve.of, "peak bytes", *at, point.peak_bytes, point.note
        n = None if curve.axis == "n" else curve.fixed
        d = None if curve.axis == "d" else curve.fixed
        for quantity, fit, reason in (
            ("time", curve.time, curve.time_note),
            ("memory", curve.memory, curve.memory_note),
        ):
            what = f"{quantity} exponent in {curve.axis}"
            if fit is None:
                yield name, curve.of, what, n, d, None, None, reason
            else:
                note = f"{curve.axis} = {fit.first} to {fit.last}, standard error {fit.error}"
                yield name, curve.of, what, n, d, None, fit.exponent, note
        if curve.stopped:
            yield name, curve.of, f"ended in {curve.axis}", n, d, None, None, curve.stopped


def _other_rows(layer: Layer, d_model: int) -> Iterator[Row]:
    name = layer.name
    yield name, "layer", "parameters", None, d_model, None, layer.parameters, ""
    for what, counted in (("operations in sequence", layer.sequential), ("path", layer.path)):
        for count in counted.counts if counted is not None else ():
            yield name, what, "count", count.n, None, None, count.value, ""
    decode = layer.decode
    for step in decode.points if decode is not None else ():
        yield name, "decode", "seconds", step.context, d_model, None, step.seconds, ""
        yield name, "decode", "state bytes", step.context, d_model, None, step.state_bytes, ""
    if decode is not None and decode.reason:
        yield name, "decode", "ended", None, d_model, None, None, decode.reason
    if layer.gradients is not None:
        for distance, norm in zip(layer.gradients.distances, layer.gradients.norms, strict=True):
            yield name, "gradient", "norm", distance, None, None, norm, ""


def _quality_rows(layer: Layer) -> Iterator[Row]:
    for each in layer.quality:
        name, task = layer.name, each.task
        note = f"those of {each.same_as}, the same function" if each.same_as else each.note
        yield name, task, "parameters", None, None, None, each.parameters, note
        yield name, task, "chance", None, None, None, each.chance, note
        yield name, task, "seconds", None, None, None, each.seconds, note
        for seed, steps, accuracy in zip(each.seeds, each.steps, each.accuracies, strict=True):
            yield name, task, "steps", None, None, seed, steps, note
            yield name, task, "accuracy", None, None, seed, accuracy, note


def power(fit: Fit | None, order: Order, reason: str = "", *, letter: str = "n") -> tuple[str, ...]:
    """A measured exponent and what theory says; a dash and the reason where there is none."""
    if fit is None:
        return ("–", order.formula, reason) if reason else ("–", order.formula)
    return f"{letter}^{fit.exponent:.2f}", order.formula


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
