import pytest
import torch
from torch.nn import functional
from training.digits import DigitBatches, tiny_model

from regard.errors import RegardError
from regard.nn.masks import padding_mask
from regard.training.losses import (
    label_smoothed_cross_entropy,
    linear_cross_entropy,
    slopes_,
    translation_loss,
)
from regard.training.parts import split_batch

SMOOTHINGS = [0.0, 0.1, 0.5, 0.99]


def case(dtype: torch.dtype, n: int = 23, d: int = 8, v: int = 37) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    hidden_nd = torch.randn(n, d, generator=generator, dtype=dtype).requires_grad_()
    weight_vd = torch.randn(v, d, generator=generator, dtype=dtype).requires_grad_()
    return hidden_nd, weight_vd, torch.randint(0, v, (n,), generator=generator)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("block_rows", [1, 7, 23, 512])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_the_chunked_loss_and_its_gradients_equal_torchs_own(
    dtype: torch.dtype, tolerance: float, block_rows: int, smoothing: float
) -> None:
    hidden_nd, weight_vd, targets_n = case(dtype)
    sums = linear_cross_entropy(hidden_nd, weight_vd, targets_n, smoothing, block_rows=block_rows)
    (sums.smoothed / len(targets_n)).backward()
    mine = [hidden_nd.grad, weight_vd.grad]
    hidden_nd.grad = weight_vd.grad = None
    logits_nv = hidden_nd @ weight_vd.t()
    theirs = functional.cross_entropy(logits_nv, targets_n, label_smoothing=smoothing)
    theirs.backward()
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(sums.smoothed / len(targets_n), theirs, **close)
    torch.testing.assert_close(
        sums.nll / len(targets_n), functional.cross_entropy(logits_nv, targets_n), **close
    )
    torch.testing.assert_close(mine, [hidden_nd.grad, weight_vd.grad], **close)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("block_rows", [1, 7, 512])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_a_bias_of_the_logits_and_its_gradient_are_those_of_the_plain_form(
    dtype: torch.dtype, tolerance: float, block_rows: int, smoothing: float
) -> None:
    hidden_nd, weight_vd, targets_n = case(dtype)
    bias_v = torch.linspace(-2, 2, len(weight_vd), dtype=dtype).requires_grad_()
    inputs = (hidden_nd, weight_vd, bias_v)
    sums = linear_cross_entropy(
        hidden_nd, weight_vd, targets_n, smoothing, bias_v=bias_v, block_rows=block_rows
    )
    mine = torch.autograd.grad(sums.smoothed * 0.5, inputs)
    logits_nv = hidden_nd @ weight_vd.t() + bias_v
    plain = label_smoothed_cross_entropy(
        logits_nv[None], targets_n[None], torch.ones_like(targets_n, dtype=torch.bool)[None],
        smoothing,
    )  # fmt: skip
    close = {"rtol": 10 * tolerance, "atol": 10 * tolerance}
    torch.testing.assert_close([sums.smoothed, sums.nll], [plain.smoothed, plain.nll], **close)
    torch.testing.assert_close(mine, torch.autograd.grad(plain.smoothed * 0.5, inputs), **close)


def test_a_bias_alone_may_be_trained() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float64)
    bias_v = torch.zeros(len(weight_vd), dtype=torch.float64).requires_grad_()
    hidden_nd, weight_vd = hidden_nd.detach(), weight_vd.detach()
    linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.0, bias_v=bias_v).smoothed.backward()
    slope_nv = torch.softmax(hidden_nd @ weight_vd.t(), -1)
    slope_nv -= functional.one_hot(targets_n, len(weight_vd))
    torch.testing.assert_close(bias_v.grad, slope_nv.sum(0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_plain_loss_counts_real_target_tokens_only(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(5)
    logits_btv = torch.randn(3, 4, 9, generator=generator, dtype=torch.float64).requires_grad_()
    targets_bt = torch.randint(0, 9, (3, 4), generator=generator)
    mask_bt = torch.arange(4) < torch.tensor([[4], [1], [2]])
    sums = label_smoothed_cross_entropy(logits_btv, targets_bt, mask_bt, smoothing)
    theirs = functional.cross_entropy(
        logits_btv.flatten(0, 1),
        targets_bt.masked_fill(~mask_bt, -100).flatten(),
        label_smoothing=smoothing,
        ignore_index=-100,
        reduction="sum",
    )
    torch.testing.assert_close(sums.smoothed, theirs, rtol=1e-12, atol=1e-12)
    sums.smoothed.backward()
    assert logits_btv.grad is not None
    assert not logits_btv.grad[~mask_bt].any()
    assert logits_btv.grad[mask_bt].any()


def test_a_tied_weight_gets_the_gradients_of_both_its_places() -> None:
    _, weight_vd, targets_n = case(torch.float64)
    inputs_n = targets_n.flip(0)
    sums = linear_cross_entropy(weight_vd[inputs_n], weight_vd, targets_n, 0.1, block_rows=5)
    (sums.smoothed * 3).backward()
    mine, weight_vd.grad = weight_vd.grad, None
    logits_nv = weight_vd[inputs_n] @ weight_vd.t()
    loss = functional.cross_entropy(logits_nv, targets_n, label_smoothing=0.1, reduction="sum")
    (loss * 3).backward()
    torch.testing.assert_close(mine, weight_vd.grad, rtol=1e-10, atol=1e-10)


def test_a_frozen_weight_or_no_gradient_mode_costs_no_gradients() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float64)
    weight_vd.requires_grad_(False)
    linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.1).smoothed.backward()
    assert hidden_nd.grad is not None
    assert weight_vd.grad is None
    with torch.no_grad():
        sums = linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.1)
    assert not sums.smoothed.requires_grad


def test_under_autocast_the_loss_is_that_of_bfloat16_logits_summed_in_float32() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float32, n=600)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.1)
    logits_nv = (hidden_nd.bfloat16() @ weight_vd.bfloat16().t()).float()
    theirs = functional.cross_entropy(logits_nv, targets_n, label_smoothing=0.1, reduction="sum")
    assert sums.smoothed.dtype == torch.float32
    torch.testing.assert_close(sums.smoothed, theirs, rtol=1e-6, atol=1e-6)
    sums.smoothed.backward()
    mine, weight_vd.grad = weight_vd.grad, None
    hidden_nd.grad = None
    full = functional.cross_entropy(
        hidden_nd @ weight_vd.t(), targets_n, label_smoothing=0.1, reduction="sum"
    )
    full.backward()
    assert mine is not None
    assert weight_vd.grad is not None
    assert mine.dtype == torch.float32
    assert (mine - weight_vd.grad).norm() < 0.02 * weight_vd.grad.norm()


def test_no_more_than_a_block_of_logits_is_ever_held() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float32, n=4000, d=4, v=500)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: object, types: object, args: tuple = (), kwargs: object = None
        ) -> object:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for item in out if isinstance(out, tuple) else (out,):
                if isinstance(item, torch.Tensor):
                    largest = max(largest, item.numel())
            return out

    with Watch():
        linear_cross_entropy(
            hidden_nd, weight_vd, targets_n, 0.1, block_rows=64
        ).smoothed.backward()
    assert largest == 64 * 500


def test_a_models_loss_is_that_of_its_logits_at_real_places() -> None:
    model = tiny_model().double()
    batch = DigitBatches().batch(0, 0)
    (part,) = split_batch(batch, 1)
    sums = translation_loss(model, part, 0.1)
    source_mask_bs = padding_mask(batch.source_lengths_b, batch.source_bs.shape[1])
    target_mask_bt = padding_mask(batch.target_lengths_b, batch.target_in_bt.shape[1])
    logits_btv = model(batch.source_bs, batch.target_in_bt, source_mask_bs)
    plain = label_smoothed_cross_entropy(logits_btv, batch.target_out_bt, target_mask_bt, 0.1)
    torch.testing.assert_close(
        (sums.smoothed, sums.nll), (plain.smoothed, plain.nll), rtol=1e-10, atol=1e-10
    )


def test_the_gradients_are_given_away_once() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float32)
    smoothed = linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.1).smoothed
    smoothed.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        smoothed.backward()


def test_gradients_of_gradients_are_refused() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float32)
    smoothed = linear_cross_entropy(hidden_nd, weight_vd, targets_n, 0.1).smoothed
    with pytest.raises(RegardError, match="no gradients of gradients"):
        torch.autograd.grad(smoothed, hidden_nd, create_graph=True)


def test_the_loss_of_no_token_is_zero_and_so_are_its_gradients() -> None:
    hidden_nd, weight_vd, targets_n = case(torch.float32)
    linear_cross_entropy(hidden_nd[:0], weight_vd, targets_n[:0], 0.1).smoothed.backward()
    assert weight_vd.grad is not None
    assert not weight_vd.grad.any()


def test_a_target_whose_probability_underflows_has_a_finite_loss_and_slope() -> None:
    logits_nv = torch.tensor([[0.0, 500.0, -500.0], [3.0, 1.0, 2.0]])
    targets_n = torch.tensor([2, 0])
    plain_nv = logits_nv.double().requires_grad_()
    plain = functional.cross_entropy(plain_nv, targets_n, label_smoothing=0.1, reduction="sum")
    plain.backward()
    smoothed, nll = slopes_(logits_nv, targets_n, 0.1)
    theirs = functional.cross_entropy(plain_nv, targets_n, reduction="sum")
    torch.testing.assert_close(smoothed.double(), plain, rtol=1e-6, atol=0)
    torch.testing.assert_close(nll.double(), theirs, rtol=1e-6, atol=0)
    torch.testing.assert_close(logits_nv.double(), plain_nv.grad, rtol=1e-6, atol=1e-6)


def test_without_writing_the_logits_stay_and_the_sums_are_the_same() -> None:
    logits_nv = torch.randn(9, 11, generator=torch.Generator().manual_seed(1))
    before_nv = logits_nv.clone()
    targets_n = torch.arange(9)
    sums = slopes_(logits_nv, targets_n, 0.1, write=False)
    assert torch.equal(logits_nv, before_nv)
    assert torch.equal(sums, slopes_(logits_nv, targets_n, 0.1))
    assert not torch.equal(logits_nv, before_nv)
