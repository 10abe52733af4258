"""Which tokens translate which, learned from pairs of sentences by IBM's model 1."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from regard.text.arrays import Indices, Integers, Side
from regard.text.shortlist import Shortlist

# Meetings of a source token and a target token that are looked at, over all pairs of sentences:
# each takes 4 bytes of disk, and some 30 of memory where the two have not met before.
MOST_MEETINGS = 2**26
# What is looked at together.
_CHUNK = 2**21
# Longer sentences say little for what they cost.
_LONGEST = 128
ROUNDS = 5


@dataclass(frozen=True)
class Lexicon:
    """How likely a target token is the translation of a source token.

    Entry i says so of `source[i]` and `target[i]`, and those of a source token follow one another;
    they sum to 1. `counts` says how often each target token occurs, `pairs` is how many pairs of
    sentences were looked at.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    probability: NDArray[np.float64]
    counts: NDArray[np.int64]
    pairs: int


def learn_lexicon(
    source: Side,
    target: Side,
    *,
    sources: int,
    targets: int,
    rounds: int = ROUNDS,
    most: int = MOST_MEETINGS,
    without: Collection[int] = (),
    aside: Path | None = None,
) -> Lexicon:
    """Learn from line-aligned sentences, by expectation-maximisation from equal chances on.

    Every target token of a sentence is taken to come from one of its source tokens, or from none
    of them, each place as likely as another. Memory is bounded by `most`, not by the text.

    Args:
        source: the sentences.
        target: their translations.
        sources: how many source ids there are.
        targets: how many target ids there are.
        rounds: how often all pairs are looked at.
        most: how many meetings of two tokens at most.
        without: pairs that are not looked at.
        aside: a folder for a file of 4 bytes a meeting, which has no name and ends with the
            process; left out, the system's own.

    Source: Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1.
    """
    chosen = _choose(source, target, most, without)
    counts = np.zeros(targets, np.int64)

    def meetings() -> Iterator[_Meetings]:
        return _meetings(source, target, chosen, sources, targets)

    keys = _all_keys(meetings())
    rows = (keys // targets).astype(np.int32)
    probability = 1.0 / np.bincount(rows, minlength=sources + 1)[rows]
    with TemporaryFile(prefix="regard-", dir=aside) as places:
        widths = []
        for each in meetings():
            counts += np.bincount(each.targets, minlength=targets)
            widths.append(each.widths)
            places.write(_places(keys, each.keys).data)
        for _ in range(rounds):
            places.seek(0)
            expected = np.zeros(len(keys))
            for width in widths:
                place = np.fromfile(places, np.int32, int(width.sum()))
                weights = probability[place]
                starts = np.cumsum(width) - width
                weights /= np.repeat(np.add.reduceat(weights, starts), width)
                np.add.at(expected, place, weights)
            totals = np.bincount(rows, expected, minlength=sources + 1)
            probability = expected
            probability /= np.maximum(totals, 1e-300)[rows]
    real = rows < sources  # without what came from no source token
    return Lexicon(
        rows[real].astype(np.int64),
        keys[real] % targets,
        probability[real],
        counts,
        pairs=len(chosen),
    )


def shortlist_of(
    lexicon: Lexicon,
    *,
    sources: int,
    per_token: int,
    frequent: int,
    special: Collection[int],
    itself: bool,
) -> Shortlist:
    """A shortlist of the likeliest translations; of equals the lower id is the likelier one.

    Args:
        lexicon: what was learned.
        sources: how many source ids there are.
        per_token: how many target tokens go with a source token, at most.
        frequent: how many of the most frequent target tokens go with every sentence.
        special: more that do.
        itself: whether a source token may also be copied: both sides have one vocabulary.
    """
    order = np.lexsort((lexicon.target, -lexicon.probability, lexicon.source))
    rows, tokens = lexicon.source[order], lexicon.target[order]
    first = np.searchsorted(rows, np.arange(sources))
    best = (np.arange(len(rows)) - first[rows] < per_token) & (lexicon.probability[order] > 0)
    rows, tokens = rows[best], tokens[best]
    targets = len(lexicon.counts)
    if itself:
        both = np.arange(sources)
        rows, tokens = np.concatenate([rows, both]), np.concatenate([tokens, both])
    keys = np.unique(rows * targets + tokens)
    common = np.argsort(-lexicon.counts, kind="stable")[:frequent]
    common = common[lexicon.counts[common] > 0]
    return Shortlist(
        offsets=np.searchsorted(keys, np.arange(sources + 1) * targets).astype(np.int64),
        tokens=(keys % targets).astype(np.int32),
        always=np.unique([*common.tolist(), *special]).astype(np.int32),
        targets=targets,
    )


@dataclass(frozen=True)
class _Meetings:
    """Every target token of some pairs with each that it may come from.

    `keys` name the two tokens, source times the number of targets plus target; those of one target
    token follow one another, `widths` many. `targets` are these target tokens.
    """

    keys: NDArray[np.int64]
    widths: NDArray[np.int64]
    targets: Integers


def _choose(source: Side, target: Side, most: int, without: Collection[int]) -> Indices:
    """The pairs to look at: neither side empty nor very long.

    Where they are too many, the shortest of them, which say most for what they cost, and of the
    others some, evenly spread.
    """
    every = np.arange(len(source.offsets.array) - 1)
    lengths, their = source.lengths(every), target.lengths(every)
    fit = (lengths > 0) & (their > 0) & (lengths <= _LONGEST) & (their <= _LONGEST)
    fit[list(without)] = False
    chosen = every[fit]
    costs = (lengths[fit] + 1) * their[fit]
    if int(costs.sum()) <= most:
        return chosen
    order = np.argsort(costs, kind="stable")
    short = int(np.searchsorted(np.cumsum(costs[order]), most // 2, side="right"))
    longer = np.sort(order[short:])
    # Every n-th, where n need not be whole.
    kept = int(len(longer) * (most - most // 2) / int(costs[longer].sum()))
    spread = longer[np.arange(kept) * len(longer) // max(kept, 1)]
    return np.sort(chosen[np.concatenate([order[:short], spread])])


def _meetings(
    source: Side, target: Side, chosen: Indices, sources: int, targets: int
) -> Iterator[_Meetings]:
    """The meetings of the chosen pairs, some pairs at a time."""
    if not len(chosen):
        return
    costs = (source.lengths(chosen) + 1) * target.lengths(chosen)
    part = np.cumsum(costs) // _CHUNK
    for piece in np.split(chosen, np.flatnonzero(np.diff(part)) + 1):
        ids, widths = source.gather(piece)
        their, heights = target.gather(piece)
        # No source token, which comes first, and then the sentence's own.
        starts = np.cumsum(widths) - widths
        with_none = np.insert(ids.astype(np.int64), starts, sources)
        first = starts + np.arange(len(piece))
        width_of = np.repeat(widths + 1, heights)
        first_of = np.repeat(first, heights)
        ends = np.cumsum(width_of)
        shift = np.repeat(first_of - (ends - width_of), width_of)
        from_ids = with_none[shift + np.arange(len(shift))]
        keys = from_ids * targets + np.repeat(their.astype(np.int64), width_of)
        yield _Meetings(keys, width_of, their)


def _all_keys(meetings: Iterator[_Meetings]) -> NDArray[np.int64]:
    """The keys of all meetings, in order and each once."""
    keys = np.empty(0, np.int64)
    fresh: list[NDArray[np.int64]] = []
    for each in meetings:
        fresh.append(_each_once(each.keys))
        # Not each time: all keys are sorted then.
        if sum(map(len, fresh)) > max(len(keys), _CHUNK):
            keys = _each_once(np.concatenate([keys, *fresh]))
            fresh = []
    return _each_once(np.concatenate([keys, *fresh]))


def _places(keys: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.int32]:
    """Where in the sorted keys each of some is; sorted first, since far leaps are slow."""
    order = np.argsort(some)
    places = np.empty(len(some), np.int32)
    places[order] = np.searchsorted(keys, some[order])
    return places


def _each_once(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """In order, without repeats; np.unique looks each up in a table, which is slow for so many."""
    ordered = np.sort(keys)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
