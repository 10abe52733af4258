"""The page, the plots and the table of a comparison hold what was found, and nothing else."""

import csv
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from comparisons import example

from regard.compare import plots as plots_module
from regard.compare.conclusion import conclusions
from regard.compare.page import render_page, write_page
from regard.compare.plots import plots, require_plots
from regard.compare.results import Comparison
from regard.compare.table import csv_text, size, span
from regard.errors import RegardError


def test_the_page_the_table_and_every_plot_are_written(tmp_path: Path) -> None:
    write_page(example(), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"compare.html", "compare.csv", "training-time-by-n.svg", "path.svg"} <= names
    for path in tmp_path.glob("*.svg"):
        assert ET.fromstring(path.read_text(encoding="utf-8")).tag.endswith("svg")
    text = (tmp_path / "compare.html").read_text(encoding="utf-8")
    for layer in example().layers:
        assert layer.title in text
        assert f"{layer.name}: a remark" in text
    for wanted in (
        "a processor",
        "n<sup>2</sup> d",
        "n<sup>1.00</sup>",
        "n = 1,500",
        "no time left",
        "75 %",
        "sees both sides",
        "Seed 7",
    ):
        assert wanted in text, wanted


def test_the_page_loads_nothing_and_has_every_name_once() -> None:
    drawn = plots(example())
    text = render_page(example(), drawn)
    assert not re.findall(r'(?:src|href)="(?!#)', re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    for used in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text):
        assert "".join(used) in names


def test_text_of_a_comparison_is_text_on_the_page() -> None:
    layer = example().layers[0].model_copy(update={"title": "<script>x</script>"})
    text = render_page(example().model_copy(update={"layers": (layer,)}), [])
    assert "&lt;script&gt;x" in text
    assert "<script>x" not in text


def test_the_table_has_a_line_for_every_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(example()))))
    timed = [row for row in rows if row["quantity"] == "seconds" and row["what"] == "training"]
    assert [row["n"] for row in timed if row["layer"] == "window"] == [
        "128", "256", "512", "1024", "2048",
    ]  # fmt: skip
    assert timed[4]["value"] == ""
    assert timed[4]["note"] == "more memory than there is"
    kinds = {row["what"] for row in rows}
    assert {"decode", "path", "operations in sequence", "copying", "gradient"} <= kinds
    assert [row["value"] for row in rows if row["quantity"] == "crossover"] == ["1500", ""]


def test_plots_of_the_same_figures_are_the_same_to_the_byte() -> None:
    assert [plot.svg for plot in plots(example())] == [plot.svg for plot in plots(example())]


def test_a_comparison_with_little_in_it_still_has_a_page(tmp_path: Path) -> None:
    bare = [
        layer.model_copy(
            update={
                "curves": (),
                "sequential": None,
                "path": None,
                "decode": None,
                "quality": (),
                "gradients": None,
                "notes": (),
            }
        )
        for layer in example().layers
    ]
    found = example().model_copy(update={"layers": tuple(bare), "crossovers": (), "left_out": ()})
    write_page(found, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"compare.html", "compare.csv"}
    assert conclusions(found) == []


def test_the_conclusion_says_from_where_on_another_layer_wins() -> None:
    first, second = conclusions(example())
    assert "from n = 128 on; at n = 1,024," in first, first
    assert first.endswith("window is the fastest, 1024.0 times as fast."), first
    assert second.startswith("For this price (n^2.0 in time and n^2.0 in memory) attention joins")
    slow = [
        layer
        if layer.kind == "full"
        else layer.model_copy(
            update={
                "curves": tuple(
                    curve.model_copy(
                        update={
                            "points": tuple(
                                point.model_copy(update={"seconds": 1e6}) for point in curve.points
                            )
                        }
                    )
                    for curve in layer.curves
                )
            }
        )
        for layer in example().layers
    ]
    beaten = Comparison.model_validate(example().model_copy(update={"layers": tuple(slow)}))
    assert "beats every other layer at n = 1,024, the longest" in conclusions(beaten)[0]


def test_sizes_and_times_have_units_that_fit() -> None:
    assert [size(n) for n in (12, 2048, 3 * 2**20, 2**31)] == ["12 B", "2 KiB", "3 MiB", "2 GiB"]
    assert [span(t) for t in (2.0, 0.0123, 4.5e-5, 3e-8)] == ["2 s", "12.3 ms", "45 µs", "3e-08 s"]


def test_without_matplotlib_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require_plots()
    monkeypatch.setattr(plots_module, "find_spec", lambda name: None)
    with pytest.raises(RegardError, match="need matplotlib") as refused:
        require_plots()
    assert refused.value.hint == "python -m pip install 'regard[compare]'"
