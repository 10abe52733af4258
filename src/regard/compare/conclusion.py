"""What to conclude from a comparison, in two plain sentences, and what it can't tell."""

from statistics import mean
from typing import Final

from regard.compare.results import Comparison, Layer, Pass, Quality
from regard.compare.scaling import FEWEST
from regard.counts import counted

# Full attention and a layer are as fast as each other within this.
_ALIKE: Final = 1.05
# A task is learned where every seed gets this share right, begun where each is this far above
# guessing.
LEARNED: Final = 0.9
_BEGUN: Final = 0.1
# Runs of fewer steps tell how a layer begins, and no more.
FEW_STEPS: Final = 300
# What curves must reach to show layers where they are made for.
_LONG: Final = 4096


def conclusions(found: Comparison) -> list[str]:
    """One sentence on what is fastest where, one on what attention buys and each layer learns."""
    return [sentence for sentence in (_fastest(found), _bought(found)) if sentence]


def caveats(found: Comparison) -> list[str]:
    """What there was too little time for, as far as it bears on the conclusions."""
    said = []
    short = [layer.name for layer in found.layers if len(_times(layer, "training")) < FEWEST]
    if short:
        names = _names(short) if len(short) < len(found.layers) else "any layer"
        said.append(
            f"Fewer than three lengths were measured of {names}: no exponents, and no length from "
            "which it pays."
        )
    longest = max((max(_times(layer, "training"), default=0) for layer in found.layers), default=0)
    if 0 < longest < _LONG:
        said.append(
            f"No curve goes beyond n = {longest:,}, and it is at longer ones that layers part."
        )
    steps = [each for layer in found.layers for one in layer.quality for each in one.steps]
    if not steps:
        said.append("No time was left for the small models, and so nothing is said of learning.")
    if steps and min(steps) < FEW_STEPS:
        said.append(
            f"The small models made {_steps(steps)}: that shows who begins to learn, not who can."
        )
    if said:
        said.append(f"A longer time than --minutes {found.minutes:g} would tell more.")
    return said


def _fastest(found: Comparison) -> str:
    full = [layer for layer in found.layers if layer.kind == "full"]
    # What sees both sides can't stand in every place that these can.
    cures = [layer for layer in found.layers if layer.kind != "full" and layer.causal]
    if not full or not cures:
        return ""
    times = {layer.name: _times(layer, "training") for layer in found.layers}
    wins = []
    for n in sorted(set().union(*(times[layer.name] for layer in full))):
        best = min(times[layer.name][n] for layer in full if n in times[layer.name])
        rivals = [(times[cure.name][n], cure.name) for cure in cures if n in times[cure.name]]
        if rivals:
            wins.append((n, best, *min(rivals)))
    if len(wins) < FEWEST:
        at = ", ".join(f"{n:,}" for n, *_ in wins)
        return (
            "The time was too short to tell which layer is the fastest where: full attention and "
            f"another were timed at {f'n = {at} only' if at else 'no common length'}, and three "
            "lengths are the least."
        )
    n, best, time, name = wins[-1]
    head = "In training on this machine full attention, in the faster of its forms,"
    if time * _ALIKE >= best:
        alike = "is as fast as any other layer" if time < best else "beats every other layer"
        return f"{head} {alike} at n = {n:,}, the longest that it and another were timed at."
    # From the last length on before which full attention was still ahead.
    behind = max(
        (place for place, (_, best, time, _) in enumerate(wins) if time >= best), default=-1
    )
    ahead = wins[behind][0] if behind >= 0 else 0
    until = f"is ahead up to n = {ahead:,}" if ahead else "is behind at every length"
    return (
        f"{head} {until}; at n = {n:,}, the longest that it and another were timed at, {name} is "
        f"the fastest, {best / time:.1f} times as fast{_memory(found, full, name, n)}."
    )


def _memory(found: Comparison, full: list[Layer], name: str, n: int) -> str:
    """The memory of the fastest layer beside full attention's least, if both are known."""
    ours = _peaks(found.layer(name)).get(n)
    theirs = [_peaks(layer)[n] for layer in full if n in _peaks(layer)]
    if not ours or not theirs:
        return ""
    ratio = min(theirs) / ours
    return f", with {f'1/{ratio:.0f} of' if ratio > 1.5 else f'{1 / ratio:.1f} times'} the memory"


def _bought(found: Comparison) -> str:
    parts = [part for part in (_price(found), _learned(found)) if part]
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _price(found: Comparison) -> str:
    by_name = {layer.name: layer for layer in found.layers}
    plain = by_name.get("plain")
    if plain is None or plain.sequential is None or not plain.sequential.counts:
        return ""
    count = plain.sequential.counts[-1]
    curve = plain.curve("training", "n")
    powers = [
        f"n^{fit.exponent:.1f} in {what}"
        for what, fit in (
            ("time", curve.time if curve is not None else None),
            ("memory", curve.memory if curve is not None else None),
        )
        if fit is not None
    ]
    clause = f"for {' and '.join(powers)} " if powers else ""
    clause += (
        f"attention joins all places in one layer, by {counted(count.value, 'operation')} "
        "one after the other at any length"
    )
    recurrent = by_name.get("lstm") or by_name.get("rnn") or by_name.get("gru")
    if recurrent is not None and recurrent.sequential is not None:
        chain = recurrent.sequential.counts[-1]
        clause += f", where {recurrent.name} takes {chain.value:,} for n = {chain.n:,}"
    far = by_name.get("window") or by_name.get("convolution")
    if far is not None and far.path is not None and far.path.growth == "n":
        clause += f" and {far.name} more layers with every place"
    return clause


def _learned(found: Comparison) -> str:
    """Which layer learns which task; of two forms of one function the first stands for both."""
    by_task: dict[str, list[tuple[str, Quality]]] = {}
    for layer in found.layers:
        for quality in layer.quality:
            if not quality.same_as:
                by_task.setdefault(quality.task, []).append((layer.name, quality))
    if not by_task:
        return ""
    steps = [each for runs in by_task.values() for _, run in runs for each in run.steps]
    able = {
        task: [name for name, run in runs if min(run.accuracies) >= LEARNED]
        for task, runs in by_task.items()
    }
    if min(steps) < FEW_STEPS and not any(able.values()):
        begun = [_begun(task, runs) for task, runs in by_task.items()]
        clauses = ["were too few for any layer to learn a small task", *filter(None, begun)]
        return f"{_steps(steps)} {', '.join(clauses)}"
    clauses = [
        f"{task} is learned by {_names(able[task])}"
        if able[task]
        else _begun(task, runs) or f"{task} is learned by none"
        for task, runs in by_task.items()
    ]
    return f"in {_steps(steps)} {', '.join(clauses)}"


def _begun(task: str, runs: list[tuple[str, Quality]]) -> str:
    """The best layer at a task that none has learned; "" if it may have guessed."""
    name, run = max(runs, key=lambda each: mean(each[1].accuracies))
    if min(run.accuracies) < run.chance + _BEGUN:
        return ""
    return (
        f"{task} went best with {name} ({100 * mean(run.accuracies):.0f} % right, "
        f"{100 * run.chance:.0f} % by guessing)"
    )


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _steps(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return counted(low, "step") if low == high else f"{low:,} to {high:,} steps"


def _times(layer: Layer, of: Pass) -> dict[int, float]:
    curve = layer.curve(of, "n")
    points = curve.points if curve is not None else ()
    return {point.n: point.seconds for point in points if point.seconds}


def _peaks(layer: Layer) -> dict[int, int]:
    curve = layer.curve("training", "n")
    points = curve.points if curve is not None else ()
    return {point.n: point.peak_bytes for point in points if point.peak_bytes}
