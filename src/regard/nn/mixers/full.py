"""Attention to every token that may be seen."""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from regard.nn.attention import LONG_SEQUENCE, Heads
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
        query_bhqe, seen = self.project(span.tokens_of(x_bqd), span.rotation)
        out = self.weigh_stretches(query_bhqe, seen, lambda: span.sight)
        if out is not None:
            if past is not None:
                past.append(seen)
            return self.join(out)
        if past is not None:
            seen = past.append(seen)
        on_cpu, dropout = x_bqd.device.type == "cpu", self.dropout if self.training else 0.0
        short = on_cpu and (span.size <= LONG_SEQUENCE or dropout > 0.0)
        if span.up_to_itself and not short and span.bias is None:
            # No mask is made, and half of the scores are never computed.
            sharing = self.num_heads // self.num_kv_heads
            key, value = (x.repeat_interleave(sharing, 1) for x in seen[:2])
            out = attend_causal(query_bhqe, key, value, scale=self.scale, dropout=dropout)
        else:
            out = self.weigh(query_bhqe, seen, span.mask, span.bias)
        return self.join(out)

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


def attend_causal(
    query: Float[Tensor, "b h n e"],
    key: Float[Tensor, "b h n e"],
    value: Float[Tensor, "b h n w"],
    *,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h n w"]:
    """What `attend` gives where each place sees all up to its own, without any mask in memory.

    A key or value that is not finite makes NaN of its place and of those after it, of no other.
    """
    spoilt_bhn1 = None
    bad_bhn = ~(key.isfinite().all(-1) & value.isfinite().all(-1))
    if query.device.type != "cpu" or bool(bad_bhn.any()):
        spoilt_bhn1 = bad_bhn.cummax(-1).values[..., None]
        key, value = (x.masked_fill(bad_bhn[..., None], 0.0) for x in (key, value))
    with torch.autocast(query.device.type, enabled=False):
        out = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, scale=scale
        )
    return out if spoilt_bhn1 is None else out.masked_fill(spoilt_bhn1, math.nan)
