"""The position-wise feed-forward network in its plain and its gated form."""

from typing import Literal, assert_never

from torch import nn
from torch.nn import functional

from regard.nn.config import FeedForwardKind
from regard.nn.dropout import Dropout
from regard.shapes import Float, Tensor


class FeedForward(nn.Module):
    """`activation(x W1 + b1) W2 + b2`, with ReLU or exact GELU.

    Source: Vaswani et al. 2017, equation 2; GELU: arXiv:1606.08415.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: Literal["relu", "gelu"], dropout: float
    ) -> None:
        super().__init__()
        self.activation = activation
        self.input = nn.Linear(d_model, d_ff)
        self.output = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        for linear in (self.input, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """Each vector by itself through the two layers."""
        inner = self.input(x)
        inner = functional.relu(inner) if self.activation == "relu" else functional.gelu(inner)
        y: Tensor = self.output(self.dropout(inner))
        return y


class GatedFeedForward(nn.Module):
    """`(swish(x W) * x V) W2`, three matrices and no biases, as in its source.

    `W` and `V` are kept as one matrix, `W` first.

    Source: Shazeer 2020, arXiv:2002.05202, equation 6.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.output = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)
        for matrix in (*self.input.weight.chunk(2), self.output.weight):
            nn.init.xavier_uniform_(matrix)

    def forward(self, x: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """Each vector by itself through the gated layers."""
        gate, inner = self.input(x).chunk(2, dim=-1)
        y: Tensor = self.output(self.dropout(functional.silu(gate) * inner))
        return y


def build_feed_forward(
    kind: FeedForwardKind, d_model: int, d_ff: int, *, dropout: float
) -> nn.Module:
    """The feed-forward network of that kind; `dropout` acts on its inner activations."""
    match kind:
        case "relu" | "gelu":
            return FeedForward(d_model, d_ff, activation=kind, dropout=dropout)
        case "swiglu":
            return GatedFeedForward(d_model, d_ff, dropout=dropout)
        case _ as never:
            assert_never(never)
