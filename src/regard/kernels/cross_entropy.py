"""The cross-entropy of rows of logits in one go, its slopes written over them."""

import torch

from regard.kernels.native import module, team, wanted_for
from regard.shapes import Float, Int, Tensor

_TYPES = (torch.float32, torch.bfloat16)


def native_slopes_(
    logits_nv: Float[Tensor, "n v"],
    targets_n: Int[Tensor, " n"],
    label_smoothing: float,
    *,
    write: bool = True,
) -> Float[Tensor, "2"] | None:
    """What `slopes_` of training/losses.py does; None, and nothing done, where it isn't for this.

    The maximum, the sum of exponentials and the slopes of a row are three passes over a row that
    lies in the cache, where PyTorch's softmax, gathers and casts go over memory seven times.

    Raises:
        IndexError: a target is outside of the vocabulary.
    """
    fitting = (
        logits_nv.dtype in _TYPES
        and targets_n.dtype == torch.int64
        and logits_nv.ndim == 2
        and targets_n.shape == logits_nv.shape[:1]
        and logits_nv.is_contiguous()
    )
    if not fitting or not wanted_for(logits_nv, targets_n):
        return None
    rows, columns = logits_nv.shape
    targets_n = targets_n.contiguous()
    sums_2n = torch.empty(2, rows, dtype=torch.float64)
    module().loss(
        logits_nv.data_ptr(),
        logits_nv.dtype == torch.bfloat16,
        rows,
        columns,
        targets_n.data_ptr(),
        label_smoothing,
        write,
        sums_2n[0].data_ptr(),
        sums_2n[1].data_ptr(),
        *team(),
    )
    return sums_2n.sum(1).to(torch.float32)
