"""A comparison as one page to read: compare.html, with its plots in it, and compare.csv."""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from regard.compare.conclusion import caveats, conclusions
from regard.compare.drawing import Plot, as_file, on_page
from regard.compare.plots import plots
from regard.compare.results import Axis, Comparison, Layer, Order, Pass, Quality
from regard.compare.table import count_cell, csv_text, power, size, span
from regard.counts import counted
from regard.durations import duration
from regard.evaluation.page import page

Cell = str | tuple[str, ...]  # notes under what comes first


def write_page(found: Comparison, folder: Path) -> None:
    """Write compare.html, compare.csv and each plot as an SVG file into a folder."""
    (folder / "compare.csv").write_text(csv_text(found), encoding="utf-8", newline="")
    drawn = plots(found)
    for plot in drawn:
        (folder / f"{plot.name}.svg").write_text(as_file(plot), encoding="utf-8")
    (folder / "compare.html").write_text(render_page(found, drawn), encoding="utf-8")


def render_page(found: Comparison, drawn: Sequence[Plot]) -> str:
    """The page as HTML; every text in it is escaped."""
    machine = found.machine
    lead = (
        f"{machine.processor}, {counted(machine.threads, 'thread')}, {machine.memory_gib:g} GiB; "
        f"PyTorch {machine.torch}, regard {machine.regard}, Python {machine.python}, "
        f"{machine.system}. Seed {found.seed}; {duration(found.seconds)} of "
        f"{counted(found.minutes, 'minute')}; {found.made}."
    )
    said = "".join(
        f'<p style="margin: 8px 0">{_text(sentence)}</p>' for sentence in conclusions(found)
    )
    said += "".join(f'<p class="note">{_text(sentence)}</p>' for sentence in caveats(found))
    bars = [plot for plot in drawn if plot.name.startswith("quality")]
    lines = [plot for plot in drawn if plot not in bars]
    body = [
        '<p class="over">regard · comparison</p><h1>Sequence layers, measured</h1>'
        f'<p class="lead">{_text(lead)}</p>',
        _section("What to conclude", f'<div class="card"><div>{said}</div></div>' if said else ""),
        _section(
            "Measured beside theory",
            _table(_HEADS, [_row(layer) for layer in found.layers]),
            "Above what was measured, below theory; a dash where it can't be told, and why. "
            "n: length, d: width, h: heads, w: window, b: what a block sees, r: rank, f: features, "
            "k: width of a convolution, s: state.",
        ),
        _section("Where each pays", _crossings(found), _CROSSING_NOTE),
        _section("How it grows", _figures(lines)),
        _section("All exponents", _exponents(found), _EXPONENTS_NOTE),
        _section("Decoding", _decoding(found), "One token more, and what is kept between tokens."),
        _section(
            "What each learns", _learned(found) + _figures(bars), _learned_note(found)
        ),
        _section("Remarks", _list([f"{layer.name}: {note}" for layer in found.layers
                                   for note in layer.notes])),
        _section("Left out", _list(found.left_out)),
        "<footer>Written by regard. This file is complete: it loads nothing. All figures are in "
        "compare.csv and compare.json.</footer>",
    ]  # fmt: skip
    return page("Sequence layers, measured", "\n".join(part for part in body if part))


_HEADS = (
    "layer", "parameters", "forward, time", "training, time", "training, memory",
    "operations in sequence", "path", "training by d, time",
)  # fmt: skip
_EXPONENTS_NOTE = (
    "Measured, theory's leading term below it, and between which lengths or widths. With the width "
    "the terms of d still weigh as much as those of its square."
)
_CROSSING_NOTE = "The length from which on a layer is below full attention, interpolated."


def _row(layer: Layer) -> list[Cell]:
    theory = layer.theory
    return [
        (layer.title, layer.name if layer.causal else f"{layer.name}, both sides"),
        f"{layer.parameters:,}",
        _time(layer, "forward", "n", theory.time_n),
        _time(layer, "training", "n", theory.time_n),
        _memory(layer, "training", theory.memory_n),
        count_cell(layer.sequential, theory.sequential, "operations"),
        count_cell(layer.path, theory.path, "layers"),
        _time(layer, "training", "d", theory.time_d),
    ]


def _time(layer: Layer, of: Pass, axis: Axis, order: Order) -> Cell:
    curve = layer.curve(of, axis)
    if curve is None:
        return power(None, order)
    return power(curve.time, order, curve.time_note, letter=axis)


def _memory(layer: Layer, of: Pass, order: Order) -> Cell:
    curve = layer.curve(of, "n")
    return power(None, order) if curve is None else power(curve.memory, order, curve.memory_note)


def _exponents(found: Comparison) -> str:
    """Every fitted exponent with its lengths or widths, and theory's below it."""
    passes: tuple[Pass, ...] = ("forward", "training")
    axes: tuple[Axis, ...] = ("n", "d")
    columns = [(of, what, axis) for axis in axes for of in passes for what in ("time", "memory")]
    rows: list[list[Cell]] = []
    for layer in found.layers:
        cells: list[Cell] = []
        for of, what, axis in columns:
            theory = layer.theory
            orders = (theory.time_n, theory.memory_n, theory.time_d, theory.memory_d)
            order = orders[2 * (axis == "d") + (what == "memory")]
            curve = layer.curve(of, axis)
            if curve is None:
                cells.append(("–", f"{axis}^{order.exponent:g}"))
                continue
            fit = curve.time if what == "time" else curve.memory
            reason = curve.time_note if what == "time" else curve.memory_note
            about = f"{fit.first:,} to {fit.last:,}" if fit is not None else reason
            shown = f"{axis}^{fit.exponent:.2f}" if fit is not None else "–"
            cells.append((shown, f"{axis}^{order.exponent:g}", *([about] if about else [])))
        rows.append([layer.name, *cells])
    heads = ["layer", *(f"{of}, {what} by {axis}" for of, what, axis in columns)]
    return _table(heads, rows) if any(layer.curves for layer in found.layers) else ""


def _crossings(found: Comparison) -> str:
    names = list(dict.fromkeys(each.layer for each in found.crossovers))
    columns = list(
        dict.fromkeys((each.baseline, each.of, each.quantity) for each in found.crossovers)
    )
    cells = {
        (each.layer, each.baseline, each.of, each.quantity): each.note
        if each.length is None
        else f"n = {each.length:,}"
        for each in found.crossovers
    }
    heads = ["layer", *(f"{of} {quantity}, {base}" for base, of, quantity in columns)]
    rows: list[list[Cell]] = [
        [name, *(cells.get((name, *column), "-") for column in columns)] for name in names
    ]
    return _table(heads, rows) if rows else ""


def _decoding(found: Comparison) -> str:
    contexts = sorted(
        {point.context for layer in found.layers if layer.decode for point in layer.decode.points}
    )
    rows: list[list[Cell]] = []
    for layer in found.layers:
        if layer.decode is None:
            continue
        points = {point.context: point for point in layer.decode.points}
        cells: list[Cell] = [
            (span(points[n].seconds), size(points[n].state_bytes)) if n in points else "-"
            for n in contexts
        ]
        orders = (layer.theory.decode_time or layer.decode.reason, layer.theory.decode_state)
        rows.append([layer.name, *cells, orders])
    heads = ["layer", *(f"after {n:,}" for n in contexts), "theory: time, state"]
    return _table(heads, rows) if contexts else ""


def _learned(found: Comparison) -> str:
    tasks = list(dict.fromkeys(each.task for layer in found.layers for each in layer.quality))
    rows: list[list[Cell]] = []
    for layer in found.layers:
        by_task = {each.task: each for each in layer.quality}
        notes = [each.note for each in layer.quality if each.note][:1]
        cells = [_quality(by_task[task]) if task in by_task else "-" for task in tasks]
        if by_task:
            rows.append([(layer.name, notes[0]) if notes else layer.name, *cells])
    chances = {each.task: each.chance for layer in found.layers for each in layer.quality}
    heads = ["layer", *(f"{task} (guessing {100 * chances[task]:.0f} %)" for task in tasks)]
    return _table(heads, rows) if rows else ""


def _quality(each: Quality) -> Cell:
    if each.same_as:
        return f"{each.same_as}'s", "the same function, trained once"
    single = ", ".join(f"{100 * value:.0f}" for value in each.accuracies)
    low, high = min(each.steps), max(each.steps)
    steps = counted(low, "step") if low == high else f"{low:,} to {high:,} steps"
    return f"{100 * mean(each.accuracies):.0f} %", f"{single}; {steps}"


def _learned_note(found: Comparison) -> str:
    all_of = [each for layer in found.layers for each in layer.quality]
    if not all_of:
        return ""
    sizes = [each.parameters for each in all_of]
    steps = {count for each in all_of for count in each.steps}
    seconds = max(each.seconds for each in all_of)
    given = counted(steps.pop(), "step") if len(steps) == 1 else f"{seconds:.1f} s"
    return (
        f"Small models of two layers, {min(sizes):,} to {max(sizes):,} parameters, trained for "
        f"{given} each. Mean share of right answers on "
        "examples that are kept from training; each seed's, and the steps that they made."
    )


def _figures(drawn: Sequence[Plot]) -> str:
    figures = [
        f'<div class="chart" role="img" aria-label="{html.escape(plot.description)}">'
        f"{_embedded(plot)}</div>"
        for plot in drawn
    ]
    return (
        f'<div class="charts" style="margin-top: 12px">{"".join(figures)}</div>' if figures else ""
    )


def _embedded(plot: Plot) -> str:
    """The SVG without its prolog, with names of its own, in the colours of the page."""
    svg = on_page(plot)
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{plot.name}-", svg[svg.index("<svg") :])


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="card scroll"><table><tr>{head}</tr>{lines}</table></div>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{_text(cell)}</td>"
    first, *notes = map(_text, cell)
    under = "".join(f'<br><span class="note">{note}</span>' for note in notes)
    return f"<td>{first}{under}</td>"


def _section(title: str, content: str, note: str = "") -> str:
    if not content:
        return ""
    above = f'<p class="lead">{_text(note)}</p>' if note else ""
    return f"<section><h2>{title}</h2>{above}{content}</section>"


def _list(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return (
        f'<div class="card"><ul>{"".join(f"<li>{_text(line)}</li>" for line in lines)}</ul></div>'
    )


def _text(text: str) -> str:
    return re.sub(r"\^(-?\d+(?:\.\d+)?)", r"<sup>\1</sup>", html.escape(text))
