"""Scaled dot-product attention: its plain form, which every faster form equals, and the module."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from regard.errors import ModelError
from regard.kernels.attention import FEWEST, Sight, attention, fits, parted
from regard.kernels.products import Linear, linear
from regard.nn.cache import KeysValues, PastKeysValues
from regard.nn.dropout import dropout as drop
from regard.nn.rotary import Rotation, rotate
from regard.shapes import Bool, Float, Tensor

LONG_SEQUENCE = 256


def attend(
    query: Float[Tensor, "b h q e"],
    key: Float[Tensor, "b h k e"],
    value: Float[Tensor, "b h k w"],
    mask: Bool[Tensor, "#b #h #q k"] | None = None,
    *,
    bias: Float[Tensor, "#b #h q k"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h q w"]:
    """Average the values, weighted by how well each key answers each query.

    `softmax(q k^T / sqrt(e) + bias) v`; `scale` is what stands for `1 / sqrt(e)`, if given. A
    query whose mask row is all False gets a zero vector and finite gradients. A key or value
    that holds a NaN or an infinity makes NaN of every query that may attend to it and touches
    no other. `dropout` acts on the weights.

    Source: Vaswani et al. 2017, arXiv:1706.03762, equation 1.
    """
    spoilt = None
    if mask is not None:
        key, value, spoilt = _set_apart(key, value, mask)
    weights_bhqk = drop(attention_weights(query, key, mask, bias=bias, scale=scale), dropout)
    out = weights_bhqk @ value
    return out if spoilt is None else out.masked_fill(spoilt, math.nan)


def attention_weights(
    query: Float[Tensor, "b h q e"],
    key: Float[Tensor, "b h k e"],
    mask: Bool[Tensor, "#b #h #q k"] | None = None,
    *,
    bias: Float[Tensor, "#b #h q k"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "b h q k"]:
    """How much each query takes from each key: rows sum to 1, or to 0 where all is masked."""
    scores_bhqk = query @ key.transpose(-2, -1)
    scores_bhqk = scores_bhqk / math.sqrt(query.shape[-1]) if scale is None else scores_bhqk * scale
    if bias is not None:
        scores_bhqk = scores_bhqk + bias.to(scores_bhqk.dtype)
    if mask is None:
        return scores_bhqk.softmax(-1)
    some_bhq1 = mask.any(-1, keepdim=True)
    outside = torch.where(some_bhq1, -math.inf, 0.0).to(scores_bhqk.dtype)
    return torch.where(mask, scores_bhqk, outside).softmax(-1).masked_fill(~mask, 0.0)


def _set_apart(key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values with those not finite set to 0, and which queries may attend to one."""
    bad_bhk = ~(key.isfinite().all(-1) & value.isfinite().all(-1))
    spoilt_bhq1 = (mask & bad_bhk[:, :, None]).any(-1, keepdim=True)
    bad_bhk1 = bad_bhk[..., None]
    return key.masked_fill(bad_bhk1, 0.0), value.masked_fill(bad_bhk1, 0.0), spoilt_bhq1


def attend_fast(
    query: Float[Tensor, "b h q e"],
    key: Float[Tensor, "b h k e"],
    value: Float[Tensor, "b h k w"],
    mask: Bool[Tensor, "#b #h #q k"] | None = None,
    *,
    bias: Float[Tensor, "#b #h q k"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    masked_are_finite: bool = False,
) -> Float[Tensor, "b h q w"]:
    """The same as `attend`, by the fastest way for the device and the lengths.

    On a CPU, up to `LONG_SEQUENCE` keys (and always with dropout), plain matrix products: their
    backward pass was measured faster than that of torch's fused CPU kernel, which wins in speed
    and memory beyond. On other devices, `scaled_dot_product_attention`.

    Keys and values that are not finite need care. On a CPU one look at their sum tells whether
    there are any; elsewhere a look would stall the device, so the care is always taken, unless
    the caller vouches that those masked are finite by `masked_are_finite`.
    """
    spoilt, some = None, None
    on_cpu = query.device.type == "cpu"
    if mask is not None:
        if not masked_are_finite and not (on_cpu and _is_finite(key, value)):
            key, value, spoilt = _set_apart(key, value, mask)
        some = mask.any(-1, keepdim=True)
        bias = _masked_bias(mask, some, bias, query)
        if on_cpu and bool(some.all()):
            some = None
    with torch.autocast(query.device.type, enabled=False):
        if not on_cpu or (key.shape[-2] > LONG_SEQUENCE and dropout == 0.0):
            added = None if bias is None else bias.to(query.dtype)
            out = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=added, dropout_p=dropout, scale=scale
            )
        else:
            out = _attend_by_products(query, key, value, bias, scale, dropout)
    if some is not None:
        out = out.masked_fill(~some, 0.0)
    return out if spoilt is None else out.masked_fill(spoilt, math.nan)


def _masked_bias(mask: Tensor, some: Tensor, bias: Tensor | None, query: Tensor) -> Tensor:
    """What to add to scores: `bias`, or minus infinity where masked in a row that has `some` True.

    Full in its last two axes, since adding a tensor repeated along one of them is slow.
    """
    outside = torch.where(some, -math.inf, 0.0).to(query.dtype)
    if bias is None:
        added = outside.masked_fill(mask, 0.0)
    else:
        added = torch.where(mask, bias, outside.to(bias.dtype))
    return added.expand(*added.shape[:2], query.shape[2], -1).contiguous()


def _is_finite(key: Tensor, value: Tensor) -> bool:
    """Whether all are finite; may say no when they are huge, never yes when one is not."""
    return math.isfinite(float(key.detach().sum() + value.detach().sum()))


def _attend_by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """The plain form, laid out for a CPU; `n` is batch and head in one.

    Keys are copied heads first before they are transposed (a transposed copy is six times
    slower), and the softmax is in float32 at least: that of bfloat16 is up to four times slower
    at lengths that are no multiple of the vector width, and less exact.
    """
    b, h, q, e = query.shape
    query_nqe, key_nke, value_nkw = (x.reshape(b * h, *x.shape[2:]) for x in (query, key, value))
    alpha = e**-0.5 if scale is None else scale
    scores_nqk = torch.baddbmm(
        query.new_empty(()), query_nqe, key_nke.transpose(1, 2), beta=0, alpha=alpha
    )
    wide = torch.promote_types(scores_nqk.dtype, torch.float32)
    scores_bhqk = scores_nqk.view(b, h, q, -1).to(wide)
    if bias is not None:
        scores_bhqk = scores_bhqk.add_(bias)
    weights_bhqk = drop(scores_bhqk.softmax(-1).to(value.dtype), dropout)
    return torch.bmm(weights_bhqk.view_as(scores_nqk), value_nkw).view(b, h, q, -1)


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """The sizes of an attention's projections, and what is done to its scores and weights.

    Attributes:
        d_model: width of what comes in and goes out.
        num_heads: heads of queries.
        d_k: width of a head's queries and keys.
        d_v: width of a head's values.
        num_kv_heads: heads of keys and values, a divisor of `num_heads`.
        bias: whether the projections have biases.
        output_bias: whether the last one has.
        scale: what multiplies the scores; None for `1 / sqrt(d_k)`.
        dropout: acts on the attention weights.
    """

    d_model: int
    num_heads: int
    d_k: int
    d_v: int
    num_kv_heads: int
    bias: bool = True
    output_bias: bool = True
    scale: float | None = None
    dropout: float = 0.0


class Heads(nn.Module):
    """The projections into heads and back that every attention-like layer has.

    Those of queries, keys and values are one matrix, `input`, in that order, heads inside each:
    self-attention is one product. `d_k` and `d_v` need not be `d_model / num_heads`. With fewer
    heads of keys and values than of queries, each is shared by neighbouring heads of queries.

    Source: Vaswani et al. 2017, section 3.2.2; shared heads: arXiv:2305.13245.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.num_heads = shape.num_heads
        self.num_kv_heads = shape.num_kv_heads
        self.d_k = shape.d_k
        self.d_v = shape.d_v
        self.scale = shape.scale
        self.dropout = shape.dropout
        queries, shared = shape.num_heads * shape.d_k, shape.num_kv_heads
        self.widths = [queries, shared * shape.d_k, shared * shape.d_v]
        self.input = Linear(shape.d_model, sum(self.widths), bias=shape.bias)
        self.output = Linear(shape.num_heads * shape.d_v, shape.d_model, bias=shape.output_bias)
        for matrix in (*torch.split(self.input.weight, self.widths), self.output.weight):
            nn.init.xavier_uniform_(matrix)
        for layer in (self.input, self.output):
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def project(
        self, x_bqd: Float[Tensor, "b q d"], rotation: Rotation | None = None
    ) -> tuple[Float[Tensor, "b h q e"], KeysValues]:
        """Queries, keys and values of all places; `rotation` turns queries and keys."""
        queries, keys, values = parted(self.input(x_bqd), self.widths)
        query_bhqe, key_bhke = self._heads(queries), self._heads(keys, self.num_kv_heads)
        if rotation is not None:
            query_bhqe, key_bhke = rotate(query_bhqe, rotation), rotate(key_bhke, rotation)
        return query_bhqe, KeysValues(key_bhke, self._heads(values, self.num_kv_heads))

    def weigh(
        self,
        query: Float[Tensor, "b h q e"],
        seen: KeysValues,
        mask: Bool[Tensor, "#b #h #q k"] | None,
        bias: Float[Tensor, "#b #h q k"] | None = None,
    ) -> Float[Tensor, "b h q w"]:
        """Attention of queries to keys and values, head by head."""
        b, heads, q, _ = query.shape
        sharing = heads // self.num_kv_heads
        if sharing > 1:
            query = self._shared(query)
            mask = None if mask is None else self._for_shared(mask, sharing, q)
            bias = None if bias is None else self._for_shared(bias, sharing, q)
        out_bhqw = attend_fast(
            query,
            seen.key_bhke,
            seen.value_bhkw,
            mask,
            bias=bias,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            masked_are_finite=seen.masked_are_finite,
        )
        return out_bhqw.reshape(b, heads, q, -1)

    def weigh_stretches(
        self,
        query: Float[Tensor, "b h q e"],
        seen: KeysValues,
        sight: Callable[[], Sight | None],
    ) -> Float[Tensor, "b h q w"] | None:
        """The same where each query sees a stretch of keys; None where no kernel does it.

        `sight` says what they see, or None, and is asked only if a kernel is to know.
        """
        key, value, _ = seen
        dropped = self.training and self.dropout > 0.0
        if dropped or query.shape[2] < FEWEST or not fits(query, key, value):
            return None
        stretches = sight()
        if stretches is None:
            return None
        scale = self.d_k**-0.5 if self.scale is None else self.scale
        return attention(query, key, value, stretches, scale)

    def join(self, out_bhqw: Float[Tensor, "b h q w"]) -> Float[Tensor, "b q d"]:
        """All heads side by side, through the last projection."""
        y: Tensor = self.output(out_bhqw.transpose(1, 2).flatten(-2))
        return y

    def weights_of(
        self,
        query: Float[Tensor, "b h q e"],
        key: Float[Tensor, "b g k e"],
        mask: Bool[Tensor, "#b #h #q k"] | None,
        bias: Float[Tensor, "#b #h q k"] | None = None,
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "b n q k"]:
        """What `weigh` weighs the values with, computed anew and dense, of those heads only.

        Raises:
            ModelError: there are not so many heads.
        """
        chosen = self.chosen(heads)
        shared = [head // (self.num_heads // self.num_kv_heads) for head in chosen]
        mask, bias = (x if x is None or x.shape[1] == 1 else x[:, chosen] for x in (mask, bias))
        return attention_weights(
            query[:, chosen], key[:, shared], mask, bias=bias, scale=self.scale
        )

    def chosen(self, heads: Sequence[int] | None) -> list[int]:
        """These heads, or all.

        Raises:
            ModelError: there are not so many.
        """
        chosen = list(range(self.num_heads)) if heads is None else list(heads)
        if any(not 0 <= head < self.num_heads for head in chosen):
            raise ModelError(f"heads = {chosen}: they have the numbers 0 to {self.num_heads - 1}")
        return chosen

    def _project(self, x: Tensor, start: int, end: int) -> Tensor:
        bias = None if self.input.bias is None else self.input.bias[start:end]
        return linear(x, self.input.weight[start:end], bias)

    def _heads(self, x_bkd: Tensor, heads: int | None = None) -> Tensor:
        return x_bkd.view(*x_bkd.shape[:2], heads or self.num_heads, -1).transpose(1, 2)

    def _shared(self, x_bhqe: Tensor) -> Tensor:
        """Queries (or what goes with them) of heads that share keys, as more queries of one."""
        return x_bhqe.reshape(len(x_bhqe), self.num_kv_heads, -1, x_bhqe.shape[-1])

    def _for_shared(self, x_bhqk: Tensor, sharing: int, queries: int) -> Tensor:
        """A mask or bias for queries that `_shared` has laid out."""
        if x_bhqk.shape[1] == 1:
            return x_bhqk if x_bhqk.shape[2] == 1 else x_bhqk.repeat(1, 1, sharing, 1)
        return self._shared(x_bhqk.expand(-1, -1, queries, -1))


class MultiHeadAttention(Heads):
    """`concat(head_1, ..., head_h) W^O`, each head attending in its own projection.

    Args:
        d_model: width of what comes in and goes out.
        num_heads: heads of queries.
        d_k: width of a head's queries and keys.
        d_v: width of a head's values.
        num_kv_heads: heads of keys and values, a divisor of `num_heads`, which is the default.
        bias: whether the projections have biases.
        output_bias: whether the last one has; as `bias` says, if left out.
        scale: what multiplies the scores; left out, `1 / sqrt(d_k)`.
        dropout: acts on the attention weights.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_k: int,
        d_v: int,
        num_kv_heads: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            HeadShape(
                d_model=d_model,
                num_heads=num_heads,
                d_k=d_k,
                d_v=d_v,
                num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
                bias=bias,
                output_bias=bias if output_bias is None else output_bias,
                scale=scale,
                dropout=dropout,
            )
        )

    def forward(
        self,
        x_bqd: Float[Tensor, "b q d"],
        mask: Bool[Tensor, "#b #h #q k"] | None = None,
        *,
        past: PastKeysValues | None = None,
        rotation: Rotation | None = None,
        bias: Float[Tensor, "#b #h q k"] | None = None,
    ) -> Float[Tensor, "b q d"]:
        """Self-attention of `x_bqd`, after the keys and values of `past`, to which it adds.

        `rotation` turns the queries and the new keys; `bias` is added to the scores.
        """
        query_bhqe, seen = self.project(x_bqd, rotation)
        if past is not None:
            seen = past.append(seen)
        return self.join(self.weigh(query_bhqe, seen, mask, bias))

    def cross(
        self,
        x_rqd: Float[Tensor, "r q d"],
        memory: KeysValues,
        mask: Bool[Tensor, "#b 1 1 k"] | None = None,
        *,
        sight: Callable[[], Sight | None] | None = None,
        record: list[Tensor] | None = None,
    ) -> Float[Tensor, "r q d"]:
        """Attention of `x_rqd` to a memory's keys and values (see `keys_and_values`).

        With more rows than the memory has (`r` = `b` times some `n`), each run of `n` rows
        shares a row of the memory, as if it were one row with more queries. `sight` says the
        same as `mask` (see `weigh_stretches`). `record` collects the weights, averaged over the
        heads, r q k.
        """
        grouped_bqd = x_rqd.reshape(len(memory.key_bhke), -1, x_rqd.shape[-1])
        query_bhqe = self._heads(self._project(grouped_bqd, 0, self.widths[0]))
        if record is not None:
            b, heads, q, _ = query_bhqe.shape
            weights_bgqk = attention_weights(
                self._shared(query_bhqe), memory.key_bhke, mask, scale=self.scale
            )
            weights_bhqk = weights_bgqk.reshape(b, heads, q, -1)
            record.append(weights_bhqk.mean(1).view(*x_rqd.shape[:2], -1))
        out = None if sight is None else self.weigh_stretches(query_bhqe, memory, sight)
        if out is None:
            out = self.weigh(query_bhqe, memory, mask)
        return self.join(out).view_as(x_rqd)

    def cross_weights(
        self,
        x_rqd: Float[Tensor, "r q d"],
        memory: KeysValues,
        mask: Bool[Tensor, "#b 1 1 k"] | None = None,
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "r h q k"]:
        """What `cross` takes from each place of a memory, of those heads, computed anew."""
        rows = len(memory.key_bhke)
        grouped_bqd = x_rqd.reshape(rows, -1, x_rqd.shape[-1])
        query_bhqe = self._heads(self._project(grouped_bqd, 0, self.widths[0]))
        weights_bhqk = self.weights_of(query_bhqe, memory.key_bhke, mask, heads=heads)
        b, h, _, k = weights_bhqk.shape
        parted = weights_bhqk.view(b, h, -1, x_rqd.shape[1], k).transpose(1, 2)
        return parted.reshape(len(x_rqd), h, -1, k)

    def keys_and_values(self, memory_bkd: Float[Tensor, "b k d"]) -> KeysValues:
        """The keys and values of a memory, to attend to with `cross` as often as needed."""
        projected = self._project(memory_bkd, self.widths[0], sum(self.widths))
        keys, values = parted(projected, self.widths[1:])
        return KeysValues(
            self._heads(keys, self.num_kv_heads), self._heads(values, self.num_kv_heads)
        )
