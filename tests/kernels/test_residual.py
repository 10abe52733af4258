import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.errors import RegardError
from regard.kernels import native
from regard.kernels import residual as kernel
from regard.kernels.residual import Affine, residual, residual_norm
from regard.nn.dropout import Dropout
from regard.nn.residual import add, add_and_norm

TYPES = [torch.float32, torch.bfloat16]
SHAPES = [(1, 1), (3, 7), (2, 5, 16), (33, 64), (70, 100), (2, 1, 257)]


def case(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """x, y, gain, bias."""
    generator = torch.Generator().manual_seed(sum(shape))
    shapes = (shape, shape, shape[-1:], shape[-1:])
    x, y, gain, bias = (torch.randn(size, generator=generator) for size in shapes)
    return [x.requires_grad_(), y.to(dtype).requires_grad_(), gain.requires_grad_(),
            bias.requires_grad_()]  # fmt: skip


def normed(*given: torch.Tensor, dropped: int = 26) -> torch.Tensor:
    """The norm of x and y by gain and bias."""
    x, y, gain, bias = given
    both = residual_norm(x, y, dropped, Affine(gain, bias, 1e-5))
    assert both is not None and both[0] is both[1]
    return both[0]


def kept(shape: tuple[int, ...], dropped: int, seed: int) -> torch.Tensor:
    """What y is multiplied by after that seed."""
    torch.manual_seed(seed)
    found = residual(torch.zeros(shape), torch.ones(shape), dropped)
    assert found is not None
    return found


def close(mine: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = 1e-6 if dtype == torch.float32 else 2**-8
    scale = float(exact.abs().max()) if exact.numel() else 0.0
    torch.testing.assert_close(mine.double(), exact, rtol=tolerance, atol=tolerance * (1 + scale))


@pytest.mark.parametrize("dropped", [0, 26, 200])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_and_its_gradients_are_those_of_float64(
    isa: str, shape: tuple[int, ...], dtype: torch.dtype, dropped: int
) -> None:
    x, y, *_ = case(shape, dtype)
    factor = kept(shape, dropped, 4)
    torch.manual_seed(4)
    out = residual(x, y, dropped)
    outer = torch.randn(shape)
    assert out is not None and out.dtype == torch.float32
    close(out.detach(), (x.double() + y.double() * factor.double()).detach(), torch.float32)
    for_x, for_y = torch.autograd.grad(out, (x, y), outer)
    assert torch.equal(for_x, outer) and for_y.dtype == dtype
    close(for_y, outer.double() * factor.double(), dtype)


@pytest.mark.parametrize("dropped", [0, 26, 200])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_the_norm_and_its_gradients_are_those_of_float64(
    isa: str, shape: tuple[int, ...], dtype: torch.dtype, dropped: int
) -> None:
    inputs = case(shape, dtype)
    factor = kept(shape, dropped, 4).double()
    torch.manual_seed(4)
    out = normed(*inputs, dropped=dropped)
    outer = torch.randn(shape)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    added = wide[0] + wide[1] * factor
    exact = functional.layer_norm(added, shape[-1:], *wide[2:], 1e-5)
    close(out.detach(), exact.detach(), torch.float32)
    mine = torch.autograd.grad(out, inputs, outer)
    theirs = torch.autograd.grad(exact, wide, outer.double())
    for name, got, wanted in zip(["x", "y", "gain", "bias"], mine, theirs, strict=True):
        close(got, wanted, dtype if name == "y" else torch.float32)


def test_as_many_are_dropped_as_was_asked_for_and_no_two_rows_alike(isa: str) -> None:
    factor = kept((512, 512), 26, 1)
    scale = 256 / (256 - 26)
    assert set(factor.unique().tolist()) == {0.0, torch.tensor(scale).item()}
    gone = (factor == 0).float()
    share = 26 / 256
    # Six standard deviations of as many independent throws: of all, of a row, of a column.
    assert abs(gone.mean() - share) < 6 * math.sqrt(share * (1 - share) / gone.numel())
    for axis in (0, 1):
        assert (gone.mean(axis) - share).abs().max() < 6 * math.sqrt(share * (1 - share) / 512)
    # Neighbours in a row, in a column, and 16 and 64 apart are not alike more often than chance.
    for moved in (gone.roll(1, 0), gone.roll(1, 1), gone.roll(16, 1), gone.roll(64, 1)):
        together = (gone * moved).mean()
        assert abs(together - share**2) < 6 * share / math.sqrt(gone.numel())
    assert len({tuple(row) for row in gone.tolist()}) == 512


def test_the_generators_seed_and_state_govern_what_is_dropped(isa: str) -> None:
    first = kept((40, 64), 26, 9)
    state = torch.get_rng_state()
    second = residual(torch.zeros(40, 64), torch.ones(40, 64), 26)
    torch.set_rng_state(state)
    third = residual(torch.zeros(40, 64), torch.ones(40, 64), 26)
    assert torch.equal(first, kept((40, 64), 26, 9))
    assert torch.equal(second, third) and not torch.equal(first, second)


@pytest.mark.parametrize("dtype", TYPES)
def test_any_number_of_threads_gives_the_same_bits(
    isa: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[torch.Tensor]:
        inputs = case((150, 48), dtype)
        torch.manual_seed(4)
        out = normed(*inputs)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    alone = run()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(*pair) for pair in zip(alone, run(), strict=True))


def test_what_is_dropped_is_the_same_on_every_instruction_set(isa: str) -> None:
    mine = kept((20, 333), 77, 3)
    native.module().use_isa("portable")
    assert torch.equal(mine, kept((20, 333), 77, 3))


def test_a_nan_stays_in_its_row(isa: str) -> None:
    x, y, gain, bias = case((4, 32), torch.float32)
    with torch.no_grad():
        x[2, 5] = math.nan
    out = normed(x, y, gain, bias)
    assert out[2].isnan().all() and out[[0, 1, 3]].isfinite().all()
    for_x, for_y = torch.autograd.grad(out, (x, y), torch.ones_like(out))
    assert for_x[2].isnan().any() and for_x[[0, 1, 3]].isfinite().all()
    assert for_y[[0, 1, 3]].isfinite().all()


def test_nothing_and_what_lies_otherwise_are_taken(isa: str) -> None:
    empty = torch.zeros(0, 8, requires_grad=True)
    out = normed(empty, empty, torch.ones(8), torch.zeros(8))
    assert out.shape == (0, 8) and torch.autograd.grad(out.sum(), empty)[0].shape == (0, 8)
    x, y, gain, bias = case((24, 6), torch.float32)
    torch.manual_seed(1)
    plain = normed(x[::2], y[::2], gain, bias)
    torch.manual_seed(1)
    turned = normed(x[::2].t().contiguous().t(), y[::2].t().contiguous().t(), gain, bias)
    assert torch.equal(plain, turned)
    one = torch.ones(()).expand(12, 6)
    grads = [torch.autograd.grad(out, (x, y, gain, bias), one) for out in (plain, turned)]
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))


def test_gradients_of_gradients_are_refused(isa: str) -> None:
    x, y, gain, bias = case((4, 6), torch.float32)
    for one in (residual(x, y, 26), normed(x, y, gain, bias)):
        assert one is not None
        with pytest.raises(RegardError, match="no gradients of gradients"):
            torch.autograd.grad(one.square().sum(), x, create_graph=True)


def test_what_is_not_for_the_kernel_is_left_to_pytorch(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, gain, bias = (tensor.detach() for tensor in case((4, 6), torch.float32))
    assert residual(x.double(), y.double(), 26) is None
    assert residual(x.to("meta"), y.to("meta"), 26) is None
    assert residual_norm(x, y, 26, Affine(gain.double(), bias.double(), 1e-5)) is None
    monkeypatch.setenv("REGARD_KERNELS", "off")
    assert residual(x, y, 26) is None


def test_a_module_with_hooks_is_called(isa: str) -> None:
    x, y, *_ = case((4, 9, 32), torch.float32)
    dropout, norm = Dropout(0.1), nn.LayerNorm(32)
    seen: list[nn.Module] = []
    handle = norm.register_forward_hook(lambda module, given, out: seen.append(module))
    add_and_norm(x, y, dropout, norm)
    handle.remove()
    dropout.register_forward_pre_hook(lambda module, given: seen.append(module))
    add_and_norm(x, y, dropout, norm)
    add(x, y, dropout)
    assert seen == [norm, dropout, dropout]


@pytest.mark.parametrize("norm", [nn.LayerNorm(32), nn.LayerNorm(32, bias=False), nn.RMSNorm(32)])
def test_layers_use_it_in_training_alone(
    isa: str, norm: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, *_ = case((4, 9, 32), torch.float32)
    dropout = Dropout(0.1).eval()
    assert torch.equal(add(x, y, dropout), x + y)
    assert torch.equal(add_and_norm(x, y, dropout, norm)[0], norm(x + y))
    calls = []
    monkeypatch.setattr(kernel, "_seed", lambda: calls.append(1) or 77)
    factor = residual(torch.zeros(4, 9, 32), torch.ones(4, 9, 32), 26)
    calls.clear()
    dropout.train()
    torch.testing.assert_close(add(x, y, dropout), x + y * factor)
    assert len(calls) == 1
    out, _ = add_and_norm(x, y, dropout, norm)
    torch.testing.assert_close(out, norm(x + y * factor))
    assert len(calls) == 2
