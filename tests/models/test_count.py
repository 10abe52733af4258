import itertools
import subprocess
import sys
from typing import Literal

import pytest
import torch

from regard.errors import ModelError
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.models.count import idle_parameters, parameter_count, parameter_table
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.nn.config import (
    AlibiConfig,
    ExpertsConfig,
    FeedForwardKind,
    LayerNormConfig,
    LearnedConfig,
    NoPositionsConfig,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    RMSNormConfig,
    RotaryConfig,
    SinusoidalConfig,
)

BASE = TransformerConfig()
BIG = TransformerConfig(d_model=1024, num_heads=16, d_ff=4096, dropout=0.3)
TABLE_3 = [  # row, config, millions as printed (blank: as base)
    ("base", BASE, 65),
    ("A", TransformerConfig(num_heads=1, d_k=512, d_v=512), 65),
    ("A", TransformerConfig(num_heads=4, d_k=128, d_v=128), 65),
    ("A", TransformerConfig(num_heads=16, d_k=32, d_v=32), 65),
    ("A", TransformerConfig(num_heads=32, d_k=16, d_v=16), 65),
    ("B", TransformerConfig(d_k=16), 58),
    ("B", TransformerConfig(d_k=32), 60),
    ("C", TransformerConfig(encoder_layers=2, decoder_layers=2), 36),
    ("C", TransformerConfig(encoder_layers=4, decoder_layers=4), 50),
    ("C", TransformerConfig(encoder_layers=8, decoder_layers=8), 80),
    ("C", TransformerConfig(d_model=256, d_k=32, d_v=32), 28),
    ("C", TransformerConfig(d_model=1024, d_k=128, d_v=128), 168),
    ("C", TransformerConfig(d_ff=1024), 53),
    ("C", TransformerConfig(d_ff=4096), 90),
    ("D", TransformerConfig(dropout=0.0), 65),
    ("D", TransformerConfig(dropout=0.2), 65),
    ("E", TransformerConfig(positions=LearnedConfig(max_positions=256)), 65),
]


def built(config: TransformerConfig, source: int, target: int) -> int:
    with torch.device("meta"):
        model = Transformer(config, source_vocabulary=source, target_vocabulary=target)
    return sum(parameter.numel() for parameter in model.parameters())


def papers_closed_form(config: TransformerConfig, vocabulary: int) -> int:
    """The formula of the paper's own model, biases in attention, sinusoids, three-way tying."""
    d, h, f, layers = config.d_model, config.num_heads, config.d_ff, config.encoder_layers
    d_k, d_v = config.key_dim, config.value_dim
    attention = 2 * d * h * (d_k + d_v) + h * (2 * d_k + d_v) + d
    feed_forward = 2 * d * f + f + d
    return layers * (3 * attention + 2 * feed_forward + 5 * 2 * d) + vocabulary * d


def test_base_has_the_exact_count_with_and_without_attention_biases() -> None:
    assert parameter_count(BASE, 37_000, 37_000) == 63_082_496
    assert built(BASE, 37_000, 37_000) == 63_082_496
    bare = TransformerConfig(attention_bias=False)
    assert parameter_count(bare, 37_000, 37_000) == 63_045_632
    assert built(bare, 37_000, 37_000) == 63_045_632


@pytest.mark.parametrize(("row", "config", "millions"), TABLE_3)
def test_every_row_of_table_3_is_exact_and_rounds_to_the_printed_figure(
    row: str, config: TransformerConfig, millions: int
) -> None:
    count = parameter_count(config, 41_100, 41_100)
    learned = 2 * 256 * 512 if row == "E" else 0
    assert count == papers_closed_form(config, 41_100) + learned
    assert count == built(config, 41_100, 41_100)
    assert round(count / 1e6) == millions


def test_big_rounds_to_the_printed_figure_at_36000() -> None:
    assert parameter_count(BIG, 36_000, 36_000) == papers_closed_form(BIG, 36_000)
    assert built(BIG, 36_000, 36_000) == papers_closed_form(BIG, 36_000)
    assert round(papers_closed_form(BIG, 36_000) / 1e6) == 213


VARIANTS = itertools.product(
    [LayerNormConfig(), RMSNormConfig()],
    ["post", "pre"],
    ["relu", "gelu", "swiglu"],
    [SinusoidalConfig(), LearnedConfig(max_positions=9)],
    ["three_way", "two_way", "none"],
    [True, False],
)


@pytest.mark.parametrize(
    ("norm", "norm_position", "feed_forward", "positions", "tying", "attention_bias"), VARIANTS
)
def test_every_variant_has_as_many_parameters_as_counted(
    norm: NormConfig,
    norm_position: Literal["post", "pre"],
    feed_forward: FeedForwardKind,
    positions: PositionsConfig,
    tying: Literal["three_way", "two_way", "none"],
    attention_bias: bool,
) -> None:
    config = TransformerConfig(
        d_model=6,
        num_heads=4,
        d_k=3,
        d_v=5,
        d_ff=7,
        encoder_layers=2,
        decoder_layers=3,
        norm=norm,
        norm_position=norm_position,
        feed_forward=feed_forward,
        positions=positions,
        tying=tying,
        attention_bias=attention_bias,
    )
    target = 11 if tying == "three_way" else 13
    assert parameter_count(config, 11, target) == built(config, 11, target)


def test_the_table_names_every_part_with_its_shape_and_copies() -> None:
    parts = parameter_table(BASE, 37_000, 37_000)
    assert [(part.name, part.shape, part.copies) for part in parts] == [
        ("embedding (source, target) = projection", "37000 x 512", 1),
        ("encoder self-attention", "1536 x 512, 512 x 512", 6),
        ("encoder feed-forward", "2048 x 512, 512 x 2048", 6),
        ("encoder norms", "2 x 512", 12),
        ("decoder self-attention", "1536 x 512, 512 x 512", 6),
        ("decoder cross-attention", "1536 x 512, 512 x 512", 6),
        ("decoder feed-forward", "2048 x 512, 512 x 2048", 6),
        ("decoder norms", "2 x 512", 18),
    ]


def test_one_matrix_for_two_vocabularies_of_different_sizes_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        parameter_count(BASE, 100, 101)
    assert str(caught.value) == (
        'model.tying = "three_way" makes one matrix of both embeddings, and the vocabularies '
        "differ: 100 source ids, 101 target ids\n"
        "  use a joint vocabulary (vocabulary.joint = true), or set model.tying to "
        '"two_way" or "none"'
    )
    with pytest.raises(ModelError):
        Transformer(BASE, source_vocabulary=100, target_vocabulary=101)


def test_counting_needs_no_torch() -> None:
    program = "import sys, regard.models.count; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


SHAPE = {"d_model": 8, "num_heads": 4, "d_ff": 7}
SWITCHES: list[dict[str, object]] = [
    {},
    {"num_kv_heads": 2, "d_k": 6, "d_v": 5},
    {"attention_bias": False, "attention_output_bias": True},
    {"attention_bias": False, "feed_forward_bias": False, "norm": RMSNormConfig()},
    {"feed_forward": "geglu", "feed_forward_bias": True, "norm_position": "post"},
    {"feed_forward": "swiglu", "norm_position": "pre"},
    {"experts": ExpertsConfig(number=3)},
    {"experts": ExpertsConfig(number=4, top=1), "feed_forward": "swiglu"},
    {"positions": NoPositionsConfig(), "embedding_norm": True},
    {"positions": RotaryConfig(dim=2), "embedding_norm": False},
    {"positions": AlibiConfig(), "norm_position": "pre"},
    {"positions": RelativeConfig(buckets=8, max_distance=20)},
    {"positions": LearnedConfig(max_positions=9), "norm": LayerNormConfig()},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("own", [{}, {"tied": False}, {"output_bias": True}], ids=str)
def test_every_language_model_has_as_many_parameters_as_counted(
    switches: dict[str, object], own: dict[str, object]
) -> None:
    config = DecoderConfig(**{**SHAPE, "num_layers": 3, **switches, **own})
    with torch.device("meta"):
        model = LanguageModel(config, vocabulary=11)
    assert parameter_count(config, 11) == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize(
    "own", [{}, {"prediction_head": False}, {"pooler": True, "token_types": 2}], ids=str
)
@pytest.mark.parametrize("classes", [0, 5])
def test_every_encoder_has_as_many_parameters_as_counted(
    switches: dict[str, object], own: dict[str, object], classes: int
) -> None:
    config = EncoderConfig(**{**SHAPE, "num_layers": 3, **switches, **own})
    with torch.device("meta"):
        model = TextEncoder(config, vocabulary=11, classes=classes)
    count = parameter_count(config, 11, classes=classes)
    assert count == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize(
    "own",
    [{}, {"decoder_mixer": "ssru"}, {"output_bias": True, "output_scale": True}],
    ids=str,
)
@pytest.mark.parametrize("tying", ["three_way", "none"])
def test_every_encoder_decoder_has_as_many_parameters_as_counted(
    switches: dict[str, object], own: dict[str, object], tying: str
) -> None:
    layers = {"encoder_layers": 2, "decoder_layers": 3, "tying": tying}
    config = TransformerConfig(**{**SHAPE, **layers, **switches, **own})
    assert parameter_count(config, 11, 11) == built(config, 11, 11)


def test_gpt2_has_the_published_count() -> None:
    assert parameter_count(DecoderConfig(), 50_257) == 124_439_808


def test_a_token_leaves_out_the_experts_that_it_is_not_given_to() -> None:
    experts = ExpertsConfig(number=5, top=2)
    one = DecoderConfig(**SHAPE, num_layers=3)
    several = one.model_copy(update={"experts": experts})
    used = parameter_count(several, 11) - idle_parameters(several)
    feed_forward, router = 2 * 8 * 7 + 7 + 8, 5 * 8
    assert used == parameter_count(one, 11) + 3 * (feed_forward + router)
    assert idle_parameters(one) == 0
    both = TransformerConfig(**SHAPE, encoder_layers=2, decoder_layers=1, experts=experts)
    assert idle_parameters(both) == idle_parameters(several)
