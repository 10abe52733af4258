"""Recurrent networks as sequence layers: RNN, LSTM and GRU."""

from typing import Literal, assert_never

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.kernels.products import Linear
from regard.nn.cache import RecurrentState
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Float, Tensor

Cell = Literal["rnn", "lstm", "gru"]


class Recurrence(RowMixer):
    """A recurrent network over the sequence, then a projection.

    `rnn`: `h_t = tanh(W x_t + b + U h_(t-1) + c)` (Elman 1990); `lstm`: Hochreiter and
    Schmidhuber 1997, with a forget gate; `gru`: Cho et al. 2014, arXiv:1406.1078. In an encoder
    there is one in each direction (Schuster and Paliwal 1997), and both are projected together.

    n steps of 2 d^2 products (rnn; four times that for lstm, three for gru), one after the
    other. Its state are `d_model` numbers a row, of an lstm twice that.
    """

    def __init__(self, cell: Cell, d_model: int, *, causal: bool) -> None:
        super().__init__()
        both = not causal
        self.cell: nn.RNNBase
        match cell:
            case "rnn":
                self.cell = nn.RNN(d_model, d_model, batch_first=True, bidirectional=both)
            case "lstm":
                self.cell = nn.LSTM(d_model, d_model, batch_first=True, bidirectional=both)
            case "gru":
                self.cell = nn.GRU(d_model, d_model, batch_first=True, bidirectional=both)
            case _ as never:
                assert_never(never)
        self.output = Linear((1 + both) * d_model, d_model)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows; each ends with its last token."""
        before = None
        if past is not None and past.tensors:
            # Rows come first in a state, and second in what torch takes.
            before = tuple(tensor.transpose(0, 1).contiguous() for tensor in past.tensors)
        given = before[0] if before is not None and len(before) == 1 else before
        if rows.count_n is None:
            y_nlh, after = self.cell(x_nld, given)
        else:
            counts = rows.count_n.clamp(min=1).cpu()
            packed = pack_padded_sequence(x_nld, counts, batch_first=True, enforce_sorted=False)
            y_packed, after = self.cell(packed, given)
            y_nlh, _ = pad_packed_sequence(y_packed, batch_first=True, total_length=rows.length)
        if past is not None:
            past.tensors = self._after(after, before, rows)
        y: Tensor = self.output(y_nlh)
        return y

    def _after(
        self, after: Tensor | tuple[Tensor, ...], before: tuple[Tensor, ...] | None, rows: Rows
    ) -> tuple[Tensor, ...]:
        """The state after each row's last token; rows without any keep what they had."""
        states = after if isinstance(after, tuple) else (after,)
        if rows.count_n is not None:
            old = before if before is not None else tuple(map(torch.zeros_like, states))
            some_1n1 = (rows.count_n > 0)[None, :, None]
            states = tuple(
                torch.where(some_1n1, new, kept) for new, kept in zip(states, old, strict=True)
            )
        return tuple(state.transpose(0, 1) for state in states)
