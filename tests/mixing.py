"""Sequence layers by themselves: small ones of every kind, and their passes."""

from dataclasses import dataclass

import torch

from regard.nn.attention import HeadShape
from regard.nn.cache import Cache
from regard.nn.config import (
    AlibiConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
)
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    GRUConfig,
    LinearConfig,
    LinformerConfig,
    LSTMConfig,
    MambaConfig,
    MixerConfig,
    PerformerConfig,
    RNNConfig,
    SSRUConfig,
    WindowConfig,
)
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions, build_positions

D_MODEL, HEADS, D_K = 8, 4, 4
LAYERS: dict[str, MixerConfig] = {
    "full": FullConfig(),
    "fused": FullConfig(),  # the form for long sequences, where a test makes short ones long
    "window": WindowConfig(window=3),
    "even": WindowConfig(window=4),
    "dilated": WindowConfig(window=3, dilation=2),
    "globals": WindowConfig(window=2, global_tokens=2),
    "both": WindowConfig(window=3, dilation=3, global_tokens=3),
    "bigbird": BigBirdConfig(block=2, window=2, random_blocks=1),
    "blocks": BigBirdConfig(block=1, window=3, global_blocks=2, random_blocks=2, seed=5),
    "linformer": LinformerConfig(length=45, rank=5),
    "linear": LinearConfig(),
    "performer": PerformerConfig(features=6),
    "rnn": RNNConfig(),
    "lstm": LSTMConfig(),
    "gru": GRUConfig(),
    "ssru": SSRUConfig(),
    "convolution": ConvolutionConfig(),
    "wide": ConvolutionConfig(width=4, dilation=3),
    "mamba": MambaConfig(state=5),
}
PAST_ONLY = {"ssru", "mamba"}
BOTH_SIDES_ONLY = {"linformer"}
WITH_SCORES = {"full", "fused", "window", "even", "dilated", "globals", "both", "bigbird", "blocks"}
SCHEMES: dict[str, PositionsConfig] = {
    "none": NoPositionsConfig(),
    "rotary": RotaryConfig(theta=100.0),
    "alibi": AlibiConfig(),
    "relative": RelativeConfig(buckets=4, max_distance=5),
}


@dataclass
class Case:
    """One layer, in float64 and with every weight random, and what its stack tells it."""

    name: str
    layer: Mixer
    scheme: Positions
    causal: bool

    def __call__(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        documents: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.layer(x, Span.whole(self.scheme, x, mask, documents, causal=self.causal))

    def start(self, rows: int) -> Cache:
        return Cache([self.layer.new_past()], rows, torch.device("cpu"))

    @torch.no_grad()
    def step(self, x: torch.Tensor, cache: Cache, mask: torch.Tensor | None = None) -> torch.Tensor:
        span = Span.step(self.scheme, x, cache, mask)
        y = self.layer(x, span, cache.pasts[0])
        cache.advance(span.size, span.held_bk)
        return y


CASES = [
    (name, scheme, causal)
    for name in LAYERS
    for scheme in (SCHEMES if name in WITH_SCORES else ["none"])
    for causal in (True, False)
    if not (causal and name in BOTH_SIDES_ONLY) and not (not causal and name in PAST_ONLY)
]


def make(name: str, scheme: str = "none", *, causal: bool, kv_heads: int = 2) -> Case:
    """The layer of that name."""
    shape = HeadShape(d_model=D_MODEL, num_heads=HEADS, d_k=D_K, d_v=3, num_kv_heads=kv_heads)
    torch.manual_seed(1)
    layer = build_mixer(LAYERS[name], shape, causal=causal)
    positions = build_positions(
        SCHEMES[scheme],
        d_model=D_MODEL,
        num_heads=HEADS,
        head_dim=D_K,
        bidirectional=not causal,
    )
    for parameter in layer.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return Case(name, layer.double().eval(), positions.double(), causal)


def over(layer: Mixer, x: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """A layer over whole rows, without any positions."""
    return layer(x, Span.whole(Positions(), x, causal=causal))
