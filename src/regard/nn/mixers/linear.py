"""Attention whose weights are products of features, in time linear in the length."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.nn import functional

from regard.kernels.products import batched, linear, product
from regard.kernels.switch import transformed
from regard.nn.attention import Heads, HeadShape
from regard.nn.cache import RecurrentState
from regard.nn.mixers.chunks import causal_sums
from regard.nn.mixers.config import PerformerConfig
from regard.nn.mixers.contract import RowMixer
from regard.nn.mixers.rows import Rows
from regard.shapes import Float, Tensor


class FeatureAttention(Heads, RowMixer):
    """`out_i = sum_j f(q_i) . f(k_j) v_j / sum_j f(q_i) . f(k_j)`, for features that are positive.

    The sums over keys are taken first, so that no score of a pair is ever computed: time and
    memory grow with length times features times width. What feature map it is, and so what the
    weights are near, a subclass says. There are no weights for attention dropout to act on.

    The state of a causal one are those sums: `num_heads features (d_v + 1)` numbers a row,
    however long the past is.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236, equations 4 to 7.
    """

    def __init__(self, shape: HeadShape, *, causal: bool) -> None:
        super().__init__(shape)
        self.causal = causal

    @abstractmethod
    def query_features(self, query: Float[Tensor, "n h l e"]) -> Float[Tensor, "n h l f"]:
        """The features of queries; a factor of a query's own changes nothing."""

    @abstractmethod
    def key_features(self, key: Float[Tensor, "n h l e"]) -> Float[Tensor, "n h l f"]:
        """The features of keys."""

    def features(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows
    ) -> tuple[Float[Tensor, "n h l f"], Float[Tensor, "n h l f"], Float[Tensor, "n h l w"]]:
        """Features of queries and keys, and the values with a 1 after each; padding is 0."""
        query, seen = self.project(x_nld)
        wide = torch.promote_types(query.dtype, torch.float32)
        value = functional.pad(seen.value_bhkw.to(wide), (0, 1), value=1.0)
        features = self.key_features(seen.key_bhke.to(wide))
        if rows.mask_nl is not None:
            features, value = (
                x.masked_fill(~rows.mask_nl[:, None, :, None], 0.0) for x in (features, value)
            )
        sharing = self.num_heads // self.num_kv_heads
        features, value = (x.repeat_interleave(sharing, 1) for x in (features, value))
        return self.query_features(query.to(wide)), features, value

    def run(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, past: RecurrentState | None
    ) -> Float[Tensor, "n l d"]:
        """The layer over rows, whose padding adds nothing to the sums."""
        with torch.autocast(x_nld.device.type, enabled=False):
            query, key, value = self.features(x_nld.to(self.input.weight.dtype), rows)
            if self.causal:
                state = past.tensors[0] if past is not None and past.tensors else None
                out, state = causal_sums(query, key, value, state)
                if past is not None:
                    past.tensors = (state,)
            else:
                out = batched(query, batched(key.transpose(-1, -2), value))
        return self.join(normalised(out).to(x_nld.dtype))

    def row_weights(
        self, x_nld: Float[Tensor, "n l d"], rows: Rows, heads: Sequence[int] | None
    ) -> Float[Tensor, "n h l l"]:
        """The products of features of every pair over their sums, which `run` never computes."""
        query, key, _ = self.features(x_nld, rows)
        chosen = self.chosen(heads)
        products = query[:, chosen] @ key[:, chosen].transpose(-1, -2)
        products = products.tril() if self.causal else products
        total = products.sum(-1, keepdim=True)
        return products / total.masked_fill(total == 0, 1.0)


def normalised(out_nhlw: Float[Tensor, "n h l w1"]) -> Float[Tensor, "n h l w"]:
    """Sums of values divided by the sums of weights, which come last; 0 where there are none."""
    total = out_nhlw[..., -1:]
    return out_nhlw[..., :-1] / total.masked_fill(total == 0, 1.0)


class LinearAttention(FeatureAttention):
    """The features `elu(x) + 1`, as many as a head is wide.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236, equation 7.
    """

    def query_features(self, query: Float[Tensor, "n h l e"]) -> Float[Tensor, "n h l e"]:
        """The features of queries."""
        return functional.elu(query).add_(1)

    def key_features(self, key: Float[Tensor, "n h l e"]) -> Float[Tensor, "n h l e"]:
        """The features of keys."""
        return functional.elu(key).add_(1)


class PerformerAttention(FeatureAttention):
    """Random features whose products are, in the mean, the exponentials of softmax attention.

    `f(x) = exp(w x - |x|^2 / 2)` for rows w that are orthogonal in groups and as long as Gaussian
    ones (FAVOR+). More features come nearer to softmax attention. They are drawn when the model
    is built and are saved with it; `redraw` draws others.

    What only lengthens all features of a query cancels out, so that a softmax stands for their
    exponentials, and a factor that depends on w alone is moved from keys to queries, so that no
    exponent gets large: the keys' are at most `|w|^2 / 4`.

    Source: Choromanski et al. 2020, arXiv:2009.14794, lemma 1 and section 2.4.
    """

    def __init__(self, config: PerformerConfig, shape: HeadShape, *, causal: bool) -> None:
        super().__init__(shape, causal=causal)
        scale = shape.d_k**-0.5 if shape.scale is None else shape.scale
        self.factor = math.sqrt(scale)
        self.directions_fe: Tensor
        self.register_buffer("directions_fe", orthogonal_rows(config.features, shape.d_k))

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw other random features."""
        drawn = orthogonal_rows(*self.directions_fe.shape, generator=generator)
        self.directions_fe.copy_(drawn)

    def query_features(self, query: Float[Tensor, "n h l e"]) -> Float[Tensor, "n h l f"]:
        """The features of queries, those of each over their sum."""
        rows_fe, peak_f = self._directions(query)
        return linear(query, rows_fe, peak_f).softmax(-1)

    def key_features(self, key: Float[Tensor, "n h l e"]) -> Float[Tensor, "n h l f"]:
        """The features of keys."""
        rows_fe, peak_f = self._directions(key)
        if transformed():
            lower = key.square().sum(-1, keepdim=True) * (self.factor**2 / 2)
            return (linear(key, rows_fe, -peak_f) - lower).exp()
        apply = cast(Callable[..., Tensor], _KeyFeatures.apply)
        return apply(key, rows_fe, -peak_f, self.factor**2 / 2)

    def _directions(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The rows w with the scale in them, and `|w|^2 / 4`."""
        directions_fe = self.directions_fe.to(like.dtype)
        return directions_fe * self.factor, directions_fe.square().sum(1) / 4


class _KeyFeatures(torch.autograd.Function):
    """`exp(W x + b - |x|^2 half)`, in place; from its gradient only that of x."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x_nhle: Tensor,
        weight_fe: Tensor,
        bias_f: Tensor,
        half: float,
    ) -> Tensor:
        out = linear(x_nhle, weight_fe, bias_f)
        out.sub_(x_nhle.square().sum(-1, keepdim=True).mul_(half)).exp_()
        ctx.half = half
        ctx.save_for_backward(x_nhle, weight_fe, out)
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x_nhle, weight_fe, out = ctx.saved_tensors
        slope_nhlf = slopes[0] * out
        for_x = product(slope_nhlf.flatten(0, -2), weight_fe).view(x_nhle.shape)
        lower = x_nhle * (slope_nhlf.sum(-1, keepdim=True) * (2 * ctx.half))
        return for_x - lower, None, None, None


def orthogonal_rows(
    rows: int, width: int, *, generator: torch.Generator | None = None
) -> Float[Tensor, "f e"]:
    """Random directions: orthogonal within each `width` rows, lengths as of Gaussian vectors."""
    groups = -(-rows // width)
    drawn = torch.randn(groups, width, width, generator=generator)
    columns, rest = torch.linalg.qr(drawn)
    # Without this the signs are LAPACK's choice, and no direction is as likely as its opposite.
    columns = columns * rest.diagonal(dim1=1, dim2=2).sign()[:, None]
    turned = columns.transpose(1, 2).reshape(-1, width)[:rows]
    lengths = torch.randn(rows, width, generator=generator).norm(dim=1, keepdim=True)
    scaled: Tensor = turned * lengths
    return scaled
