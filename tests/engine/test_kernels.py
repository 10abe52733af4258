"""Every kernel of every instruction set against NumPy, on ragged shapes and extreme values."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

native = pytest.importorskip("regard.engine._native", reason="the engine is not built")
kernels: Any = native.kernels

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ["float32", "bfloat16", "int8", "int4"]
some = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 200)


@pytest.fixture(params=kernels.isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set of this processor, in use."""
    before = kernels.active()
    kernels.use(request.param)
    yield request.param
    kernels.use(before)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def same_bits(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def to_bf16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def quantised(x: Array) -> tuple[Array, Array]:
    """Finite rows as integers within -127 and 127 and their scales, in float32 as the engine."""
    most = np.abs(x).max(axis=1)
    zero = most < np.float32(1e-36)
    factor = np.where(zero, 0, np.float32(127) / np.where(zero, np.float32(1), most))
    levels = np.rint(x * factor.astype(np.float32)[:, None]).astype(np.int64)
    return levels, np.where(zero, 0, most / np.float32(127)).astype(np.float32)


def to_levels(x: Array) -> Array:
    """Rows as they are after quantisation."""
    levels, scale = quantised(x)
    return levels * scale[:, None].astype(np.float64)


KEPT: dict[str, Callable[[Array], Array]] = {
    "float32": lambda x: x,
    "bfloat16": to_bf16,
    "int8": to_levels,
}


def extreme_rows(rng: np.random.Generator, rows: int, width: int) -> Array:
    """Rows of zeros, huge, tiny, denormal, negative and one-sided values among plain ones."""
    x = normal(rng, rows, width)
    factors = np.array([0, 1e30, 1e-30, 1e-41, -1, 1, 1e4], dtype=np.float32)
    x *= factors[rng.integers(len(factors), size=rows)][:, None]
    x[rng.random(rows) < 0.2, 0] = 1e6
    return x


def close_to_product(y: Array, x: Array, weight: Array, bias: Array, relative: float) -> bool:
    """Whether y is x weight^T + bias, to within rounding of what is summed."""
    wide = np.float64
    exact = x.astype(wide) @ weight.astype(wide).T + bias
    size = np.abs(x.astype(wide)) @ np.abs(weight.astype(wide)).T + np.abs(bias)
    return bool((np.abs(y - exact) <= relative * size + 1e-37).all())


@some
@given(seed=seeds, rows=st.integers(1, 67), out=st.integers(1, 150), width=widths)
def test_a_float32_layer_is_the_product(
    isa: str, seed: int, rows: int, out: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    x, weight, bias = extreme_rows(rng, rows, width), normal(rng, out, width), normal(rng, out)
    y = kernels.Linear(weight, bias, "float32").apply(x)
    assert close_to_product(y, x, weight, bias, 3e-6)


@some
@given(seed=seeds, rows=st.integers(1, 67), out=st.integers(1, 150), width=widths)
def test_a_bfloat16_layer_is_the_product_of_what_is_rounded(
    isa: str, seed: int, rows: int, out: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    x, weight, bias = normal(rng, rows, width), normal(rng, out, width), normal(rng, out)
    y = kernels.Linear(weight, bias, "bfloat16").apply(x)
    assert close_to_product(y, to_bf16(x), to_bf16(weight), bias, 3e-6)


@some
@given(seed=seeds, rows=st.integers(1, 67), out=st.integers(1, 150), width=widths)
def test_an_int8_layer_has_the_very_bits_of_integer_sums_scaled_once(
    isa: str, seed: int, rows: int, out: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    x, weight, bias = extreme_rows(rng, rows, width), normal(rng, out, width), normal(rng, out)
    weight[rng.random(out) < 0.1] = 0
    layer = kernels.Linear(weight, bias, "int8")
    levels, x_scale = quantised(x)
    w_scale = np.abs(weight).max(axis=1) / np.float32(127)
    w_levels = np.rint(layer.unpack() / np.where(w_scale > 0, w_scale, 1)[:, None])
    sums = (levels @ w_levels.astype(np.int64).T).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = sums * (x_scale[:, None] * w_scale[None, :]) + bias
    assert same_bits(layer.apply(x), expected)


@some
@given(seed=seeds, rows=st.integers(1, 67), out=st.integers(1, 150), width=widths)
def test_an_int4_layer_is_the_product_of_what_is_rounded(
    isa: str, seed: int, rows: int, out: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    x, weight, bias = extreme_rows(rng, rows, width), normal(rng, out, width), normal(rng, out)
    weight[rng.random(out) < 0.1] = 0
    layer = kernels.Linear(weight, bias, "int4")
    levels, scale = quantised(x)
    rounded = (levels * scale[:, None].astype(np.float64)).astype(np.float64)
    assert close_to_product(layer.apply(x), rounded, layer.unpack(), bias, 6e-6)


@some
@given(seed=seeds, out=st.integers(1, 150), width=widths)
def test_int4_weights_are_sixteen_levels_for_each_32_inputs_and_near_what_they_were(
    seed: int, out: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = normal(rng, out, width) * rng.choice(np.float32([0.01, 1, -100]), size=(out, 1))
    found = kernels.Linear(weight, None, "int4").unpack()
    for first in range(0, width, 32):
        was, now = (each[:, first : first + 32].astype(np.float64) for each in (weight, found))
        assert all(len(np.unique(row)) <= 16 for row in now)
        # Cutting the largest may be worth it; plain rounding to as many levels is never better.
        step = np.abs(was).max(axis=1, keepdims=True) / 8
        plain = np.clip(np.rint(was / step), -7, 7) * step
        lost, plainly = (((each - was) ** 2).sum(axis=1) for each in (now, plain))
        assert (lost <= 1.001 * plainly + 1e-12 * step[:, 0] ** 2).all()


@pytest.mark.parametrize("width", [32, 1000, 4096])
def test_int4_sums_at_their_largest_stay_exact(isa: str, width: int) -> None:
    for sign in (1, -1):
        x = np.full((7, width), sign, dtype=np.float32)
        for value in (-1, 1):
            weight = np.full((65, width), value, dtype=np.float32)
            y = kernels.Linear(weight, None, "int4").apply(x)
            np.testing.assert_allclose(y, sign * value * width, rtol=1e-5)


@pytest.mark.parametrize("width", [4, 1000, 4096])
def test_int8_sums_at_their_largest_stay_exact(isa: str, width: int) -> None:
    for sign in (1, -1):
        x = np.full((7, width), sign, dtype=np.float32)
        weight = np.full((65, width), -1, dtype=np.float32)
        y = kernels.Linear(weight, None, "int8").apply(x)
        np.testing.assert_allclose(y, -sign * width, rtol=1e-6)


@some
@given(seed=seeds, dtype=st.sampled_from(DTYPES), rows=st.integers(1, 67), width=widths)
def test_a_row_has_the_same_bits_alone_in_any_batch_and_with_any_split_of_columns(
    isa: str, seed: int, dtype: str, rows: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    out = int(rng.integers(1, 300))
    layer = kernels.Linear(normal(rng, out, width), normal(rng, out), dtype)
    x = normal(rng, rows, width)
    whole = layer.apply(x)
    chosen = rng.permutation(rows)[: int(rng.integers(1, rows + 1))]
    assert same_bits(layer.apply(x[chosen]), whole[chosen])
    assert same_bits(layer.apply(x[chosen[:1]]), whole[chosen[:1]])
    cuts = [0, *range(kernels.columns, out, kernels.columns)]
    kept = [cut for cut in cuts if cut == 0 or rng.random() < 0.5]
    parts = [layer.apply(x, begin, end) for begin, end in zip(kept, [*kept[1:], out], strict=True)]
    assert same_bits(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_spoils_its_own_row_only(isa: str, dtype: str, poison: float) -> None:
    rng = np.random.default_rng(5)
    layer = kernels.Linear(normal(rng, 70, 33), None, dtype)
    x = normal(rng, 9, 33)
    clean = layer.apply(x)
    x[4, 20] = poison
    y = layer.apply(x)
    assert not np.isfinite(y[4]).any()
    rest = np.arange(9) != 4
    assert same_bits(y[rest], clean[rest])


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_a_layer_of_integers_and_rows_of_zeros_gives_its_bias(isa: str, dtype: str) -> None:
    rng = np.random.default_rng(6)
    bias = normal(rng, 70)
    y = kernels.Linear(normal(rng, 70, 33), bias, dtype).apply(np.zeros((3, 33), np.float32))
    assert same_bits(y, np.stack([bias] * 3))


@some
@given(seed=seeds, rows=st.integers(1, 9), width=widths)
def test_rows_become_the_nearest_integers_and_halves(
    isa: str, seed: int, rows: int, width: int
) -> None:
    x = extreme_rows(np.random.default_rng(seed), rows, width)
    packed, scale = kernels.prepared(x, "int8")
    levels, expected = quantised(x)
    assert same_bits(scale, expected)
    assert (packed[:, :width] == levels + 128).all()
    assert (packed[:, width:] == 128).all()
    halves = kernels.prepared(x, "bfloat16")[0].view(np.uint16)
    assert (halves[:, :width] == to_bf16(x).view(np.uint32) >> 16).all()
    assert (halves[:, width:] == 0).all()


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("bfloat16", 2**-8), ("int8", 1)])
def test_unpacking_gives_the_weights_back(dtype: str, error: float) -> None:
    weight = normal(np.random.default_rng(7), 131, 37)
    got = kernels.Linear(weight, None, dtype).unpack()
    if dtype == "int8":
        step = np.abs(weight).max(axis=1, keepdims=True) / 127
        assert (np.abs(got - weight) <= 0.501 * step).all()
    else:
        assert (np.abs(got - weight) <= error * np.abs(weight)).all()


def test_an_int8_layer_takes_a_quarter_of_the_memory() -> None:
    weight = np.zeros((256, 512), np.float32)
    sizes = {dtype: kernels.Linear(weight, None, dtype).bytes for dtype in DTYPES}
    assert sizes["int8"] < 0.27 * sizes["float32"]
    assert sizes["bfloat16"] < 0.51 * sizes["float32"]


def test_an_empty_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="a linear layer has at least 1 x 1 weights"):
        kernels.Linear(np.zeros((0, 3), np.float32), None, "int8")


def test_exp_is_right_to_two_units_in_the_last_place(isa: str) -> None:
    x = np.linspace(-87.3, 88.7, 200_001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(kernels.exp(x) - exact) / exact).max() < 2.4e-7
    ends = kernels.exp(np.array([-math.inf, -200, -88, 0, 89, 1e30, math.inf], np.float32))
    assert ends.tolist() == [0, 0, 0, 1, math.inf, math.inf, math.inf]
    assert math.isnan(kernels.exp(np.array([math.nan], np.float32))[0])


ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "swish": lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_its_equation(isa: str, name: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 4001), [0, -1e4, 1e4, 1e-20]]).astype(np.float32)
    exact = np.array([ACTIVATIONS[name](float(value)) for value in x])
    y = kernels.activate(name, x)
    assert (np.abs(y - exact) <= 4e-7 * np.maximum(1, np.abs(exact))).all()
    assert np.isnan(kernels.activate(name, np.array([1, math.nan], np.float32))).tolist() == [
        False,
        True,
    ]


@some
@given(seed=seeds, n=widths, name=st.sampled_from(list(ACTIVATIONS)))
def test_an_activation_is_the_same_at_every_place_of_a_row_and_as_a_gate(
    isa: str, seed: int, n: int, name: str
) -> None:
    rng = np.random.default_rng(seed)
    x, value = normal(rng, n), normal(rng, n)
    y = kernels.activate(name, x)
    alone = np.array([kernels.activate(name, x[i : i + 1])[0] for i in range(n)])
    assert same_bits(y, alone)
    assert same_bits(kernels.activate(name, x, value), y * value)


@some
@given(seed=seeds, n=widths)
def test_small_functions_of_rows_are_their_equations(isa: str, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = normal(rng, n), normal(rng, n)
    assert abs(kernels.dot(a, b) - a.astype(np.float64) @ b) <= 1e-6 * (np.abs(a) @ np.abs(b))
    np.testing.assert_allclose(kernels.axpy(0.3, a, b), 0.3 * a + b, rtol=1e-5, atol=1e-6)
    assert same_bits(kernels.add(a, b), a + b)
    assert same_bits(kernels.multiply(a, b), a * b)
    assert same_bits(kernels.scale(0.7, a), np.float32(0.7) * a)
    assert kernels.max(a) == a.max()
    floor = float(np.sort(a)[-min(3, n)])
    above = np.flatnonzero(a > np.float32(floor))
    assert kernels.first_above(a, floor) == (above[0] if above.size else n)


@some
@given(seed=seeds, n=widths, offset=st.sampled_from([0.0, 3.0, -100.0]))
def test_norms_are_their_equations(isa: str, seed: int, n: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    x, weight, bias = normal(rng, n) + np.float32(offset), normal(rng, n), normal(rng, n)
    wide = x.astype(np.float64)
    centred = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)
    close = {"rtol": 1e-4, "atol": 1e-4 * max(1, abs(offset))}
    np.testing.assert_allclose(kernels.layer_norm(x, None, None, 1e-5), centred, **close)
    np.testing.assert_allclose(
        kernels.layer_norm(x, weight, bias, 1e-5), centred * weight + bias, **close
    )
    scaled = wide / np.sqrt((wide**2).mean() + 1e-6)
    np.testing.assert_allclose(kernels.rms_norm(x, weight, 1e-6), scaled * weight, **close)
    np.testing.assert_allclose(kernels.rms_norm(x, None, 1e-6), scaled, **close)


@some
@given(seed=seeds, n=widths)
def test_softmax_sums_to_one_and_gives_nothing_to_minus_infinity(
    isa: str, seed: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    row = 5 * normal(rng, n) + np.float32(rng.choice([0, 1e4, -1e4]))
    row[rng.random(n) < 0.3] = -math.inf
    y = kernels.softmax(row)
    if np.isinf(row).all():
        assert (y == 0).all()
        return
    weights = np.exp((row - row.max()).astype(np.float64))
    np.testing.assert_allclose(y, weights / weights.sum(), rtol=1e-6, atol=1e-30)
    assert (y[np.isinf(row)] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@some
@given(seed=seeds, count=st.integers(1, 70), key=st.integers(1, 80), value=st.integers(1, 150))
def test_attention_is_its_equation_wherever_its_rows_lie(
    isa: str, dtype: str, seed: int, count: int, key: int, value: int
) -> None:
    rng = np.random.default_rng(seed)
    query, keys, values = (
        normal(rng, key),
        normal(rng, count + 5, key),
        normal(rng, count + 5, value),
    )
    index = rng.permutation(count + 5)[:count].astype(np.int32)
    bias = normal(rng, count) if rng.random() < 0.5 else None
    scale = 1 / math.sqrt(key)
    out = kernels.attend(query, keys, values, scale, index, bias, dtype)
    kept = KEPT[dtype]
    logits = (kept(keys)[index].astype(np.float64) @ query) * scale
    if bias is not None:
        logits += bias
    weights = np.exp(logits - logits.max())
    expected = (weights / weights.sum()) @ kept(values)[index]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=2e-6)
    again = kernels.attend(query, keys[index], values[index], scale, None, bias, dtype)
    assert same_bits(out, again)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_attention_to_what_is_no_number_is_none(isa: str, dtype: str, poison: float) -> None:
    rng = np.random.default_rng(8)
    query, keys, values = normal(rng, 33), normal(rng, 5, 33), normal(rng, 5, 33)
    for rows in (keys, values):
        rows[2, 7], before = poison, rows[2, 7]
        out = kernels.attend(query, keys, values, 0.1, None, None, dtype)
        assert not np.isfinite(out).all()
        rows[2, 7] = before


@some
@given(
    seed=seeds,
    n=st.integers(1, 700),
    k=st.integers(1, 12),
    piece=st.integers(1, 130),
    levels=st.sampled_from([3, 1000]),
)
def test_the_best_of_a_row_are_in_order_and_the_first_among_equals(
    isa: str, seed: int, n: int, k: int, piece: int, levels: int
) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(levels, size=n).astype(np.float32)
    row[rng.random(n) < 0.1] = -math.inf
    row[rng.random(n) < 0.1] = math.nan
    usable = [i for i in range(n) if row[i] > -math.inf]
    expected = sorted(usable, key=lambda i: (-row[i], i))[:k]
    assert kernels.best(row, k, piece) == [(row[i], i) for i in expected]


@some
@given(seed=seeds, n=st.integers(1, 700), piece=st.integers(1, 130), size=st.sampled_from([1, 50]))
def test_log_sum_exp_is_its_equation(isa: str, seed: int, n: int, piece: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    row = size * normal(rng, n)
    row[rng.random(n) < 0.2] = -math.inf
    got = kernels.log_sum_exp(row, piece)
    if np.isinf(row).all():
        assert got == -math.inf
        return
    wide = row.astype(np.float64)
    assert got == pytest.approx(wide.max() + np.log(np.exp(wide - wide.max()).sum()), abs=2e-6)
    row[int(rng.integers(n))] = math.nan
    assert math.isnan(kernels.log_sum_exp(row, piece))


def test_an_unknown_instruction_set_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r'REGARD_ISA: this processor has portable.*, not "mmx"'):
        kernels.use("mmx")
