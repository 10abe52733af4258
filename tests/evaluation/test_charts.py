"""Charts: every point where it belongs, round numbers on the axes, and the same in words."""

import html
import json
import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.chart import (
    HEIGHT,
    WIDTH,
    Chart,
    Series,
    draw,
    short_count,
    short_rate,
    ticks,
)

NUMBERS = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6)


def chart(*series: Series, **settings: object) -> str:
    return draw(Chart("Loss", series, show=lambda value: f"{value:.3g}", **settings))


def hovered(figure: str) -> list[dict]:
    found = re.search(r'data-series="([^"]*)"', figure)
    assert found
    return json.loads(html.unescape(found[1]))


@given(NUMBERS, NUMBERS)
def test_ticks_are_evenly_spaced_few_and_cover_all_values(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    room = 1e-6 * max(abs(low), abs(high), 1e-9)
    assert found[0] <= low + room
    assert found[-1] >= high - room
    gaps = [right - left for left, right in pairwise(found)]
    assert all(math.isclose(gap, gaps[0], rel_tol=1e-3) for gap in gaps)


@given(st.lists(st.tuples(st.integers(0, 10**6), NUMBERS), min_size=1, max_size=30))
def test_every_point_lies_inside_and_higher_values_lie_higher(
    points: list[tuple[int, float]],
) -> None:
    points = sorted(dict(points).items())
    figure = chart(Series("training", points))
    ElementTree.fromstring(figure.replace(" hidden>", ">"))
    places = hovered(figure)[0]["points"]
    assert len(places) == len(points)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y, *_ in places)
    assert [x for x, *_ in places] == sorted(x for x, *_ in places)
    by_value = sorted(range(len(points)), key=lambda at: points[at][1])
    heights = [places[at][1] for at in by_value]
    assert heights == sorted(heights, reverse=True)


def test_what_is_hovered_is_said_in_words() -> None:
    figure = chart(Series("training", [(10, 5.0), (2000, 1.25)]), Series("none", []))
    (only,) = hovered(figure)
    assert [point[2:] for point in only["points"]] == [["step 10", "5"], ["step 2,000", "1.25"]]
    assert 'aria-label="Loss: training from 5 at step 10 to 1.25 at step 2,000"' in figure
    assert "<b>1.25</b>" in figure


def test_a_chart_without_points_is_left_out() -> None:
    assert chart(Series("training", [])) == ""


def test_a_single_point_is_seen() -> None:
    assert 'class="dot c1"' in chart(Series("training", [(5, 1.0)]))


def test_a_long_series_is_thinned_and_the_note_says_so() -> None:
    figure = chart(Series("training", [(step, 1.0) for step in range(6000)]), note="Per token.")
    assert len(hovered(figure)[0]["points"]) == 300
    assert "Per token. Each point is the mean of 20." in figure


def test_marks_stand_at_their_step_with_their_words() -> None:
    figure = chart(Series("a", [(0, 1.0), (10, 2.0)]), marks=[(5, "resumed"), (99, "outside")])
    assert "<title>resumed</title>" in figure
    assert "outside" not in figure


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, "0"), (950, "950"), (1500, "1.5k"), (63_082_496, "63.1M"), (2e9, "2G"), (0.5, "0.5")],
)
def test_counts_are_short(number: float, written: str) -> None:
    assert short_count(number) == written


def test_rates_are_short() -> None:
    assert [short_rate(rate) for rate in (0, 0.0015, 6.988e-4, 1)] == [
        "0",
        "1.5e-3",
        "6.99e-4",
        "1e0",
    ]


def test_ticks_of_values_next_to_nothing_are_still_apart() -> None:
    found = ticks(0.0, 3e-30)
    assert found[0] == 0
    assert found[-1] >= 3e-30
    assert len(set(found)) == len(found)
