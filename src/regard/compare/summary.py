"""A comparison in a few lines of text: what grew how, beside theory."""

import textwrap

from regard.compare.conclusion import caveats, conclusions
from regard.compare.results import Comparison, Counted, Fit, Layer, Order, Pass, Quantity
from regard.counts import counted as number_of

_HEADS = (
    "layer", "forward time", "training time", "training memory", "sequential", "path",
    "faster from",
)  # fmt: skip


def summary(found: Comparison) -> str:
    """A table of exponents in n, one line a layer, measured first and theory's in brackets."""
    rows = [_HEADS, *(_row(found, layer) for layer in found.layers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    machine = found.machine
    return "\n".join(
        [
            f"{machine.processor}, {number_of(machine.threads, 'thread')}, torch {machine.torch}, "
            f"d = {found.d_model}, seed {found.seed}, {found.seconds:.0f} s",
            "powers of n, measured (theory), - where the page says why there is none; faster: a "
            "training step beside plain attention's",
            "",
            *lines,
        ]
    )


def conclusion(found: Comparison, *, width: int = 96) -> str:
    """What to conclude and what can't be told, as paragraphs."""
    said = [*conclusions(found), *caveats(found)]
    return "\n\n".join(textwrap.fill(sentence, width) for sentence in said)


def _row(found: Comparison, layer: Layer) -> tuple[str, ...]:
    theory = layer.theory
    return (
        layer.name,
        _power(_fit(layer, "forward", "time"), theory.time_n),
        _power(_fit(layer, "training", "time"), theory.time_n),
        _power(_fit(layer, "training", "memory"), theory.memory_n),
        _growth(layer.sequential),
        _path(layer.path),
        _faster(found, layer),
    )


def _fit(layer: Layer, of: Pass, quantity: Quantity) -> Fit | None:
    curve = layer.curve(of, "n")
    if curve is None:
        return None
    return curve.time if quantity == "time" else curve.memory


def _power(fit: Fit | None, order: Order) -> str:
    measured = "-" if fit is None else f"{fit.exponent:.2f}"
    return f"{measured} ({order.exponent:g})"


def _growth(counted: Counted | None) -> str:
    return "-" if counted is None or counted.growth is None else counted.growth


def _path(counted: Counted | None) -> str:
    if counted is None or not counted.counts:
        return "-"
    last = counted.counts[-1]
    return f"{number_of(last.value, 'layer')} for {last.n}"


def _faster(found: Comparison, layer: Layer) -> str:
    if layer.kind == "full":
        return ""
    for each in found.crossovers:
        wanted = (each.layer, each.baseline, each.of, each.quantity)
        if wanted == (layer.name, "plain", "training", "time"):
            return f"n = {each.length:,}" if each.length is not None else each.note
    return "-"
