"""What to conclude from a comparison, in two plain sentences."""

from regard.compare.results import Comparison, Layer, Pass


def conclusions(found: Comparison) -> list[str]:
    """One sentence on what is fastest where, one on what attention buys for its price."""
    return [sentence for sentence in (_fastest(found), _price(found)) if sentence]


def _fastest(found: Comparison) -> str:
    full = [layer for layer in found.layers if layer.kind == "full"]
    # What sees both sides can't stand in every place that these can.
    cures = [layer for layer in found.layers if layer.kind != "full" and layer.causal]
    times = {layer.name: _times(layer, "training") for layer in found.layers}
    known = [set(times[layer.name]) for layer in full if times[layer.name]]
    if not known or not cures:
        return ""
    lengths = sorted(set.union(*known))
    wins = []
    for n in lengths:
        best = min(times[layer.name][n] for layer in full if n in times[layer.name])
        rivals = [(times[cure.name][n], cure.name) for cure in cures if n in times[cure.name]]
        if rivals:
            wins.append((n, best, *min(rivals)))
    if not wins:
        return ""
    n, best, time, name = wins[-1]
    if time >= best:
        return (
            f"In training on this machine full attention, in the faster of its forms, beats every "
            f"other layer at n = {n:,}, the longest that it and another were measured at."
        )
    # From the last length on before which full attention was still ahead.
    behind = max(
        (place for place, (_, best, time, _) in enumerate(wins) if time >= best), default=-1
    )
    return (
        f"In training on this machine some layer beats full attention, in the faster of its forms, "
        f"from n = {wins[behind + 1][0]:,} on; at n = {n:,}, the longest that it and another were "
        f"measured at, {name} is the fastest, {best / time:.1f} times as fast."
    )


def _price(found: Comparison) -> str:
    by_name = {layer.name: layer for layer in found.layers}
    plain = by_name.get("plain")
    curve = plain.curve("training", "n") if plain is not None else None
    if plain is None or curve is None or curve.time is None or plain.sequential is None:
        return ""
    powers = f"n^{curve.time.exponent:.1f} in time"
    if curve.memory is not None:
        powers += f" and n^{curve.memory.exponent:.1f} in memory"
    count = plain.sequential.counts[-1]
    sentence = (
        f"For this price ({powers}) attention joins all positions in one layer, by "
        f"{count.value} operations one after the other at any length"
    )
    recurrent = by_name.get("lstm") or by_name.get("rnn") or by_name.get("gru")
    if recurrent is not None and recurrent.sequential is not None:
        chain = recurrent.sequential.counts[-1]
        sentence += f", where {recurrent.name} takes {chain.value:,} for n = {chain.n:,}"
    far = by_name.get("window") or by_name.get("convolution")
    if far is not None and far.path is not None and far.path.growth == "n":
        sentence += f" and {far.name} more layers with every place"
    return sentence + "."


def _times(layer: Layer, of: Pass) -> dict[int, float]:
    curve = layer.curve(of, "n")
    points = curve.points if curve is not None else ()
    return {point.n: point.seconds for point in points if point.seconds}
