"""Exponents, growths and crossings of curves that are known."""

import math

import pytest

from regard.compare.results import Curve, Layer, Order, Point, Theory
from regard.compare.scaling import (
    counted,
    crossing,
    crossovers,
    fit_or_reason,
    fit_power,
    growth_of,
)

LENGTHS = [2**k for k in range(5, 13)]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_the_exponent_of_a_power_law_is_found(exponent: float) -> None:
    fit = fit_power([(n, 3e-7 * n**exponent) for n in LENGTHS])
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=1e-3)
    assert (fit.points, fit.first, fit.last) == (4, 512, 4096)


def test_a_fit_looks_at_the_upper_half_where_the_leading_term_leads() -> None:
    fit = fit_power([(n, 1e6 + n**2) for n in LENGTHS])
    whole = [math.log(1e6 + n**2) for n in LENGTHS]
    assert fit is not None
    assert fit.exponent > (whole[-1] - whole[0]) / math.log(LENGTHS[-1] / LENGTHS[0])


def test_fewer_than_three_points_have_no_exponent_and_no_growth() -> None:
    assert fit_power([(1, 1.0), (2, 2.0)]) is None
    assert fit_power([(1, 1.0), (2, 0.0), (4, 2.0)]) is None
    assert growth_of([(1, 1.0), (2, 2.0)]) is None


def test_growths_are_told_apart_whatever_is_added_to_them() -> None:
    assert growth_of([(n, 18.0) for n in LENGTHS]) == "1"
    assert growth_of([(n, 5 + 3 * math.log2(n)) for n in LENGTHS]) == "log n"
    assert growth_of([(n, 40 + n / 64) for n in LENGTHS]) == "n"
    found = counted([(n, 2 * n) for n in LENGTHS], {"width": 3})
    assert (found.growth, found.exponent, found.settings) == ("n", 1.0, {"width": 3})


def test_counts_that_go_up_and_down_are_told_by_all_of_them_and_a_late_constant_by_the_last() -> (
    None
):
    uneven = [(16, 2), (32, 3), (64, 5), (128, 6), (256, 9)]
    assert counted(uneven, {}).growth == "log n"
    assert counted([(64, 7), (128, 11), (256, 11), (512, 11), (1024, 11)], {}).growth == "1"


def test_a_crossing_is_interpolated_between_logarithms() -> None:
    baseline = [(n, 1e-9 * n**2) for n in LENGTHS]
    assert crossing([(n, 1e-6 * n) for n in LENGTHS], baseline) == (1000, "")
    assert crossing([(n, 1e-12 * n) for n in LENGTHS], baseline) == (None, "always (from 32)")
    assert crossing([(n, 1e-5 * n) for n in LENGTHS], baseline) == (None, "not up to 4,096")
    assert crossing([(7, 1.0)], baseline) == (None, "no length in common")


def test_fewer_than_three_lengths_in_common_say_nothing_of_where_a_layer_pays() -> None:
    baseline = [(n, 1.0) for n in LENGTHS]
    assert crossing([(64, 0.1)], baseline) == (None, "too few lengths (64)")
    assert crossing([(64, 0.1), (128, 2.0)], baseline) == (None, "too few lengths (64, 128)")
    assert crossing([(n, 0.1) for n in (32, 64, 128)], baseline) == (None, "always (from 32)")


def test_an_exponent_that_means_nothing_is_a_reason_instead() -> None:
    assert fit_or_reason([(n, 0.0) for n in LENGTHS]) == (None, "not measured")
    assert fit_or_reason([(32, 1.0)]) == (None, "one point only")
    assert fit_or_reason([(32, 1.0), (64, 2.0)]) == (None, "two points only")
    low = [(n, float(n)) for n in LENGTHS]
    assert fit_or_reason(low, least=2048.0) == (None, "too little to be told")
    fit, reason = fit_or_reason(low, least=1024.0)
    assert fit is not None
    assert (fit.first, fit.exponent, fit.error, reason) == (1024, 1.0, 0.0, "")
    bent = [(1, 1.0), (2, 1.0), (4, 8.0), (8, 8.0), (16, 1.0)]
    assert fit_or_reason(bent) == (None, "the points lie on no line")
    falling = [(n, n**-0.66) for n in LENGTHS]
    assert fit_or_reason(falling) == (None, "it falls, which is noise")


def test_only_the_last_crossing_counts() -> None:
    baseline = [(n, 1.0) for n in (1, 2, 4, 8)]
    assert crossing([(1, 0.5), (2, 2.0), (4, 2.0), (8, 0.5)], baseline) == (6, "")


def layer(name: str, kind: str, times: dict[int, float]) -> Layer:
    order = Order(formula="n", exponent=1.0)
    theory = Theory(
        time_n=order,
        memory_n=order,
        time_d=order,
        memory_d=order,
        sequential="1",
        path="1",
        decode_time="",
        decode_state="",
    )
    points = tuple(
        Point(n=n, d=8, seconds=time, peak_bytes=int(time * 2**21)) for n, time in times.items()
    )
    curve = Curve(of="forward", axis="n", fixed=8, points=(*points, Point(n=99, d=8)))
    return Layer.model_validate(
        {
            "name": name,
            "title": name,
            "kind": kind,
            "settings": {},
            "causal": True,
            "parameters": 1,
            "theory": theory,
            "curves": (curve,),
        }
    )


def test_cures_cross_full_attention_and_not_each_other() -> None:
    found = crossovers(
        [
            layer("plain", "full", {1: 1.0, 2: 4.0, 4: 16.0}),
            layer("rnn", "rnn", {1: 1.9, 2: 4.0, 4: 8.0}),
            layer("gru", "gru", {1: 3.0, 2: 5.0, 4: 20.0}),
        ]
    )
    seen = {(each.layer, each.baseline, each.quantity): (each.length, each.note) for each in found}
    assert seen == {
        ("rnn", "plain", "time"): (2, ""),
        ("gru", "plain", "time"): (None, "not up to 4"),
        ("rnn", "plain", "memory"): (None, "too few lengths (2, 4)"),  # too low at 1
        ("gru", "plain", "memory"): (None, "not up to 4"),
    }
