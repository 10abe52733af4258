"""The plots of a comparison, as SVG by matplotlib."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from regard.compare.results import Axis, Comparison, Layer, Pass, Quantity
from regard.errors import RegardError

Line = tuple[str, list[tuple[float, float]]]
_MARKERS: Final = "osD^v<>pPX*hd"
_SIZE: Final = (6.4, 4.6)  # inches, as matplotlib wants it


@dataclass(frozen=True)
class Plot:
    """One plot: its file's name, what it says, and the SVG."""

    name: str
    title: str
    svg: str


def require_plots() -> None:
    """Refuse to go on where there is no matplotlib.

    Raises:
        RegardError: it is not installed.
    """
    if find_spec("matplotlib") is None:
        raise RegardError(
            "the plots need matplotlib, which is not installed",
            hint="python -m pip install 'regard[compare]'",
        )


def plots(found: Comparison) -> list[Plot]:
    """All plots that there are figures for."""
    d, n = found.d_model, found.length
    made = [
        _curves(found, "forward", "n", "time", f"A forward pass, d = {d}"),
        _curves(found, "training", "n", "time", f"A training step, d = {d}"),
        _curves(found, "forward", "n", "memory", f"Memory of a forward pass, d = {d}"),
        _curves(found, "training", "n", "memory", f"Memory of a training step, d = {d}"),
        _curves(found, "training", "d", "time", f"A training step, n = {n:,}"),
        _curves(found, "training", "d", "memory", f"Memory of a training step, n = {n:,}"),
        _plot("decode-time", "A token more", "tokens before", "seconds", _lines(found, _steps)),
        _plot("decode-state", "What is kept", "tokens before", "bytes", _lines(found, _states)),
        _plot("sequential", "Operations in sequence", "n", "operations", _lines(found, _chain)),
        _plot("path", "Layers between any two positions", "n", "layers", _lines(found, _path)),
        _plot(
            "gradients",
            "Gradient that the last output sends back, untrained layers",
            "places back",
            "norm",
            _lines(found, _slopes),
            linear_x=True,
        ),
    ]
    return [plot for plot in made if plot is not None]


def _curves(found: Comparison, of: Pass, axis: Axis, quantity: Quantity, title: str) -> Plot | None:
    def points(layer: Layer) -> list[tuple[float, float]]:
        curve = layer.curve(of, axis)
        seen = []
        for point in curve.points if curve is not None else ():
            value = point.seconds if quantity == "time" else point.peak_bytes
            seen.append((float(point.n if axis == "n" else point.d), float(value or 0)))
        return seen

    unit = "seconds" if quantity == "time" else "bytes"
    return _plot(f"{of}-{quantity}-by-{axis}", title, axis, unit, _lines(found, points))


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
    """A line a layer, of what can stand on a logarithmic axis; its place is its colour."""
    return [(layer.name, [(x, y) for x, y in points(layer) if y > 0]) for layer in found.layers]


def _plot(
    name: str, title: str, x: str, y: str, lines: Sequence[Line], *, linear_x: bool = False
) -> Plot | None:
    if not any(points for _, points in lines):
        return None
    # Not pyplot, which would choose a backend and keep what is drawn.
    import matplotlib as mpl  # noqa: PLC0415 - only this command needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "regard", "svg.fonttype": "path"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        colours = mpl.colormaps["tab20"]
        for place, (label, points) in enumerate(lines):
            if points:
                axes.plot(
                    [each[0] for each in points],
                    [each[1] for each in points],
                    label=label,
                    color=colours((2 * place + place // 10) % 20),
                    marker=_MARKERS[place % len(_MARKERS)],
                    markersize=4,
                    linewidth=1.4,
                )
        axes.set_yscale("log")
        if not linear_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=7.5, ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(name, title, out.getvalue())
