"""The position-wise feed-forward network in its plain and its gated form."""

from typing import assert_never

from torch import nn
from torch.nn import functional

from regard.kernels.biases import linear_relu
from regard.kernels.products import Linear
from regard.nn.config import FeedForwardKind, GatedActivation, PlainActivation
from regard.nn.dropout import Dropout
from regard.nn.hooks import is_watched
from regard.shapes import Float, Tensor


def activate(x: Float[Tensor, "*places f"], kind: PlainActivation) -> Float[Tensor, "*places f"]:
    """The activation of that name: ReLU, exact GELU, its approximation by tanh, or swish.

    Source: GELU and its approximation: arXiv:1606.08415; swish: arXiv:1710.05941.
    """
    match kind:
        case "relu":
            return functional.relu(x)
        case "gelu":
            return functional.gelu(x)
        case "gelu_tanh":
            return functional.gelu(x, approximate="tanh")
        case "swish":
            return functional.silu(x)
        case _ as never:
            assert_never(never)


class FeedForward(nn.Module):
    """`activation(x W1 + b1) W2 + b2`.

    Source: Vaswani et al. 2017, equation 2.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: PlainActivation,
        bias: bool = True,
        dropout: float,
    ) -> None:
        super().__init__()
        self.activation: PlainActivation = activation
        self.input = Linear(d_model, d_ff, bias=bias)
        self.output = Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        for linear in (self.input, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """Each vector by itself through the two layers."""
        y: Tensor = self.output(self.dropout(self._inner(x)))
        return y

    def _inner(self, x: Tensor) -> Tensor:
        inner = None
        if self.activation == "relu" and type(self.input) is Linear and not is_watched(self.input):
            inner = linear_relu(x, self.input.weight, self.input.bias)
        return activate(self.input(x), self.activation) if inner is None else inner


# What acts on the gate of each gated kind.
GATES: dict[GatedActivation, PlainActivation] = {
    "swiglu": "swish",
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
}


class GatedFeedForward(nn.Module):
    """`(activation(x W) * x V) W2`, three matrices; in its source without biases.

    `W` and `V` are kept as one matrix, `W` first.

    Source: Shazeer 2020, arXiv:2002.05202, equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        kind: GatedActivation = "swiglu",
        bias: bool = False,
        dropout: float,
    ) -> None:
        super().__init__()
        self.activation = GATES[kind]
        self.input = Linear(d_model, 2 * d_ff, bias=bias)
        self.output = Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        for matrix in (*self.input.weight.chunk(2), self.output.weight):
            nn.init.xavier_uniform_(matrix)
        if bias:
            nn.init.zeros_(self.input.bias)
            nn.init.zeros_(self.output.bias)

    def forward(self, x: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """Each vector by itself through the gated layers."""
        gate, inner = self.input(x).chunk(2, dim=-1)
        y: Tensor = self.output(self.dropout(activate(gate, self.activation) * inner))
        return y


def build_feed_forward(
    kind: FeedForwardKind, d_model: int, d_ff: int, *, bias: bool, dropout: float
) -> nn.Module:
    """The feed-forward network of that kind; `dropout` acts on its inner activations."""
    match kind:
        case "relu" | "gelu" | "gelu_tanh" | "swish":
            return FeedForward(d_model, d_ff, activation=kind, bias=bias, dropout=dropout)
        case "swiglu" | "geglu" | "geglu_tanh":
            return GatedFeedForward(d_model, d_ff, kind=kind, bias=bias, dropout=dropout)
        case _ as never:
            assert_never(never)
