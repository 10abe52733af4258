"""What to say of a layer whose figures are not those of theory, and of what is missing."""

from collections.abc import Sequence

from regard.compare.layers import Subject
from regard.compare.results import Curve, Fit, Layer, Order

# An exponent this near to that of theory needs no explanation.
NEAR = 0.2


def notes_on(subject: Subject, curves: Sequence[Curve]) -> tuple[str, ...]:
    """One sentence for each exponent in n that is not near theory's, and how to read a path."""
    theory, notes = subject.theory, list[str]()
    for curve in curves:
        if curve.axis == "n":
            for what, fit, order in (
                ("time", curve.time, theory.time_n),
                ("memory", curve.memory, theory.memory_n),
            ):
                if fit is not None and abs(fit.exponent - order.exponent) > NEAR:
                    notes.append(f"{curve.of}, {what} in n: {_why(fit, order)}")
    if "steps of 1 layer" in theory.path:
        notes.append(
            "one layer reaches all positions, over a chain of as many steps as lie between them: "
            "what tables call a path of n"
        )
    return tuple(notes)


def left_out(layers: Sequence[Layer]) -> tuple[str, ...]:
    """Where each curve ended, and why."""
    found = []
    for layer in layers:
        for curve in layer.curves:
            if curve.stopped:
                last = [point for point in curve.points if point.seconds is not None][-1:]
                end = (last[0].n if curve.axis == "n" else last[0].d) if last else 0
                reached = f"after {curve.axis} = {end:,}" if end else "before the first point"
                found.append(
                    f"{layer.name}, {curve.of} by {curve.axis}: ended {reached}, {curve.stopped}"
                )
        if layer.decode is not None and layer.causal and layer.decode.reason:
            found.append(f"{layer.name}, decoding: {layer.decode.reason}")
    return tuple(found)


def _why(fit: Fit, order: Order) -> str:
    head = (
        f"n^{fit.exponent:.2f} between n = {fit.first:,} and {fit.last:,}, "
        f"where theory's leading term has n^{order.exponent:g}; "
    )
    if fit.exponent > order.exponent:
        return head + "what no longer fits the caches, and work shared with others, cost extra"
    return head + "terms that grow less, such as the projections, still weigh at these lengths"
