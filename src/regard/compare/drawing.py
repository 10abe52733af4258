"""Lines and bars as SVG by matplotlib, told apart without colours and on any background."""

import html
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, get_args

from regard.compare.names import LayerName
from regard.errors import RegardError
from regard.signals import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE: Final = (5.8, 4.3)  # inches, as matplotlib wants it
# What stands for the colours of text and background until it is known what is around.
_INK, _PAPER, _LINES = "#010203", "#fdfeff", "#808285"
# Okabe and Ito's colours, which the colour-blind can tell apart, but for yellow, which is hard to
# see on white, and with the colour of text for black. A layer's line has one of them, one of two
# kinds of line and a marker of its own.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", _INK)
_STROKES: Final = ("-", "--")
_MARKERS: Final = "osD^v<>pPX*hd8"
_NAMES: Final = get_args(LayerName)


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        name: of its file, without ending.
        title: what it shows.
        description: the same with its figures in words, for who can't see it.
        svg: with stand-ins for the colours of text and background: see `as_file`, `on_page`.
    """

    name: str
    title: str
    description: str
    svg: str


@dataclass(frozen=True)
class Line:
    """One layer's points."""

    layer: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """One layer's results, one for each seed."""

    layer: str
    values: tuple[float, ...]


def as_file(plot: Plot) -> str:
    """The SVG by itself: dark on white, whoever shows it."""
    start = plot.svg.index(">", plot.svg.index("<svg")) + 1
    title = f"<title>{html.escape(plot.title)}</title>"
    whole = plot.svg[:start] + title + plot.svg[start:]
    return whole.replace(_INK, "#1a1d21").replace(_PAPER, "#ffffff")


def on_page(plot: Plot) -> str:
    """The SVG as part of a page: in the colour of its text, on its background."""
    return plot.svg.replace(_INK, "currentColor").replace(f"fill: {_PAPER}", "fill: none")


def require_plots() -> None:
    """Import matplotlib, or refuse to go on.

    Only its SVG backend is used, whatever MPLBACKEND names.

    Raises:
        RegardError: it is not installed, or can't be imported.
    """
    if find_spec("matplotlib") is None:
        raise RegardError(
            "the plots need matplotlib, which is not installed",
            hint="python -m pip install 'regard[compare]'",
        )
    try:
        with _own_backend():
            load("matplotlib.figure", "matplotlib.backends.backend_svg")
    except Exception as error:
        raise RegardError(
            "the plots need matplotlib, which is installed but can't be imported: "
            f"{type(error).__name__}: {error}",
            hint="Try python -c 'import matplotlib.figure'.",
        ) from error


def draw_lines(
    name: str, title: str, x: str, y: str, lines: Sequence[Line], *, linear_x: bool = False
) -> Plot | None:
    """Lines over logarithmic axes, with a legend; None if there are no points."""
    if not any(line.points for line in lines):
        return None

    def fill(axes: "Axes") -> None:
        for line in lines:
            if line.points:
                colour, stroke, marker = _style(line.layer)
                axes.plot(
                    [each[0] for each in line.points],
                    [each[1] for each in line.points],
                    label=line.layer,
                    color=colour,
                    linestyle=stroke,
                    marker=marker,
                    markersize=4.5,
                    linewidth=1.4,
                )
        axes.set_yscale("log")
        if not linear_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(visible=True, which="major", alpha=0.35, color=_LINES)
        axes.legend(
            fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False,
            handlelength=3.2,
        )  # fmt: skip

    ends = [
        f"{line.layer} from {_short(line.points[0][1])} at {line.points[0][0]:,.0f} "
        f"to {_short(line.points[-1][1])} at {line.points[-1][0]:,.0f}"
        for line in lines
        if line.points
    ]
    return Plot(name, title, f"{title}: {y} against {x}. {'; '.join(ends)}.", _svg(title, fill))


def draw_bars(
    name: str, title: str, x: str, bars: Sequence[Bar], *, mark: float, mark_name: str
) -> Plot | None:
    """A bar for each layer's mean in percent, with the spread and each of its values.

    Args:
        name: of the file.
        title: above the bars.
        x: what the values are.
        bars: values from 0 to 1.
        mark: where a line stands across the bars.
        mark_name: what that is.
    """
    if not bars:
        return None
    means = [100 * sum(bar.values) / len(bar.values) for bar in bars]

    def fill(axes: "Axes") -> None:
        places = range(len(bars))
        axes.barh(places, means, height=0.62, color=_COLOURS[0], alpha=0.55)
        for place, bar in zip(places, bars, strict=True):
            low, high = 100 * min(bar.values), 100 * max(bar.values)
            axes.plot([low, high], [place, place], color=_INK, linewidth=1.3)
            axes.plot(
                [100 * value for value in bar.values], [place] * len(bar.values), "|",
                color=_INK, markersize=8, markeredgewidth=1.3,
            )  # fmt: skip
        axes.axvline(100 * mark, color=_COLOURS[1], linestyle="--", linewidth=1.3, label=mark_name)
        axes.set_yticks(places, [bar.layer for bar in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 102)
        axes.set_xlabel(x)
        axes.grid(visible=True, axis="x", alpha=0.35, color=_LINES)
        axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(0.0, -0.12), frameon=False)

    found = [
        f"{bar.layer} {middle:.0f} (seeds {min(bar.values) * 100:.0f} to "
        f"{max(bar.values) * 100:.0f})"
        for bar, middle in zip(bars, means, strict=True)
    ]
    text = f"{title}: {x}. {'; '.join(found)}; {mark_name} {100 * mark:.0f}."
    return Plot(name, title, text, _svg(title, fill))


def _style(layer: str) -> tuple[str, str, str]:
    """The colour, line and marker of a layer: the same in all plots, whoever is beside it."""
    place = _NAMES.index(layer) if layer in _NAMES else len(_NAMES)
    stroke = _STROKES[place // len(_COLOURS) % len(_STROKES)]
    return _COLOURS[place % len(_COLOURS)], stroke, _MARKERS[place % len(_MARKERS)]


def _svg(title: str, fill: Callable[["Axes"], None]) -> str:
    with _own_backend():
        # Not pyplot, which would keep what is drawn.
        import matplotlib as mpl  # noqa: PLC0415 - only this command needs it
        from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context():
        mpl.rcdefaults()  # Not what a matplotlibrc says, such as to ask LaTeX.
        mpl.rcParams.update(
            {
                "axes.edgecolor": _INK,
                "axes.facecolor": _PAPER,
                "axes.labelcolor": _INK,
                "figure.facecolor": _PAPER,
                "svg.fonttype": "path",
                "svg.hashsalt": "regard",
                "text.color": _INK,
                "xtick.color": _INK,
                "ytick.color": _INK,
            }
        )
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        fill(axes)
        axes.set_title(title, fontsize=11)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


@contextmanager
def _own_backend() -> Iterator[None]:
    """Inside the block MPLBACKEND names the one that is used; a wrong name fails the import."""
    chosen = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "svg"
    try:
        yield
    finally:
        if chosen is None:
            del os.environ["MPLBACKEND"]
        else:
            os.environ["MPLBACKEND"] = chosen


def _short(value: float) -> str:
    return f"{value:.3g}"
