"""The simpler simple recurrent unit: a sequence layer with a state of one vector."""

import torch
from torch import nn
from torch.nn import functional

from regard.kernels.products import Linear
from regard.nn.cache import RecurrentState
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Float, Tensor


class SSRU(RowMixer):
    """`c_t = f_t c_{t-1} + (1 - f_t) W x_t`, with `f_t = sigmoid(W_f x_t + b_f)`; gives relu(c_t).

    It sees the past only, and its state is `d_model` numbers a row, however long the past is.

    Source: Kim et al. 2019, "From research to production and back", WNGT, section 3.1.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value = Linear(d_model, d_model, bias=False)
        self.forget = Linear(d_model, d_model)
        for linear in (self.value, self.forget):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.forget.bias)

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding leaves the state as it is."""
        forget_nld = torch.sigmoid(self.forget(x_nld))
        value_nld = self.value(x_nld)
        if rows.mask_nl is not None:
            forget_nld = torch.where(rows.mask_nl[..., None], forget_nld, 1.0)
            value_nld = torch.where(rows.mask_nl[..., None], value_nld, 0.0)
        added_nld = (1 - forget_nld) * value_nld
        if past is not None and past.tensors:
            (state_nd,) = past.tensors
        else:
            state_nd = torch.zeros_like(added_nld[:, 0])
        states = []
        for forget_nd, added_nd in zip(forget_nld.unbind(1), added_nld.unbind(1), strict=True):
            state_nd = forget_nd * state_nd + added_nd
            states.append(state_nd)
        if past is not None:
            past.tensors = (state_nd,)
        return functional.relu(torch.stack(states, 1))
