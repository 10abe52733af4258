import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from regard.nn import attention
from regard.nn.attention import MultiHeadAttention, attend, attend_fast, attention_weights
from regard.nn.masks import causal_mask, padding_mask

Form = Callable[..., torch.Tensor]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def inputs(
    b: int = 2, h: int = 3, q: int = 5, k: int = 7, e: int = 4, w: int = 6, seed: int = 0
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(b, h, q, e), (b, h, k, e), (b, h, k, w)]
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


@pytest.fixture(params=["products", "fused"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "fused":
        monkeypatch.setattr(attention, "LONG_SEQUENCE", 0)
    return request.param


def test_attend_is_equation_1_of_the_paper() -> None:
    query, key, value = inputs()
    expected = torch.softmax(query @ key.mT / 2.0, -1) @ value
    torch.testing.assert_close(attend(query, key, value), expected, **CLOSE)


def test_attend_equals_torch_under_a_mask() -> None:
    query, key, value = inputs()
    mask = causal_mask(5, 7) & padding_mask(torch.tensor([7, 4]), 7)[:, None, None]
    expected = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(attend(query, key, value, mask), expected, **CLOSE)


@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 6),
    mask_rows=st.sampled_from(["one", "each"]),
    mask_heads=st.sampled_from(["one", "each"]),
    seed=st.integers(0, 1000),
)
def test_attend_fast_equals_attend_in_values_and_gradients(
    route: str, sizes: tuple[int, ...], mask_rows: str, mask_heads: str, seed: int
) -> None:
    b, h, q, k, e, w = sizes
    tensors = inputs(b, h, q, k, e, w, seed)
    shape = (b, h if mask_heads == "each" else 1, q if mask_rows == "each" else 1, k)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    results = []
    for form in (attend, attend_fast):
        leaves = [t.clone().requires_grad_() for t in tensors]
        out = form(*leaves, mask)
        out.square().sum().backward()
        results.append([out, *(leaf.grad for leaf in leaves)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, **CLOSE)


def test_attend_fast_equals_attend_past_the_length_where_it_changes_its_way() -> None:
    size = attention.LONG_SEQUENCE + 3
    query, key, value = inputs(1, 1, size, size)
    mask = causal_mask(size, size)[None, None]
    ours = attend_fast(query, key, value, mask)
    torch.testing.assert_close(ours, attend(query, key, value, mask), **CLOSE)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["key", "value"])
@pytest.mark.parametrize("form", [attend, attend_fast])
def test_a_masked_nan_or_infinity_leaks_into_no_value_and_no_gradient(
    route: str, form: Form, where: str, special: float
) -> None:
    tensors = inputs(q=6, k=6)
    mask = causal_mask(6, 6)[None, None] & padding_mask(torch.tensor([6, 4]), 6)[:, None, None]
    expected = attend(*tensors, mask)
    spoilt = [t.clone() for t in tensors]
    spoilt[1 if where == "key" else 2][:, :, 5, 1] = special
    leaves = [t.requires_grad_() for t in spoilt]
    out = form(*leaves, mask)
    torch.testing.assert_close(out[0, :, :5], expected[0, :, :5], **CLOSE)
    torch.testing.assert_close(out[1], expected[1], **CLOSE)
    assert out[0, :, 5].isnan().all()
    (out[0, :, :5].sum() + out[1].sum()).backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


@pytest.mark.parametrize("form", [attend, attend_fast])
def test_a_nan_in_a_query_spoils_that_query_only(route: str, form: Form) -> None:
    query, key, value = inputs()
    mask = causal_mask(5, 7)[None, None]
    expected = attend(query, key, value, mask)
    query[0, 0, 2, 1] = math.nan
    out = form(query, key, value, mask)
    assert out[0, 0, 2].isnan().all()
    keep = torch.ones(2, 3, 5, dtype=torch.bool)
    keep[0, 0, 2] = False
    torch.testing.assert_close(out[keep], expected[keep], **CLOSE)


@pytest.mark.parametrize("form", [attend, attend_fast])
def test_without_a_mask_a_nan_is_seen_by_all(route: str, form: Form) -> None:
    query, key, value = inputs()
    value[0, 1, 3, 0] = math.nan
    assert form(query, key, value)[0, 1, :, 0].isnan().all()


@pytest.mark.parametrize("form", [attend, attend_fast])
def test_a_query_with_nothing_to_attend_to_gives_zeros_and_finite_gradients(
    route: str, form: Form
) -> None:
    leaves = [t.requires_grad_() for t in inputs()]
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[0, :, 2] = False
    mask[1] = False
    out = form(*leaves, mask)
    out.square().sum().backward()
    assert (out[0, :, 2] == 0).all()
    assert (out[1] == 0).all()
    assert (out[0, :, [0, 1, 3, 4]] != 0).all()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)
    assert (leaves[0].grad[1] == 0).all()


def test_weights_sum_to_one_and_to_zero_where_all_is_masked() -> None:
    query, key, _ = inputs()
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[0, :, 2] = False
    mask[:, :, :, 6] = False
    weights = attention_weights(query, key, mask)
    sums = torch.ones(2, 3, 5, dtype=torch.float64)
    sums[0, :, 2] = 0
    torch.testing.assert_close(weights.sum(-1), sums, **CLOSE)
    assert (weights[..., 6] == 0).all()


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_equals_torchs(bias: bool) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
    ours = MultiHeadAttention(12, 3, d_k=4, d_v=4, bias=bias).double()
    with torch.no_grad():
        ours.input.weight.copy_(theirs.in_proj_weight)
        ours.output.weight.copy_(theirs.out_proj.weight)
        if bias:
            for tensor in (theirs.in_proj_bias, theirs.out_proj.bias):
                tensor.normal_()
            ours.input.bias.copy_(theirs.in_proj_bias)
            ours.output.bias.copy_(theirs.out_proj.bias)
    x, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    padding = padding_mask(torch.tensor([7, 4]), 7)

    expected, _ = theirs(x, x, x, attn_mask=~causal_mask(5, 5))
    torch.testing.assert_close(ours(x, causal_mask(5, 5)[None, None]), expected, **CLOSE)

    expected, weights = theirs(x, memory, memory, key_padding_mask=~padding)
    record = []
    seen = ours.keys_and_values(memory)
    crossed = ours.cross(x, seen, padding[:, None, None], record=record)
    torch.testing.assert_close(crossed, expected, **CLOSE)
    torch.testing.assert_close(record[0], weights, **CLOSE)


def test_widths_of_keys_and_values_are_free() -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(10, 3, d_k=2, d_v=5).double()
    assert module.input.weight.shape == (3 * (2 + 2 + 5), 10)
    assert module.output.weight.shape == (10, 15)
    x = torch.randn(1, 4, 10).double()
    queries, keys, values = module.input(x).split([6, 6, 15], -1)
    heads = []
    for i in range(3):
        query, key = queries[..., 2 * i : 2 * i + 2], keys[..., 2 * i : 2 * i + 2]
        weights = torch.softmax(query @ key.mT / math.sqrt(2), -1)
        heads.append(weights @ values[..., 5 * i : 5 * i + 5])
    torch.testing.assert_close(module(x), module.output(torch.cat(heads, -1)), **CLOSE)


def test_rows_that_share_a_memory_attend_as_if_each_had_its_own() -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(8, 2, d_k=4, d_v=4).double()
    x, memory = torch.randn(6, 3, 8).double(), torch.randn(2, 5, 8).double()
    mask = padding_mask(torch.tensor([5, 2]), 5)[:, None, None]
    shared, own = [], []
    ours = module.cross(x, module.keys_and_values(memory), mask, record=shared)
    repeated = module.keys_and_values(memory.repeat_interleave(3, 0))
    expected = module.cross(x, repeated, mask.repeat_interleave(3, 0), record=own)
    torch.testing.assert_close(ours, expected, **CLOSE)
    torch.testing.assert_close(shared[0], own[0], **CLOSE)


def test_first_weights_of_queries_keys_and_values_are_drawn_as_three_matrices() -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(64, 4, d_k=16, d_v=4)
    for matrix, rows in zip(module.input.weight.split([64, 64, 16]), [64, 64, 16], strict=True):
        bound = math.sqrt(6 / (64 + rows))
        assert 0.95 * bound < matrix.abs().max() <= bound
    assert (module.input.bias == 0).all()
    assert (module.output.bias == 0).all()


def test_attention_dropout_acts_on_the_weights_and_only_in_training() -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(8, 2, d_k=4, d_v=4, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@given(mask_heads=st.sampled_from([None, 1, 4]), biased=st.booleans())
def test_shared_heads_of_keys_are_the_same_as_copies_of_them(
    mask_heads: int | None, biased: bool
) -> None:
    torch.manual_seed(0)
    shared = MultiHeadAttention(8, 4, d_k=3, d_v=5, num_kv_heads=2, scale=0.3).double()
    copied = MultiHeadAttention(8, 4, d_k=3, d_v=5, scale=0.3).double()
    torch.nn.init.normal_(shared.input.bias)
    copied.output.load_state_dict(shared.output.state_dict())
    for kind in ("weight", "bias"):
        query, key, value = getattr(shared.input, kind).data.split(shared.widths)
        twice = [
            part.view(2, 1, -1, *part.shape[1:]).expand(-1, 2, *[-1] * part.dim())
            for part in (key, value)
        ]
        whole = torch.cat([query, *(part.flatten(0, 2) for part in twice)])
        getattr(copied.input, kind).data.copy_(whole)
    x = torch.randn(2, 6, 8).double()
    mask = None if mask_heads is None else (torch.rand(2, mask_heads, 6, 6) > 0.3)
    bias = torch.randn(1, 4, 6, 6).double() if biased else None
    torch.testing.assert_close(shared(x, mask, bias=bias), copied(x, mask, bias=bias))
    memory, record, expected = torch.randn(1, 5, 8).double(), [], []
    y = shared.cross(x, shared.keys_and_values(memory), record=record)
    z = copied.cross(x, copied.keys_and_values(memory), record=expected)
    torch.testing.assert_close(y, z)
    torch.testing.assert_close(record[0], expected[0])
