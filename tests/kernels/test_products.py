from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from regard.errors import RegardError
from regard.kernels import products
from regard.kernels.products import (
    Linear,
    add_product,
    batched,
    linear,
    onednn_is_faster,
    product,
)


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Products are oneDNN's whatever the processor; the list tells of each."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("there is no oneDNN in this PyTorch")
    done: list[tuple[int, ...]] = []
    theirs = products._linear

    def noted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        done.append((*x.shape, len(weight)))
        return theirs(x, weight, bias)

    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "_linear", noted)
    yield done


def case(n: int, k: int = 24, m: int = 40, bias: bool = True) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    shapes = [(n, k), (m, k), *([(m,)] if bias else [])]
    return [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]


def close_to_float64(
    inputs: list[torch.Tensor], outer: torch.Tensor, out: torch.Tensor, places: tuple[int, ...]
) -> None:
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact = functional.linear(wide[0].view(*places, -1), *wide[1:])
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    mine = torch.autograd.grad(out, inputs, outer)
    theirs = torch.autograd.grad(exact, wide, outer.double())
    torch.testing.assert_close([grad.double() for grad in mine], list(theirs), rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("places", [(16,), (17,), (2, 33), (3, 1, 50)])
def test_value_and_gradients_are_those_of_torchs_linear_in_float64(
    onednn: list[tuple[int, ...]], places: tuple[int, ...], bias: bool
) -> None:
    n = int(torch.tensor(places).prod())
    inputs = case(n, bias=bias)
    out = linear(inputs[0].view(*places, -1), *inputs[1:])
    assert out.shape == (*places, 40)
    close_to_float64(inputs, torch.randn(*places, 40), out, places)
    assert len(onednn) == 3


def test_rows_that_lie_over_each_other_are_as_any(onednn: list[tuple[int, ...]]) -> None:
    x, weight, bias = case(64)
    windows = x.flatten()[: 40 * 8 + 16].unfold(0, 24, 8)
    out = linear(windows, weight, bias)
    exact = functional.linear(windows.double(), weight.double(), bias.double())
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    mine = torch.autograd.grad(out.sum(), (x, weight, bias))
    theirs = torch.autograd.grad(exact.sum(), (x, weight, bias))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=3e-5)
    assert len(onednn) == 3


def test_what_does_not_lie_row_by_row_is_taken_as_it_lies(onednn: list[tuple[int, ...]]) -> None:
    x, weight, bias = case(64)
    other = torch.randn(24, 64).t()
    out = linear(other, torch.randn(24, 80).t()[::2], bias[:40])
    assert out.shape == (64, 40)
    wide = torch.randn(24, 40).t().contiguous().t()
    torch.testing.assert_close(product(other, wide), other @ wide, rtol=1e-5, atol=1e-5)
    slope = torch.ones(1, 1).expand(64, 40)
    (mine,) = torch.autograd.grad(linear(x, weight), weight, slope)
    torch.testing.assert_close(mine, slope.t() @ x, rtol=1e-5, atol=1e-5)
    assert len(onednn) == 5


def test_gradients_of_gradients_are_pytorchs(onednn: list[tuple[int, ...]]) -> None:
    inputs = case(32)

    def penalty(of: object) -> list[torch.Tensor]:
        (slope,) = torch.autograd.grad(of(*inputs).square().sum(), inputs[0], create_graph=True)
        return list(torch.autograd.grad(slope.square().sum(), inputs))

    torch.testing.assert_close(penalty(linear), penalty(functional.linear), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("rows", [0, 1, 15])
def test_few_rows_are_torchs(onednn: list[tuple[int, ...]], rows: int) -> None:
    inputs = case(rows)
    assert torch.equal(linear(*inputs), functional.linear(*inputs))
    assert not onednn


def test_other_types_autocast_and_subclasses_are_torchs(onednn: list[tuple[int, ...]]) -> None:
    class Shard(torch.Tensor):
        pass

    inputs = case(32)
    wide = [tensor.double() for tensor in inputs]
    assert torch.equal(linear(*wide), functional.linear(*wide))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(linear(*inputs), functional.linear(*inputs))
    assert linear(inputs[0], inputs[1].detach().as_subclass(Shard)).shape == (32, 40)
    assert linear(*(tensor.to("meta") for tensor in inputs)).device.type == "meta"
    assert not onednn


def test_the_environment_turns_it_off(
    onednn: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = case(32)
    monkeypatch.setenv("REGARD_KERNELS", "off")
    assert torch.equal(linear(*inputs), functional.linear(*inputs))
    assert not onednn
    monkeypatch.setenv("REGARD_KERNELS", "no")
    with pytest.raises(RegardError, match=r'^REGARD_KERNELS: it is "no", expected on or off\n'):
        linear(*inputs)


@pytest.mark.parametrize(
    ("processor", "capability", "wanted"),
    [
        ("AMD EPYC 9755 128-Core Processor", "AVX512", True),
        ("AMD EPYC 7742 64-Core Processor", "AVX2", False),
        ("Intel(R) Xeon(R) Platinum 8488C", "AVX512", False),
    ],
)
def test_the_processor_alone_decides(
    processor: str, capability: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "cpu_model", lambda: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert onednn_is_faster.__wrapped__() is (wanted and torch.backends.mkldnn.is_available())


def test_a_sum_of_products_is_added_to(onednn: list[tuple[int, ...]]) -> None:
    left, right, total = torch.randn(20, 32), torch.randn(32, 9), torch.randn(20, 9)
    wanted = total.double() + left.double() @ right.double()
    add_product(total, left, right)
    torch.testing.assert_close(total.double(), wanted, rtol=1e-5, atol=1e-5)
    add_product(total, left.bfloat16(), right.bfloat16())
    assert total.dtype == torch.float32 and len(onednn) == 1


# An ordinary product, one of few columns that sums over many, and ones that lie otherwise.
MATRICES = [(24, 40, 20, False), (24, 64, 20, False), (40, 24, 20, True), (24, 64, 20, True)]


@pytest.mark.parametrize(("n", "k", "m", "turned"), MATRICES)
def test_batched_products_and_their_gradients_are_those_in_float64(
    onednn: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    k: int,
    m: int,
    turned: bool,
) -> None:
    monkeypatch.setattr(products, "_SMALL", 1)
    shapes = [(2, 3, k, n), (2, 3, m, k)] if turned else [(2, 3, n, k), (2, 3, k, m)]
    given = [torch.randn(*shape).requires_grad_() for shape in shapes]
    inputs = [x.mT for x in given] if turned else given
    wide = [x.detach().double().requires_grad_() for x in inputs]
    outer = torch.randn(2, 3, n, m)
    out, exact = batched(*inputs), wide[0] @ wide[1]
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    mine = torch.autograd.grad(out, inputs, outer)
    theirs = torch.autograd.grad(exact, wide, outer.double())
    torch.testing.assert_close([grad.double() for grad in mine], list(theirs), rtol=1e-5, atol=3e-5)
    assert len(onednn) == 3 * 6


def test_gradients_of_gradients_of_batched_products_are_pytorchs(
    onednn: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_SMALL", 1)
    inputs = [torch.randn(2, *shape).requires_grad_() for shape in ((24, 64), (64, 20))]

    def penalty(of: object) -> list[torch.Tensor]:
        (slope,) = torch.autograd.grad(of(*inputs).square().sum(), inputs[0], create_graph=True)
        return list(torch.autograd.grad(slope.square().sum(), inputs))

    torch.testing.assert_close(penalty(batched), penalty(torch.matmul), rtol=1e-4, atol=1e-2)
    assert onednn


def test_batched_products_of_small_matrices_other_types_and_autocast_are_torchs(
    onednn: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = torch.randn(2, 24, 64), torch.randn(2, 64, 20)
    assert torch.equal(batched(left, right), left @ right)
    monkeypatch.setattr(products, "_SMALL", 1)
    assert torch.equal(batched(left[0], right[0]), left[0] @ right[0])
    assert torch.equal(batched(left.double(), right.double()), left.double() @ right.double())
    assert batched(left[:0], right[:0]).shape == (0, 24, 20)
    assert batched(left[..., :0], right[:, :0]).eq(0).all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(batched(left, right), left @ right)
    monkeypatch.setenv("REGARD_KERNELS", "off")
    assert torch.equal(batched(left, right), left @ right)
    assert not onednn


def test_the_module_is_saved_as_torchs_is(onednn: list[tuple[int, ...]]) -> None:
    mine, theirs = Linear(24, 40), torch.nn.Linear(24, 40)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 16, 24)
    torch.testing.assert_close(mine(x), theirs(x))
    assert mine.extra_repr() == theirs.extra_repr() and isinstance(mine, torch.nn.Linear)
    assert len(onednn) == 1
