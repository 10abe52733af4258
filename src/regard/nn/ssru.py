"""The simpler simple recurrent unit: a sequence layer with a state of one vector."""

import torch
from torch import nn
from torch.nn import functional

from regard.nn.cache import RecurrentState
from regard.shapes import Bool, Float, Tensor


class SSRU(nn.Module):
    """`c_t = f_t c_{t-1} + (1 - f_t) W x_t`, with `f_t = sigmoid(W_f x_t + b_f)`; gives relu(c_t).

    It sees the past only, and its state is `d_model` numbers a row, however long the past is.
    A place that holds no token leaves the state as it is.

    Source: Kim et al. 2019, "From research to production and back", WNGT, section 3.1.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.forget = nn.Linear(d_model, d_model)
        for linear in (self.value, self.forget):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(
        self,
        x_btd: Float[Tensor, "b t d"],
        mask_bt: Bool[Tensor, "#b t"] | None = None,
        *,
        past: RecurrentState | None = None,
    ) -> Float[Tensor, "b t d"]:
        """The layer over all places, after those of `past`, whose state it moves on."""
        forget_btd = torch.sigmoid(self.forget(x_btd))
        value_btd = self.value(x_btd)
        if mask_bt is not None:
            forget_btd = torch.where(mask_bt[..., None], forget_btd, 1.0)
            value_btd = torch.where(mask_bt[..., None], value_btd, 0.0)
        added_btd = (1 - forget_btd) * value_btd
        state_bd = None if past is None else past.state_rd
        if state_bd is None:
            state_bd = torch.zeros_like(added_btd[:, 0])
        states = []
        for place in range(x_btd.shape[1]):
            state_bd = forget_btd[:, place] * state_bd + added_btd[:, place]
            states.append(state_bd)
        if past is not None:
            past.state_rd = state_bd
        return functional.relu(torch.stack(states, 1))
