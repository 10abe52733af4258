"""A Performer's error against softmax attention falls with its features, as the page shows."""

import itertools
import re
from pathlib import Path

import pytest
import torch

from regard.compare.features import FEATURES, feature_errors

PAGE = Path(__file__).parents[2] / "docs" / "attention.md"


@pytest.mark.parametrize("size", [0.125, 0.25, 0.35])
def test_the_error_falls_with_the_root_of_the_features(size: float) -> None:
    errors = feature_errors(size=size)
    found = [errors[count] for count in FEATURES]
    assert found == sorted(found, reverse=True)
    for fewer, more in zip(FEATURES[2:], FEATURES[4:], strict=False):  # four times as many
        assert errors[fewer] / errors[more] == pytest.approx(2, rel=0.25)


def test_larger_vectors_need_more_features() -> None:
    errors = [feature_errors(size=size, features=(256,))[256] for size in (0.125, 0.25, 0.5, 1.0)]
    assert all(more > 2 * less for less, more in itertools.pairwise(errors))


def test_the_page_shows_what_is_computed() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0\.25|0\.5|1\.0) \| (.*) \|$", text, re.MULTILINE)
    assert [size for size, _ in rows] == ["0.25", "0.5", "1.0"]
    for size, cells in rows:
        found = feature_errors(size=float(size), features=(8, 32, 128, 512, 2048))
        shown = [float(cell) for cell in cells.split(" | ")]
        assert list(found.values()) == pytest.approx(shown, rel=0.05)


def test_torch_s_generator_stays_as_it_was() -> None:
    state = torch.get_rng_state()
    feature_errors(size=0.5, features=(8,), draws=1)
    assert torch.equal(torch.get_rng_state(), state)
