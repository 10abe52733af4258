import math

import pytest
import torch

from regard.kernels import native
from regard.kernels.cross_entropy import native_slopes_
from regard.training import losses
from regard.training.losses import linear_cross_entropy, slopes_

TYPES = [torch.float32, torch.bfloat16]
SHAPES = [(1, 1), (5, 37), (9, 64), (3, 4099), (33, 130), (2, 2**15 + 37)]


def case(
    dtype: torch.dtype, n: int, v: int, scale: float = 3.0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n + v)
    logits_nv = torch.randn(n, v, generator=generator) * scale
    return logits_nv.to(dtype), torch.randint(0, v, (n,), generator=generator)


def exact(
    logits_nv: torch.Tensor, targets_n: torch.Tensor, smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sums and the slopes, by autograd in float64."""
    wide_nv = logits_nv.double().requires_grad_()
    loss = torch.nn.functional.cross_entropy
    smoothed = loss(wide_nv, targets_n, reduction="sum", label_smoothing=smoothing)
    (slopes_nv,) = torch.autograd.grad(smoothed, wide_nv)
    nll = loss(wide_nv, targets_n, reduction="sum")
    return torch.stack((smoothed, nll)).detach(), slopes_nv


def plain(monkeypatch: pytest.MonkeyPatch, logits_nv: torch.Tensor, *more: object) -> torch.Tensor:
    """What PyTorch's form writes over the logits."""
    monkeypatch.setattr(losses, "native_slopes_", lambda *given, **named: None)
    written = logits_nv.clone()
    slopes_(written, *more)
    return written


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize(("n", "v"), SHAPES)
def test_float32_sums_and_slopes_are_those_of_float64_to_a_millionth(
    isa: str, n: int, v: int, smoothing: float
) -> None:
    logits_nv, targets_n = case(torch.float32, n, v)
    sums, slopes_nv = exact(logits_nv, targets_n, smoothing)
    found = native_slopes_(logits_nv, targets_n, smoothing)
    assert found is not None and found.dtype == torch.float32
    torch.testing.assert_close(found.double(), sums, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(logits_nv.double(), slopes_nv, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "v"), SHAPES)
def test_bfloat16_slopes_err_no_more_than_twice_as_much_as_torchs(
    isa: str, n: int, v: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits_nv, targets_n = case(torch.bfloat16, n, v)
    sums, slopes_nv = exact(logits_nv, targets_n, 0.1)
    theirs = plain(monkeypatch, logits_nv, targets_n, 0.1)
    found = native_slopes_(logits_nv, targets_n, 0.1)
    torch.testing.assert_close(found.double(), sums, rtol=1e-6, atol=1e-6)
    mine_off = (logits_nv.double() - slopes_nv).abs().max()
    assert mine_off <= 2 * (theirs.double() - slopes_nv).abs().max() + 1e-12


@pytest.mark.parametrize("dtype", TYPES)
def test_every_instruction_set_gives_the_same_within_rounding(isa: str, dtype: torch.dtype) -> None:
    logits_nv, targets_n = case(dtype, 7, 1003)
    other_nv = logits_nv.clone()
    found = native_slopes_(logits_nv, targets_n, 0.1)
    native.module().use_isa("portable")
    torch.testing.assert_close(found, native_slopes_(other_nv, targets_n, 0.1), rtol=1e-6, atol=0)
    close = 1e-6 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(logits_nv, other_nv, rtol=close, atol=1e-7)


@pytest.mark.parametrize("dtype", TYPES)
def test_any_number_of_threads_gives_the_same_bits(
    isa: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits_nv, targets_n = case(dtype, 67, 300)
    other_nv = logits_nv.clone()
    found = native_slopes_(logits_nv, targets_n, 0.1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(found, native_slopes_(other_nv, targets_n, 0.1))
    assert torch.equal(logits_nv, other_nv)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("spoilt", [math.nan, math.inf])
def test_a_row_with_a_nan_or_an_infinity_is_nan_and_touches_no_other(
    isa: str, dtype: torch.dtype, spoilt: float
) -> None:
    logits_nv, targets_n = case(dtype, 3, 50)
    clean_nv = logits_nv.clone()
    logits_nv[1, 20] = spoilt
    found = native_slopes_(logits_nv, targets_n, 0.1)
    native_slopes_(clean_nv, targets_n, 0.1)
    assert found.isnan().all() and logits_nv[1].isnan().all()
    assert torch.equal(logits_nv[::2], clean_nv[::2])


def test_a_token_ruled_out_has_no_slope_and_costs_nothing_without_smoothing(isa: str) -> None:
    logits_nv, targets_n = case(torch.float32, 3, 50)
    logits_nv[:, 20] = -math.inf
    targets_n[:] = 7
    sums, slopes_nv = exact(logits_nv, targets_n, 0.0)
    found = native_slopes_(logits_nv, targets_n, 0.0)
    torch.testing.assert_close(found.double(), sums, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(logits_nv.double(), slopes_nv, rtol=1e-6, atol=1e-6)
    assert (logits_nv[:, 20] == 0).all()


@pytest.mark.parametrize("scale", [1e-30, 300.0, 1e30])
def test_tiny_and_huge_logits_are_as_in_float64(isa: str, scale: float) -> None:
    logits_nv, targets_n = case(torch.float32, 9, 64, scale)
    sums, slopes_nv = exact(logits_nv, targets_n, 0.1)
    found = native_slopes_(logits_nv, targets_n, 0.1)
    torch.testing.assert_close(found.double(), sums, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(logits_nv.double(), slopes_nv, rtol=1e-6, atol=1e-6)


def test_without_writing_the_logits_stay(isa: str) -> None:
    logits_nv, targets_n = case(torch.float32, 4, 30)
    before = logits_nv.clone()
    kept = native_slopes_(logits_nv, targets_n, 0.1, write=False)
    assert torch.equal(logits_nv, before)
    assert torch.equal(kept, native_slopes_(logits_nv, targets_n, 0.1))


def test_no_rows_have_no_loss(isa: str) -> None:
    empty = torch.empty(0, dtype=torch.int64)
    assert native_slopes_(torch.empty(0, 9), empty, 0.1).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("target", [-1, 9])
def test_a_target_outside_of_the_vocabulary_is_refused(isa: str, target: int) -> None:
    with pytest.raises(IndexError, match="a target is outside of the vocabulary"):
        native_slopes_(torch.zeros(2, 9), torch.tensor([3, target]), 0.1)


def test_what_is_not_for_the_kernel_is_left_to_pytorch(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits_nv, targets_n = case(torch.float32, 4, 30)
    assert native_slopes_(logits_nv.double(), targets_n, 0.1) is None
    assert native_slopes_(logits_nv.t().contiguous().t(), targets_n, 0.1) is None
    assert native_slopes_(logits_nv, targets_n.to(torch.int32), 0.1) is None
    assert native_slopes_(logits_nv.to("meta"), targets_n.to("meta"), 0.1) is None
    monkeypatch.setenv("REGARD_KERNELS", "off")
    assert native_slopes_(logits_nv, targets_n, 0.1) is None


@pytest.mark.parametrize("dtype", TYPES)
def test_training_takes_the_kernel_and_loses_nothing_by_it(
    isa: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(5)
    hidden_nd = torch.randn(40, 16, generator=generator).requires_grad_()
    weight_vd = torch.randn(90, 16, generator=generator).requires_grad_()
    targets_n = torch.randint(0, 90, (40,), generator=generator)
    taken = []

    def noted(*given: object, **named: object) -> torch.Tensor | None:
        taken.append(native_slopes_(*given, **named))
        return taken[-1]

    def run() -> list[torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            sums = linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.1, block_rows=16)
        return [sums.smoothed, *torch.autograd.grad(sums.smoothed, (hidden_nd, weight_vd))]

    monkeypatch.setattr(losses, "native_slopes_", noted)
    mine = run()
    assert len(taken) == 3 and all(found is not None for found in taken)
    monkeypatch.setattr(losses, "native_slopes_", lambda *given, **named: None)
    close = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(mine, run(), rtol=close, atol=close)
