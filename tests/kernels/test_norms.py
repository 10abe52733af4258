import math

import pytest
import torch
from torch.nn import functional

from regard.errors import RegardError
from regard.kernels.residual import Affine, norm, residual, residual_norm

SHAPES = [(1, 2), (3, 7), (2, 5, 16), (33, 64), (70, 100), (3, 4099)]
HALF = torch.bfloat16


def case(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """x, y, gain, bias."""
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = (shape, shape, shape[-1:], shape[-1:])
    return [torch.randn(size, generator=generator).requires_grad_() for size in sizes]


def outputs(
    inputs: list[torch.Tensor], *, added: bool, first: bool, narrow: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two tensors that the kernel makes, with or without y."""
    x, y, gain, bias = inputs
    torch.manual_seed(4)
    affine = Affine(gain, bias, 1e-5)
    if added:
        both = residual_norm(x, y, 26, affine, norm_first=first, narrow=narrow)
    else:
        both = norm(x, affine, narrow=narrow)
    assert both is not None
    return both


def exact(
    inputs: list[torch.Tensor], *, added: bool, first: bool
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """The same in float64, with the inputs that it has gradients for."""
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    z = wide[0]
    if added:
        torch.manual_seed(4)
        factor = residual(torch.zeros(inputs[0].shape), torch.ones(inputs[0].shape), 26)
        assert factor is not None
        z = z + wide[1] * factor.double()
    normed = functional.layer_norm(z, z.shape[-1:], wide[2], wide[3], 1e-5)
    return wide, z if first else normed, normed


def close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    scale = 1 + float(theirs.abs().max())
    torch.testing.assert_close(mine.double(), theirs, rtol=1e-6, atol=2e-6 * scale)


FORMS = [(False, True), (True, True), (True, False)]  # whether y is added, whether the sum is kept


@pytest.mark.parametrize("read", ["both", "first", "second"])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("added", "first"), FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_norm_and_its_gradients_are_those_of_float64_whichever_is_read(
    isa: str, shape: tuple[int, ...], added: bool, first: bool, narrow: bool, read: str
) -> None:
    inputs = case(shape)
    mine = outputs(inputs, added=added, first=first, narrow=narrow)
    wide, *theirs = exact(inputs, added=added, first=first)
    assert mine[1].dtype == (HALF if narrow else torch.float32)
    close(mine[0].detach(), theirs[0].detach())
    outer = [torch.randn(shape).to(each.dtype) for each in mine]
    at = {"both": [0, 1], "first": [0], "second": [1]}[read]
    got = torch.autograd.grad(
        [mine[i] for i in at], inputs, [outer[i] for i in at], allow_unused=True
    )
    wanted = torch.autograd.grad(
        [theirs[i] for i in at], wide, [outer[i].double() for i in at], allow_unused=True
    )
    assert (got[1] is None) == (not added)
    for made, expected in zip(got, wanted, strict=True):
        if expected is not None:
            assert made is not None
            close(made, expected)
        elif made is not None:  # only the sum was read
            assert not made.any()


@pytest.mark.parametrize(("added", "first"), FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_in_bfloat16_it_is_what_a_cast_makes_of_it(
    isa: str, shape: tuple[int, ...], added: bool, first: bool
) -> None:
    inputs = case(shape)
    wide = outputs(inputs, added=added, first=first, narrow=False)
    narrow = outputs(inputs, added=added, first=first, narrow=True)
    assert torch.equal(narrow[0], wide[0]) and torch.equal(narrow[1], wide[1].to(HALF))


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("added", "first"), FORMS)
def test_any_number_of_threads_gives_the_same_bits(
    isa: str, added: bool, first: bool, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[torch.Tensor]:
        inputs = case((150, 48))
        both = outputs(inputs, added=added, first=first, narrow=narrow)
        total = both[0].square().sum() + both[1].float().cos().sum()
        got = torch.autograd.grad(total, inputs, allow_unused=True)
        return [*both, *(each for each in got if each is not None)]

    alone = run()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(*pair) for pair in zip(alone, run(), strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_row(isa: str, bad: float) -> None:
    inputs = case((4, 32))
    with torch.no_grad():
        inputs[0][2, 5] = bad
    x, made = outputs(inputs, added=False, first=True, narrow=True)
    assert made[2].isnan().all() and made[[0, 1, 3]].isfinite().all()
    (got,) = torch.autograd.grad([x, made], inputs[0], [torch.ones(4, 32), torch.ones_like(made)])
    assert got[2].isnan().any() and got[[0, 1, 3]].isfinite().all()


def test_nothing_and_what_lies_otherwise_are_taken(isa: str) -> None:
    x, _, gain, bias = case((24, 6))
    empty = x[:0]
    both = outputs([empty, empty, gain, bias], added=False, first=True, narrow=True)
    assert both[1].shape == (0, 6) and not torch.autograd.grad(both[1].sum(), gain)[0].any()
    plain = outputs([x[::2], x, gain, bias], added=False, first=True, narrow=True)
    turned = outputs([x[::2].t().contiguous().t(), x, gain, bias], added=False, first=True,
                     narrow=True)  # fmt: skip
    assert all(torch.equal(*pair) for pair in zip(plain, turned, strict=True))
    one = [torch.ones(()).expand(12, 6), torch.ones((), dtype=HALF).expand(12, 6)]
    grads = [torch.autograd.grad(each, (x, gain, bias), one) for each in (plain, turned)]
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))


def test_inputs_and_norms_that_learn_nothing_are_taken(isa: str) -> None:
    x, _, gain, bias = case((24, 6))
    wide, _, normed = exact([x, x, gain, bias], added=False, first=True)
    (for_x, for_gain) = torch.autograd.grad(normed.sin().sum(), (wide[0], wide[2]))
    fixed_norm = norm(x, Affine(gain.detach(), bias.detach(), 1e-5), narrow=False)
    fixed_input = norm(x.detach(), Affine(gain, bias, 1e-5), narrow=False)
    assert fixed_norm is not None and fixed_input is not None
    close(torch.autograd.grad(fixed_norm[1].sin().sum(), x)[0], for_x)
    close(torch.autograd.grad(fixed_input[1].sin().sum(), gain)[0], for_gain)


def test_gradients_of_gradients_are_refused(isa: str) -> None:
    inputs = case((4, 6))
    _, made = outputs(inputs, added=False, first=True, narrow=False)
    with pytest.raises(RegardError, match="no gradients of gradients"):
        torch.autograd.grad(made.square().sum(), inputs[0], create_graph=True)


def test_what_is_not_for_the_kernel_is_left_to_pytorch(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _, gain, bias = (tensor.detach() for tensor in case((4, 6)))
    affine = Affine(gain, bias, 1e-5)
    assert norm(x.double(), affine, narrow=False) is None
    assert norm(x.to(HALF), affine, narrow=False) is None
    assert norm(x.to("meta"), affine, narrow=False) is None
    assert norm(x, Affine(gain.double(), bias.double(), 1e-5), narrow=False) is None
    assert norm(x[:, :3], affine, narrow=False) is None
    monkeypatch.setenv("REGARD_KERNELS", "off")
    assert norm(x, affine, narrow=False) is None
