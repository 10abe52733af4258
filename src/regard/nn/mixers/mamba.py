"""A selective state space: a recurrence whose steps depend on what it reads."""

import math

import torch
from torch import nn
from torch.nn import functional

from regard.kernels.products import Linear
from regard.nn.cache import RecurrentState
from regard.nn.mixers.chunks import causal_sums
from regard.nn.mixers.config import MambaConfig
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Float, Tensor


class Mamba(RowMixer):
    """`S_t = exp(-a dt_t) S_(t-1) + dt_t B_t x_t^T`, `y_t = C_t S_t + D x_t`, head by head.

    x, B and C are projections of the input behind a short causal convolution and swish; the step
    dt is a projection too, so that the layer chooses what it keeps. The output is gated and
    normalised. With one number a for each head, the recurrence is the same as attention without
    softmax under a mask of decays (its dual form), and is computed in chunks of that.

    It sees the past only. Its state are `num_heads state (expand d_model / num_heads)` numbers a
    row, and the last `width - 1` inputs of the convolution, `expand d_model + 2 state` each.

    Source: Gu and Dao 2023 (Mamba), arXiv:2312.00752; in this form Dao and Gu 2024 (Mamba-2),
    arXiv:2405.21060, section 7.
    """

    def __init__(self, config: MambaConfig, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.inner = config.expand * d_model
        self.states = config.state
        self.num_heads = num_heads
        self.width = config.width
        self.mixed = self.inner + 2 * config.state
        self.input = Linear(d_model, self.inner + self.mixed + num_heads, bias=False)
        self.near = nn.Parameter(torch.empty(self.mixed, config.width))
        self.near_bias = nn.Parameter(torch.zeros(self.mixed))
        self.step_bias = nn.Parameter(torch.empty(num_heads))
        self.log_rate = nn.Parameter(torch.empty(num_heads))
        self.skip = nn.Parameter(torch.ones(num_heads))
        self.gain = nn.Parameter(torch.ones(self.inner))
        self.output = Linear(self.inner, d_model, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """Steps between 0.001 and 0.1, rates between 1 and 16, as in the source."""
        for linear in (self.input, self.output):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.uniform_(self.near, -(self.width**-0.5), self.width**-0.5)
        with torch.no_grad():
            steps = torch.empty_like(self.step_bias).uniform_(math.log(1e-3), math.log(0.1)).exp()
            self.step_bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # softplus undone
            self.log_rate.uniform_(1, 16).log_()

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding neither decays the state nor adds to it."""
        widths = [self.inner, self.mixed, self.num_heads]
        gate, mixed, steps = torch.split(self.input(x_nld), widths, -1)
        kept = past.tensors if past is not None else ()
        near_nkm = torch.cat([kept[1], mixed], 1) if kept else mixed
        with torch.autocast(x_nld.device.type, enabled=False):
            query, key, value, log_decay, x_nhlp = self.parts(near_nkm, steps, rows)
            out, state = causal_sums(
                query, key, value, kept[0] if kept else None, log_decay=log_decay
            )
            out = out + self.skip[:, None, None] * x_nhlp
        if past is not None:
            past.tensors = (state, rows.last(near_nkm[:, None], self.width - 1)[:, 0])
        gated = out.transpose(1, 2).flatten(-2).to(gate.dtype) * functional.silu(gate)
        gain = self.gain.to(gated.dtype)
        y: Tensor = self.output(functional.rms_norm(gated, (self.inner,), gain, 1e-5))
        return y

    def parts(
        self, near_nkm: Float[Tensor, "n k m"], steps_nlh: Float[Tensor, "n l h"], rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """C, B, `dt x`, `-a dt` and x, head by head: as queries, keys, values and log decays."""
        wide = torch.promote_types(near_nkm.dtype, torch.float32)
        widths = [self.inner, self.states, self.states]
        x, key, query = torch.split(self._convolved(near_nkm.to(wide), rows), widths, -1)
        step_nlh = functional.softplus(steps_nlh.to(wide) + self.step_bias)
        if rows.mask_nl is not None:
            step_nlh = step_nlh.masked_fill(~rows.mask_nl[..., None], 0.0)
        log_decay = -self.log_rate.exp() * step_nlh
        x_nhlp = x.reshape(*x.shape[:2], self.num_heads, -1).transpose(1, 2)
        value = x_nhlp * step_nlh.transpose(1, 2)[..., None]
        key, query = (part[:, None].expand(-1, self.num_heads, -1, -1) for part in (key, query))
        return query, key, value, log_decay.transpose(1, 2), x_nhlp

    def _convolved(self, near_nkm: Tensor, rows: Rows) -> Tensor:
        """Each number with its `width - 1` predecessors, then swish."""
        missing = self.width - 1 - (near_nkm.shape[1] - rows.length)
        padded = functional.pad(near_nkm, (0, 0, missing, 0))
        taps = [padded[:, tap : tap + rows.length] * self.near[:, tap] for tap in range(self.width)]
        return functional.silu(torch.stack(taps).sum(0) + self.near_bias)
