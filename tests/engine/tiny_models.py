"""Random tiny models of every kind that the engine supports, and the searches to compare."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.decoding.config import DecodingConfig
from regard.decoding.dice import seed_of
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.padding import padded
from regard.decoding.restricted import RestrictedStep
from regard.decoding.search import search
from regard.decoding.step import ModelStep, Step
from regard.engine.engine import Dtype, Engine, Found, Sampling
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import (
    AlibiConfig,
    LayerNormConfig,
    LearnedConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoPositionsConfig,
    NTKScalingConfig,
    PositionsConfig,
    RelativeConfig,
    RMSNormConfig,
    RotaryConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from regard.nn.mixers.config import SSRUConfig, StackConfig, WindowConfig
from regard.text.shortlist import Shortlist

PAD, BOS, EOS, UNUSED = 0, 1, 2, 3
MOST = 40  # positions of a learned table

ROTARY = (
    RotaryConfig(),
    RotaryConfig(layout="interleaved"),
    RotaryConfig(theta=50.0, dim=2),
    RotaryConfig(theta=500.0, dim=4, layout="interleaved", scaling=NTKScalingConfig(factor=4.0)),
    RotaryConfig(scaling=LinearScalingConfig(factor=3.0)),
    RotaryConfig(scaling=NTKScalingConfig(factor=4.0)),
    RotaryConfig(scaling=YarnScalingConfig(factor=4.0, original_positions=16)),
    RotaryConfig(
        scaling=YarnScalingConfig(original_positions=64, attention_factor=1.3, truncate=False)
    ),
    RotaryConfig(scaling=Llama3ScalingConfig(original_positions=32)),
)
POSITIONS: tuple[PositionsConfig, ...] = (
    SinusoidalConfig(),
    SinusoidalConfig(layout="halves"),
    SinusoidalConfig(wavelengths="full"),
    SinusoidalConfig(layout="halves", wavelengths="full"),
    LearnedConfig(max_positions=MOST),
    NoPositionsConfig(),
    *ROTARY,
    AlibiConfig(),
    RelativeConfig(),
    RelativeConfig(buckets=8, max_distance=12),
)

STACKS = (
    StackConfig(),
    StackConfig(mixer=SSRUConfig()),
    StackConfig(mixer=WindowConfig(window=1)),
    StackConfig(mixer=WindowConfig(window=5)),
    StackConfig(mixer=WindowConfig(window=3), pattern=("ssru", "window")),
    StackConfig(pattern=("full", "ssru")),
)

# Every value of every key that the engine knows; the first is the default of the others' tests.
CHOICES: dict[str, Sequence[Any]] = {
    "d_model": (16, 24, 68),
    "num_heads": (2, 4),
    "num_kv_heads": (None, 1, 2),
    "d_k": (None, 5, 16),
    "d_v": (None, 3, 19),
    "d_ff": (32, 7, 65),
    "attention_bias": (True, False),
    "attention_output_bias": (None, True, False),
    "attention_scale": (None, 0.3),
    "norm": (LayerNormConfig(), RMSNormConfig(), LayerNormConfig(eps=0.1), RMSNormConfig(eps=0.1)),
    "norm_position": ("post", "pre"),
    "feed_forward": ("relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu", "geglu_tanh"),
    "feed_forward_bias": (None, True, False),
    "positions": POSITIONS,
    "encoder_layers": (1, 2, 3),
    "decoder_layers": (2, 1, 3),
    "tying": ("none", "two_way", "three_way"),
    "decoder": STACKS,
    "embedding_scale": (True, False),
    "embedding_norm": (False, True),
    "output_scale": (False, True),
    "output_bias": (False, True),
}


@dataclass(frozen=True)
class Searched:
    """What is asked of a search."""

    sources: list[list[int]]
    max_tokens: list[int]
    prefixes: list[list[int]]
    config: DecodingConfig

    @property
    def seeds(self) -> list[int]:
        """For samples: another one for each source, whatever is beside it."""
        return [
            seed_of(self.config.seed, source, prefix)
            for source, prefix in zip(self.sources, self.prefixes, strict=True)
        ]


def one_by_one() -> list[dict[str, Any]]:
    """Each value of each key, all others being the first of theirs."""
    return [{key: value} for key, values in CHOICES.items() for value in values[1:]] + [{}]


def any_of_all(seed: int) -> dict[str, Any]:
    """A random value for every key."""
    draw = random.Random(seed)
    drawn = {key: draw.choice(values) for key, values in CHOICES.items()}
    width = drawn["d_k"] or drawn["d_model"] // drawn["num_heads"]
    if isinstance(drawn["positions"], RotaryConfig) and width % 2:
        drawn["d_k"] = 6  # dimensions turn in pairs
    if drawn["decoder"].mixer.kind == "window" and not isinstance(
        drawn["positions"], SinusoidalConfig | LearnedConfig
    ):
        # A token may stand here or there beyond the window, and the two sentences tie.
        drawn["decoder"] = StackConfig()
    try:
        TransformerConfig(**drawn)
    except ValueError:
        drawn["decoder"] = StackConfig()  # too few layers, or positions that it can't honour
    return drawn


def make_model(changes: dict[str, Any], *, seed: int = 1, vocabulary: int = 61) -> Transformer:
    """A random model in float64 whose weights float32 can hold, biases and gains included."""
    settings = {key: values[0] for key, values in CHOICES.items()} | changes
    torch.manual_seed(seed)
    target = vocabulary if settings["tying"] == "three_way" else vocabulary + 7
    model = Transformer(
        TransformerConfig(**settings), source_vocabulary=vocabulary, target_vocabulary=target
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        # Peaked enough that no two candidates are near a tie, and that sentences do end.
        model.output_weight.mul_(2.0)
        model.output_weight[EOS].mul_(1.5)
    return model.double().eval()


def engine_of(model: Transformer, *, dtype: Dtype = "float32", threads: int = 1) -> Engine:
    return Engine(
        model.config,
        {name: tensor.float().numpy() for name, tensor in model.state_dict().items()},
        source_vocabulary=model.source_vocabulary,
        target_vocabulary=model.target_vocabulary,
        dtype=dtype,
        threads=threads,
    )


def any_search(
    model: Transformer, number: int, /, *, sentences: int = 7, **options: Any
) -> Searched:
    """Sentences of many lengths with limits of their own, some with a prefix."""
    draw = random.Random(number)
    most = min(model.source_vocabulary, model.target_vocabulary)

    def ids(count: int) -> list[int]:
        return [draw.randrange(4, most) for _ in range(count)]

    config = DecodingConfig(**options)
    return Searched(
        sources=[[*ids(draw.choice((0, 1, 2, 5, 9, 17, 30))), EOS] for _ in range(sentences)],
        max_tokens=[
            max(draw.choice((0, 1, 3, 8, 20)), config.min_tokens) for _ in range(sentences)
        ],
        prefixes=[ids(draw.choice((0, 0, 0, 1, 4))) for _ in range(sentences)],
        config=config,
    )


def any_shortlist(
    model: Transformer, seed: int, *, per_token: int = 3, frequent: int = 4
) -> Shortlist:
    """A random one; some source tokens have no tokens of their own."""
    draw = random.Random(seed)
    targets = range(model.target_vocabulary)
    rows = [
        sorted(draw.sample(targets, draw.choice((0, per_token, per_token))))
        for _ in range(model.source_vocabulary)
    ]
    return Shortlist(
        offsets=np.cumsum([0, *map(len, rows)]),
        tokens=np.array([token for row in rows for token in row], np.int32),
        always=np.unique([PAD, BOS, EOS, UNUSED, *draw.sample(targets, frequent)]),
        targets=model.target_vocabulary,
    )


def torch_search(
    model: Transformer, asked: Searched, shortlist: Shortlist | None = None
) -> list[list[Hypothesis]]:
    """What the PyTorch path answers."""
    source_bs, mask_bs = padded(asked.sources, fill=PAD, device=torch.device("cpu"))
    with torch.inference_mode():
        step: Step = ModelStep(model, source_bs, mask_bs, attention=asked.config.coverage > 0)
    if shortlist is not None:
        step = RestrictedStep(
            step,
            [
                shortlist.allowed(source, prefix)
                for source, prefix in zip(asked.sources, asked.prefixes, strict=True)
            ],
            vocabulary=model.target_vocabulary,
            device=torch.device("cpu"),
        )
    return search(
        step,
        batch=len(asked.sources),
        bos=BOS,
        eos=EOS,
        pad=PAD,
        control=[UNUSED],
        max_tokens_b=torch.tensor(asked.max_tokens),
        config=asked.config,
        prefix=asked.prefixes,
        source_bs=mask_bs,
        seeds=asked.seeds,
    )


def engine_search(
    engine: Engine, asked: Searched, shortlist: Shortlist | None = None
) -> list[list[Found]]:
    """What the engine answers."""
    config = asked.config
    sampling = Sampling(
        seeds=asked.seeds,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
    )
    return engine.translate(
        asked.sources,
        max_tokens=asked.max_tokens,
        prefixes=asked.prefixes,
        bos=BOS,
        eos=EOS,
        never=[PAD, BOS, UNUSED],
        beam=config.beam,
        n_best=config.n_best,
        alpha=config.alpha,
        coverage=config.coverage,
        min_tokens=config.min_tokens,
        no_repeat_ngram=config.no_repeat_ngram,
        batch_tokens=config.batch_tokens,
        sampling=sampling if config.method == "sample" else None,
        shortlist=shortlist,
    )
