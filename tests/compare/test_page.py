"""The page, the plots and the table of a comparison hold what was found, and nothing else."""

import csv
import io
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import pytest
from comparisons import example

from regard.compare import drawing
from regard.compare import plots as plots_module
from regard.compare.conclusion import caveats, conclusions
from regard.compare.drawing import Plot, as_file, on_page, require_plots
from regard.compare.folder import _PLOT
from regard.compare.layers import NAMES
from regard.compare.page import render_page, write_page
from regard.compare.plots import plots
from regard.compare.results import Comparison, Layer, Quality
from regard.compare.table import csv_text, size, span
from regard.errors import RegardError


@pytest.fixture(scope="module")
def drawn() -> list[Plot]:
    return plots(example())


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


def test_every_exponent_stands_beside_theory_s_with_its_lengths() -> None:
    text = render_page(example(), [])
    table = text[text.index("All exponents") :].partition("</table>")[0]
    rows = table.split("<tr>")[2:]
    assert len(rows) == 3
    measured = (
        '<td>n<sup>2.00</sup><br><span class="note">n<sup>2</sup></span>'
        '<br><span class="note">128 to 1,024</span></td>'
    )
    assert rows[0].count(measured) == 4
    assert rows[0].count('<td>–<br><span class="note">d<sup>2</sup></span></td>') == 2
    assert rows[0].count('<td>–<br><span class="note">d<sup>1</sup></span></td>') == 2


def test_the_page_loads_nothing_and_has_every_name_once(drawn: list[Plot]) -> None:
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
    found = example()
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    values: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        values.setdefault((row["layer"], row["what"], row["quantity"]), []).append(row["value"])
    for layer in found.layers:
        for curve in layer.curves:
            seconds = [str(point.seconds or "") for point in curve.points]
            peaks = [str(point.peak_bytes or "") for point in curve.points]
            assert values[layer.name, curve.of, "seconds"] == seconds
            assert values[layer.name, curve.of, "peak bytes"] == peaks
        assert layer.decode is not None
        steps = values.get((layer.name, "decode", "seconds"), [])
        states = values.get((layer.name, "decode", "state bytes"), [])
        assert steps == [str(point.seconds) for point in layer.decode.points]
        assert states == [str(point.state_bytes) for point in layer.decode.points]
        for quality in layer.quality:
            for quantity, wanted in (
                ("accuracy", quality.accuracies),
                ("steps", quality.steps),
                ("seconds", (quality.seconds,)),
                ("parameters", (quality.parameters,)),
                ("chance", (quality.chance,)),
            ):
                assert values[layer.name, quality.task, quantity] == [str(one) for one in wanted]
        assert len(values[layer.name, "gradient", "norm"]) == 3
        assert len(values[layer.name, "path", "count"]) == 3
        assert len(values[layer.name, "operations in sequence", "count"]) == 3
    assert values["window", "training time below plain", "crossover"] == ["1500"]
    notes = [row["note"] for row in rows if row["value"] == "" and row["quantity"] == "seconds"]
    assert set(notes) == {"more memory than there is"}
    seeds = [row["seed"] for row in rows if row["what"] == "recall" and row["seed"]]
    assert seeds[:4] == ["0", "0", "1", "1"]


def test_plots_of_the_same_figures_are_the_same_to_the_byte_whatever_a_person_s_matplotlib_says(
    drawn: list[Plot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "foo")
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "red")
    assert plots(example()) == drawn
    assert mpl.rcParams["text.usetex"] is True
    assert os.environ["MPLBACKEND"] == "foo"


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
    (only,) = conclusions(found)
    assert only.startswith("The time was too short to tell")


def with_times(found: Comparison, times: dict[str, dict[int, float]]) -> Comparison:
    """The comparison as if training steps had taken so long."""

    def changed(layer: Layer) -> Layer:
        curves = [
            curve.model_copy(
                update={
                    "points": tuple(
                        point.model_copy(update={"seconds": times[layer.name].get(point.n)})
                        for point in curve.points
                    )
                }
            )
            for curve in layer.curves
        ]
        return layer.model_copy(update={"curves": tuple(curves)})

    return found.model_copy(update={"layers": tuple(map(changed, found.layers))})


def with_quality(found: Comparison, **accuracies: tuple[float, ...]) -> Comparison:
    """The comparison as if copying had been learned so well, in 400 steps."""

    def learned(values: tuple[float, ...]) -> Quality:
        return Quality(
            task="copying",
            parameters=1,
            seconds=1.0,
            steps=(400,) * len(values),
            seeds=tuple(range(len(values))),
            accuracies=values,
            chance=0.1,
        )

    layers = [
        layer.model_copy(
            update={
                "quality": (learned(accuracies[layer.name]),) if layer.name in accuracies else ()
            }
        )
        for layer in found.layers
    ]
    return found.model_copy(update={"layers": tuple(layers)})


FOUR = (128, 256, 512, 1024)


def test_the_conclusion_says_up_to_where_full_attention_is_ahead() -> None:
    slow = dict(zip(FOUR, (1.0, 2.0, 4.0, 16.0), strict=True))
    times = {"plain": slow, "window": dict.fromkeys(FOUR, 3.0), "linformer": {}}
    first, _ = conclusions(with_times(example(), times))
    assert "is ahead up to n = 256; at n = 1,024, the longest that it and another" in first
    assert first.endswith("window is the fastest, 5.3 times as fast, with 1/1024 of the memory.")
    times["window"] = dict.fromkeys(FOUR, 1.0)
    assert "is ahead up to n = 128;" in conclusions(with_times(example(), times))[0]
    times["window"] = dict.fromkeys(FOUR, 0.5)
    assert "is behind at every length;" in conclusions(with_times(example(), times))[0]
    times["window"] = dict.fromkeys(FOUR, 15.9)
    assert (
        "is as fast as any other layer at n = 1,024"
        in (conclusions(with_times(example(), times))[0])
    )
    times["window"] = dict.fromkeys(FOUR, 99.0)
    assert "beats every other layer at n = 1,024" in conclusions(with_times(example(), times))[0]


def test_a_layer_that_sees_both_sides_wins_nothing() -> None:
    times = {"plain": dict.fromkeys(FOUR, 1.0), "window": dict.fromkeys(FOUR, 2.0)}
    times["linformer"] = dict.fromkeys(FOUR, 0.1)
    assert "beats every other layer" in conclusions(with_times(example(), times))[0]


def test_of_too_short_a_time_nothing_is_concluded_and_that_is_said() -> None:
    two = dict(zip(FOUR[:2], (1.0, 2.0), strict=True))
    found = with_times(example(), {"plain": two, "window": two, "linformer": {}})
    assert conclusions(found)[0] == (
        "The time was too short to tell which layer is the fastest where: full attention and "
        "another were timed at n = 128, 256 only, and three lengths are the least."
    )
    said = caveats(found)
    assert said[0].startswith("Fewer than three lengths were measured of any layer: ")
    assert said[1].startswith("No curve goes beyond n = 256")
    assert said[2].startswith("The small models made 39 to 41 steps")
    assert said[3] == "A longer time than --minutes 3 would tell more."
    some = with_times(
        example(), {"plain": dict.fromkeys(FOUR, 1.0), "window": two, "linformer": {}}
    )
    assert "lengths were measured of window and linformer: " in caveats(some)[0]
    none = with_times(example(), {"plain": two, "window": {}, "linformer": {}})
    assert "were timed at no common length, and" in conclusions(none)[0]
    text = render_page(found, [])
    assert all(sentence.partition("'")[0] in text for sentence in (*said, conclusions(found)[0]))


def test_the_conclusion_says_which_layer_learns_which_task() -> None:
    learned = with_quality(
        example(), plain=(0.95, 0.92, 1.0), window=(0.95, 0.89, 1.0), linformer=(1.0, 1.0, 0.9)
    )
    second = conclusions(learned)[1]
    assert second.startswith("For n^2.0 in time and n^2.0 in memory attention joins all places in ")
    assert second.endswith("; in 400 steps copying is learned by plain and linformer.")
    assert not [each for each in caveats(learned) if "steps" in each]
    some = with_quality(example(), plain=(0.4, 0.5, 0.6), window=(0.1, 0.1, 0.2))
    assert conclusions(some)[1].endswith(
        "in 400 steps copying went best with plain (50 % right, 10 % by guessing)."
    )
    lucky = with_quality(example(), plain=(0.1, 0.5, 0.9), window=(0.1, 0.1, 0.2))
    assert conclusions(lucky)[1].endswith("in 400 steps copying is learned by none.")
    assert (
        "39 to 41 steps were too few for any layer to learn a small task"
        in (conclusions(example())[1])
    )


def test_the_twin_s_quality_is_labelled_and_has_no_bar_of_its_own() -> None:
    plain, *others = with_quality(example(), plain=(0.5, 0.6, 0.7)).layers
    twin = plain.model_copy(
        update={
            "name": "sdpa",
            "quality": (plain.quality[0].model_copy(update={"same_as": "plain"}),),
        }
    )
    found = example().model_copy(update={"layers": (plain, twin, *others)})
    bars = plots_module._learned(found, "copying")
    assert bars is not None
    assert bars.description == (
        "Learning copying: right answers in percent: mean, and each seed's. "
        "plain 60 (seeds 50 to 70); by guessing 10."
    )
    text = render_page(found, [bars])
    assert "the same function, trained once" in text
    assert "50, 60, 70; 400 steps" in text
    assert "1 to 1 parameters, trained for 400 steps each." in text
    assert "trained for 1.5 s each." in render_page(example(), [])
    assert "those of plain, the same function" in csv_text(found)


def test_an_exponent_that_can_not_be_told_is_a_dash_with_a_reason() -> None:
    plain = example().layers[0]
    bare = [
        curve.model_copy(
            update={
                "time": None,
                "time_note": "two points only",
                "memory": None,
                "memory_note": "too little to be told",
            }
        )
        for curve in plain.curves
    ]
    layer = plain.model_copy(update={"curves": tuple(bare)})
    found = example().model_copy(update={"layers": (layer,)})
    text = render_page(found, [])
    assert "<td>–<br>" in text
    assert '<span class="note">two points only</span>' in text
    assert '<span class="note">too little to be told</span>' in text
    assert "two points only" in csv_text(found)


def test_every_plot_has_words_for_who_can_not_see_it_and_suits_light_and_dark(
    drawn: list[Plot],
) -> None:
    text = render_page(example(), drawn)
    for plot in drawn:
        assert _PLOT.fullmatch(f"{plot.name}.svg")  # else an older one would stay
        assert f'aria-label="{plot.title}: ' in text
        assert f"<title>{plot.title}</title>" in as_file(plot)
        assert "currentColor" in on_page(plot)
        for stand_in in ("#010203", "#fdfeff"):
            assert stand_in not in as_file(plot)
            assert stand_in not in on_page(plot)
    assert "color-scheme: light dark" in text
    assert not re.search(r"fill: *(white|#fff)", text)
    (time,) = [plot for plot in drawn if plot.name == "training-time-by-n"]
    assert "plain from 0.164 at 128 to 10.5 at 1,024" in time.description


def test_no_two_layers_are_drawn_alike_even_without_colours() -> None:
    styles = [drawing._style(name) for name in NAMES]
    assert len({marker for _, _, marker in styles}) == len(NAMES)
    assert len({(colour, stroke) for colour, stroke, _ in styles}) == len(NAMES)


def test_sizes_and_times_have_units_that_fit() -> None:
    assert [size(n) for n in (12, 2048, 3 * 2**20, 2**31)] == ["12 B", "2 KiB", "3 MiB", "2 GiB"]
    assert [span(t) for t in (2.0, 0.0123, 4.5e-5, 3e-8)] == ["2 s", "12.3 ms", "45 µs", "3e-08 s"]


def test_without_matplotlib_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require_plots()
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    with pytest.raises(RegardError, match="need matplotlib") as refused:
        require_plots()
    assert refused.value.hint == "python -m pip install 'regard[compare]'"


def test_a_matplotlib_that_can_not_be_imported_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: str) -> None:
        raise ValueError("no such font")

    monkeypatch.setattr(drawing, "load", broken)
    with pytest.raises(RegardError, match="can't be imported: ValueError: no such font"):
        require_plots()
