"""A comparison goes to JSON and back, and what is no comparison is refused."""

from pathlib import Path

import pytest
from comparisons import example

from regard.compare.results import Comparison, read_comparison
from regard.errors import DataError


def test_a_comparison_comes_back_from_json_as_it_was(tmp_path: Path) -> None:
    found = example()
    path = tmp_path / "compare.json"
    path.write_text(found.to_json(), encoding="utf-8")
    assert read_comparison(path) == found


def test_a_layer_and_a_curve_are_found_by_name() -> None:
    layer = example().layer("window")
    curve = layer.curve("training", "n")
    assert curve is not None
    assert (curve.of, curve.axis) == ("training", "n")
    assert layer.curve("training", "d") is None
    with pytest.raises(KeyError):
        example().layer("absent")


def test_what_is_no_comparison_is_refused_with_its_place(tmp_path: Path) -> None:
    text = example().to_json()
    with pytest.raises(DataError, match="expected a comparison of format 1: the file: "):
        Comparison.from_json("{")
    with pytest.raises(DataError, match="format: "):
        Comparison.from_json(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match="seed: "):
        Comparison.from_json(text.replace('"seed": 7', '"seed": "7"'))
    with pytest.raises(DataError, match="No such file"):
        read_comparison(tmp_path / "absent.json")
