"""Attention to every token that may be seen."""

from collections.abc import Sequence

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

    def weights(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, heads: Sequence[int] | None = None
    ) -> Float[Tensor, "b h q k"]:
        """What each place takes from each in a whole pass over `x_bqd`, head by head."""
        if span.mask_bq is not None:
            x_bqd = x_bqd.masked_fill(~span.mask_bq[..., None], 0.0)
        query_bhqe, seen = self.project(x_bqd, span.rotation)
        weights_bhqk = self.weights_of(query_bhqe, seen.key_bhke, span.mask, span.bias, heads)
        if span.mask_bq is None:
            return weights_bhqk
        return weights_bhqk.masked_fill(~span.mask_bq[:, None, :, None], 0.0)
