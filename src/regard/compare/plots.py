"""The plots of a comparison: what each shows."""

from collections.abc import Callable

from regard.compare.drawing import Bar, Line, Plot, draw_bars, draw_lines
from regard.compare.results import Axis, Comparison, Layer, Pass, Quantity


def plots(found: Comparison) -> list[Plot]:
    """All plots that there are figures for."""
    d, n = found.d_model, found.length
    made = [
        _curves(found, "forward", "n", "time", f"A forward pass, d = {d}"),
        _curves(found, "training", "n", "time", f"A training step, d = {d}"),
        _curves(found, "forward", "n", "memory", f"Memory of a forward pass, d = {d}"),
        _curves(found, "training", "n", "memory", f"Memory of a training step, d = {d}"),
        _curves(found, "forward", "d", "time", f"A forward pass, n = {n:,}"),
        _curves(found, "training", "d", "time", f"A training step, n = {n:,}"),
        _curves(found, "forward", "d", "memory", f"Memory of a forward pass, n = {n:,}"),
        _curves(found, "training", "d", "memory", f"Memory of a training step, n = {n:,}"),
        draw_lines(
            "decode-time", "A token more", "tokens before", "seconds", _lines(found, _steps)
        ),
        draw_lines(
            "decode-state", "What is kept", "tokens before", "bytes", _lines(found, _states)
        ),
        draw_lines(
            "sequential", "Operations in sequence", "n", "operations", _lines(found, _chain)
        ),
        draw_lines("path", "Layers between any two positions", "n", "layers", _lines(found, _path)),
        draw_lines(
            "gradients",
            "Gradient that the last output sends back, untrained layers",
            "places back",
            "norm",
            _lines(found, _slopes),
            linear_x=True,
        ),
        *(_learned(found, task) for task in _tasks(found)),
    ]
    return [plot for plot in made if plot is not None]


def _tasks(found: Comparison) -> list[str]:
    return list(dict.fromkeys(each.task for layer in found.layers for each in layer.quality))


def _learned(found: Comparison, task: str) -> Plot | None:
    """What each layer that was trained learned of a task."""
    runs = [
        (layer.name, each)
        for layer in found.layers
        for each in layer.quality
        if each.task == task and not each.same_as
    ]
    return draw_bars(
        f"quality-{task}",
        f"Learning {task}",
        "right answers in percent: mean, and each seed's",
        [Bar(name, each.accuracies) for name, each in runs],
        mark=max(each.chance for _, each in runs),
        mark_name="by guessing",
    )


def _curves(found: Comparison, of: Pass, axis: Axis, quantity: Quantity, title: str) -> Plot | None:
    def points(layer: Layer) -> list[tuple[float, float]]:
        curve = layer.curve(of, axis)
        seen = []
        for point in curve.points if curve is not None else ():
            value = point.seconds if quantity == "time" else point.peak_bytes
            seen.append((float(point.n if axis == "n" else point.d), float(value or 0)))
        return seen

    unit = "seconds" if quantity == "time" else "bytes"
    return draw_lines(f"{of}-{quantity}-by-{axis}", title, axis, unit, _lines(found, points))


def _steps(layer: Layer) -> list[tuple[float, float]]:
    points = layer.decode.points if layer.decode is not None else ()
    return [(float(point.context), point.seconds) for point in points]


def _states(layer: Layer) -> list[tuple[float, float]]:
    points = layer.decode.points if layer.decode is not None else ()
    return [(float(point.context), float(point.state_bytes)) for point in points]


def _chain(layer: Layer) -> list[tuple[float, float]]:
    counts = layer.sequential.counts if layer.sequential is not None else ()
    return [(float(count.n), float(count.value)) for count in counts]


def _path(layer: Layer) -> list[tuple[float, float]]:
    counts = layer.path.counts if layer.path is not None else ()
    return [(float(count.n), float(count.value)) for count in counts]


def _slopes(layer: Layer) -> list[tuple[float, float]]:
    if layer.gradients is None:
        return []
    pairs = zip(layer.gradients.distances, layer.gradients.norms, strict=True)
    return [(float(distance), norm) for distance, norm in pairs]


def _lines(found: Comparison, points: Callable[[Layer], list[tuple[float, float]]]) -> list[Line]:
    """A line a layer, of what can stand on a logarithmic axis."""
    return [Line(layer.name, [(x, y) for x, y in points(layer) if y > 0]) for layer in found.layers]
