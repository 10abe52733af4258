"""IBM model 1 is what its equations say, however much text is looked at together."""

import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.text import lexicon as lexicons
from regard.text.arrays import Side, SideWriter
from regard.text.lexicon import Lexicon, learn_lexicon, shortlist_of

Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]


def learned(folder: Path, pairs: Pairs, **options: Any) -> Lexicon:
    """What is learned of pairs of ids below 9."""
    sides = []
    for number, name in enumerate(("source", "target")):
        writer = SideWriter(folder, name, "uint16")
        writer.write([pair[number] for pair in pairs])
        writer.close()
        sides.append(Side(folder, name, "uint16"))
    return learn_lexicon(sides[0], sides[1], sources=9, targets=9, **options)


def table(found: Lexicon) -> dict[tuple[int, int], float]:
    keys = zip(found.source.tolist(), found.target.tolist(), strict=True)
    return dict(zip(keys, found.probability.tolist(), strict=True))


def test_one_round_by_hand(tmp_path: Path) -> None:
    # a | x and a b | x y. All begins even, so the x of the first pair comes half from a, half from
    # nothing; x and y of the second come to a third from a, from b and from nothing.
    a, b, x, y = 0, 1, 5, 6
    found = table(learned(tmp_path, [([a], [x]), ([a, b], [x, y])], rounds=1))
    half, third = Fraction(1, 2), Fraction(1, 3)
    assert found == pytest.approx(
        {
            (a, x): float((half + third) / (half + third + third)),
            (a, y): float(third / (half + third + third)),
            (b, x): 0.5,
            (b, y): 0.5,
        }
    )


def test_the_translations_come_out(tmp_path: Path) -> None:
    the, house, book, one = range(4)
    das, haus, buch, ein = 5, 6, 7, 8
    pairs = [([the, house], [das, haus]), ([the, book], [das, buch]), ([one, book], [ein, buch])]
    found = table(learned(tmp_path, pairs, rounds=40))
    for word, translation in ((the, das), (house, haus), (book, buch), (one, ein)):
        row = {target: value for (source, target), value in found.items() if source == word}
        assert max(row, key=row.__getitem__) == translation
        assert sum(row.values()) == pytest.approx(1)


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_it_is_what_plain_code_finds(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(3)
    pairs = [
        tuple([draw.randrange(9) for _ in range(draw.randrange(6))] for _ in range(2))
        for _ in range(30)
    ]
    monkeypatch.setattr(lexicons, "_CHUNK", chunk)
    found = learned(tmp_path, pairs, rounds=3)  # type: ignore[arg-type]
    wanted = plain(pairs, rounds=3)  # type: ignore[arg-type]
    assert table(found) == pytest.approx(
        {key: value for key, value in wanted.items() if key[0] < 9}
    )
    full = [pair for pair in pairs if all(pair)]
    assert found.pairs == len(full)
    seen = np.bincount([token for _, target in full for token in target], minlength=9)
    assert found.counts.tolist() == seen.tolist()


def plain(pairs: Pairs, *, rounds: int) -> dict[tuple[int, int], float]:
    """Brown et al. 1993, section 4.1, token by token; 9 stands for no source token."""
    full = [([9, *source], target) for source, target in pairs if source and target]
    met = {(one, other) for source, target in full for one in source for other in target}
    chance = {key: 1 / sum(other[0] == key[0] for other in met) for key in met}
    for _ in range(rounds):
        expected: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in full:
            for other in target:
                together = sum(chance[one, other] for one in source)
                for one in source:
                    expected[one, other] += chance[one, other] / together
        totals: dict[int, float] = defaultdict(float)
        for (one, _), value in expected.items():
            totals[one] += value
        chance = {key: value / totals[key[0]] for key, value in expected.items()}
    return chance


def test_of_more_text_than_fits_the_shortest_and_some_of_all_others_are_taken(
    tmp_path: Path,
) -> None:
    pairs = []
    for number in range(40):
        pairs += [([0], [number % 4])] * 4 + [([1] * 8, [4 + number // 10] * 8)]
    found = learned(tmp_path, pairs, most=640)  # a short pair has 2 meetings, a long one 72
    assert found.pairs == 160 + 4
    assert found.counts.tolist() == [40] * 4 + [8] * 4 + [0]


def test_nothing_is_learned_from_what_is_left_out(tmp_path: Path) -> None:
    pairs = [([0], [5]), ([1], [6]), ([2], [7])]
    found = learned(tmp_path, pairs, without=[1])
    assert (found.pairs, found.counts.tolist()) == (2, [0, 0, 0, 0, 0, 1, 0, 1, 0])
    assert 1 not in found.source.tolist()


def test_a_shortlist_has_the_likeliest_the_most_frequent_and_the_special() -> None:
    made = shortlist_of(
        Lexicon(
            source=np.array([0, 0, 0, 2, 2]),
            target=np.array([3, 4, 5, 3, 6]),
            probability=np.array([0.2, 0.3, 0.5, 1.0, 0.0]),
            counts=np.array([0, 0, 9, 0, 9, 0, 10, 0]),
            pairs=1,
        ),
        sources=4,
        per_token=2,
        frequent=2,
        special=[0, 7],
        itself=False,
    )
    rows = [made.tokens[slice(*made.offsets[row : row + 2])].tolist() for row in range(4)]
    assert rows == [[4, 5], [], [3], []]
    assert made.always.tolist() == [0, 2, 6, 7]
    assert made.allowed([0, 0, 3], [1]).tolist() == [0, 1, 2, 4, 5, 6, 7]


def test_a_token_may_be_copied_where_both_sides_have_one_vocabulary() -> None:
    made = shortlist_of(
        Lexicon(
            source=np.array([1]),
            target=np.array([2]),
            probability=np.array([1.0]),
            counts=np.array([0, 0, 5]),
            pairs=1,
        ),
        sources=3,
        per_token=1,
        frequent=0,
        special=[],
        itself=True,
    )
    rows = [made.tokens[slice(*made.offsets[row : row + 2])].tolist() for row in range(3)]
    assert rows == [[0], [1, 2], [2]]
