"""Attention to every token that may be seen."""

from regard.nn.attention import Heads
from regard.nn.cache import Past, PastKeysValues, RecurrentState
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.span import Span
from regard.shapes import Float, Tensor


class FullAttention(Heads, Mixer):
    """Multi-head self-attention, by the fastest form for the device and the lengths.

    Its state are the keys and values of all tokens so far: `num_kv_heads (d_k + d_v)` numbers a
    token and row.

    Source: Vaswani et al. 2017, section 3.2.
    """

    def forward(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, past: Past | None = None
    ) -> Float[Tensor, "b q d"]:
        """The layer over the places of a span, after those of `past`, which it moves on."""
        if isinstance(past, RecurrentState):
            raise TypeError("this layer's past is a PastKeysValues")
        query_bhqe, seen = self.project(x_bqd, span.rotation)
        if past is not None:
            seen = past.append(seen)
        return self.join(self.weigh(query_bhqe, seen, span.mask, span.bias))

    def new_past(self) -> PastKeysValues:
        """What to remember of no token yet."""
        return PastKeysValues()

    def weights(self, x_bqd: Float[Tensor, "b q d"], span: Span) -> Float[Tensor, "b h q k"]:
        """What each place takes from each, head by head, in a whole pass over `x_bqd`."""
        query_bhqe, seen = self.project(x_bqd, span.rotation)
        return self.weights_of(query_bhqe, seen.key_bhke, span.mask, span.bias)
