import ctypes
import platform

import pytest
import torch

from regard.errors import RegardError
from regard.training import precision
from regard.training.allocator import hold_memory
from regard.training.precision import GemmSizes, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("float32", "bfloat16", "expected"),
    [
        (100e9, 900e9, "bfloat16 (measured as faster: "),
        (100e9, 116e9, "bfloat16 (measured as faster: "),
        (100e9, 114e9, "float32 (bfloat16 is not clearly faster here: "),
        (100e9, 50e9, "float32 (bfloat16 is not clearly faster here: "),
    ],
)
def test_bfloat16_is_taken_only_where_it_is_clearly_faster_and_both_figures_are_said(
    monkeypatch: pytest.MonkeyPatch, float32: float, bfloat16: float, expected: str
) -> None:
    speeds = {"float32": float32, "bfloat16": bfloat16}
    monkeypatch.setattr(precision, "measure_gemms", lambda name, *rest: speeds[name])
    figures = f"float32 100 GFLOP/s, bfloat16 autocast {bfloat16 / 1e9:.0f} GFLOP/s)"
    assert str(choose_precision("auto", CPU)) == expected + figures


@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_what_the_recipe_says_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, wanted: precision.Precision
) -> None:
    monkeypatch.setattr(precision, "measure_gemms", None)
    assert str(choose_precision(wanted, CPU)) == f"{wanted} (set in the recipe)"


def test_a_measurement_gives_a_speed_for_each_precision() -> None:
    sizes = GemmSizes(rows=16, d_model=8, d_ff=16, vocabulary=32)
    for name in ("float32", "bfloat16"):
        assert precision.measure_gemms(name, CPU, sizes, 0.01) > 0


def test_memory_is_held_on_glibc_and_left_alone_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    on_glibc = platform.libc_ver()[0] == "glibc"
    assert hold_memory() == on_glibc
    monkeypatch.setenv("REGARD_MALLOC", "off")
    assert not hold_memory()
    monkeypatch.setenv("REGARD_MALLOC", "maybe")
    with pytest.raises(RegardError, match=r'^REGARD_MALLOC: it is "maybe", expected on or off\n'):
        hold_memory()
    monkeypatch.delenv("REGARD_MALLOC")
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert not hold_memory()
