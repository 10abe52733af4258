"""A whole comparison of a few layers, small enough for seconds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.compare import schedule
from regard.compare.layers import Subject
from regard.compare.results import Comparison, Quality, read_comparison
from regard.compare.run import compare
from regard.compare.schedule import Clock, Plan
from regard.errors import RegardError

SMALL = Plan(
    d_model=16,
    num_heads=2,
    lengths=(16, 32, 64, 128),
    length=32,
    widths=(8, 16, 32),
    contexts=(16, 64),
)


def learned(
    subjects: Sequence[Subject],
    *,
    seconds: float,
    seed: int,
    progress: Callable[[str, float], None],
) -> dict[str, tuple[Quality, ...]]:
    assert seconds > 0
    progress("learning", 1.0)
    quality = Quality(
        task="copying",
        parameters=1,
        seconds=seconds,
        steps=(1,),
        seeds=(seed,),
        accuracies=(0.5,),
        chance=0.1,
    )
    return {subject.name: (quality,) for subject in subjects}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    out = tmp_path_factory.mktemp("compare") / "out"
    names = ["plain", "linformer", "rnn"]
    made = compare(out, minutes=5.0, seed=3, names=names, threads=1, plan=SMALL, learn=learned)
    return made, out


def test_every_layer_has_every_figure(found: tuple[Comparison, Path]) -> None:
    made, _ = found
    assert [layer.name for layer in made.layers] == ["plain", "linformer", "rnn"]
    for layer in made.layers:
        for curve in layer.curves:
            planned = SMALL.lengths if curve.axis == "n" else SMALL.widths
            assert len(curve.points) == len(planned)
            assert all(point.seconds for point in curve.points)
            assert (curve.time is None) == bool(curve.time_note)
            assert curve.memory_note == "too little to be told"
            assert curve.stopped == ""
        assert layer.sequential is not None
        assert layer.path is not None
        assert layer.gradients is not None
        assert layer.decode is not None
        assert len(layer.decode.points) == (len(SMALL.contexts) if layer.causal else 0)
        assert [quality.accuracies for quality in layer.quality] == [(0.5,)]
    assert made.layer("linformer").decode is not None
    assert {each.layer for each in made.crossovers} == {"linformer", "rnn"}
    assert made.left_out == ()
    assert (made.seed, made.machine.threads) == (3, 1)


def test_what_is_written_is_what_was_found(found: tuple[Comparison, Path]) -> None:
    made, out = found
    assert read_comparison(out / "compare.json") == made


def test_the_growths_are_those_of_theory(found: tuple[Comparison, Path]) -> None:
    made, _ = found
    growths = {layer.name: layer.sequential and layer.sequential.growth for layer in made.layers}
    assert growths == {"plain": "1", "linformer": "1", "rnn": "n"}
    assert "a chain of as many steps" in made.layer("rnn").notes[-1]


def test_time_that_counting_took_is_taken_from_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(schedule, "time", SimpleNamespace(perf_counter=lambda: now))
    clock = Clock(100.0, started=100.0)
    assert [clock.shares_from_now(0.95)(share) for share in (0.4, 0.95)] == [40.0, 95.0]
    now += 57.0
    left = clock.shares_from_now(0.95)
    assert [left(share) for share in (0.4, 0.95)] == pytest.approx([16.0, 38.0])
    now += 30.0
    assert [left(share) for share in (0.4, 0.95)] == pytest.approx([0.0, 8.0])


def test_a_comparison_without_time_begins_nothing_long_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    plan = Plan(lengths=(128, 2**14), widths=(64,), contexts=(8,))
    made = compare(tmp_path / "out", minutes=1e-4, names=["plain"], threads=1, plan=plan)
    assert all(curve.points == () for curve in made.layers[0].curves)
    assert all(curve.stopped.startswith("no time left") for curve in made.layers[0].curves)
    assert "plain, forward by n: ended before the first point, no time left" in made.left_out[0]


def test_a_wrong_name_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match='no layer is called "rnnn"'):
        compare(tmp_path / "out", names=["rnnn"])
    assert not list(tmp_path.iterdir())


def test_an_interruption_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(schedule, "grow", stop)
    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path / "out", minutes=5.0, names=["rnn"], threads=1, plan=SMALL)
    assert not list(tmp_path.iterdir())
