"""What Marian and BART have in common as transformers keeps them: layers, heads, tying."""

from typing import Final, Literal

from regard.models.config import TransformerConfig
from regard.weights.foreign.folder import ForeignWeights
from regard.weights.foreign.keys import Keys
from regard.weights.foreign.parts import attention_sizes
from regard.weights.foreign.table import Flattened, Row, kinds, same, stacked

Tying = Literal["three_way", "two_way", "none"]

SHARED: Final = "model.shared.weight"
SOURCE: Final = "model.encoder.embed_tokens.weight"
TARGET: Final = "model.decoder.embed_tokens.weight"
PROJECTION: Final = "lm_head.weight"
BIAS: Final = "final_logits_bias"


def layers(config: TransformerConfig) -> list[Row]:
    """The layers of both stacks: their names and ours."""
    rows: list[Row] = []
    for side, number in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(number):
            theirs, ours = f"model.{side}.layers.{i}", f"{side}_layers.{i}"
            rows += attention(config, f"{theirs}.self_attn", f"{ours}.self_attention")
            if side == "decoder":
                rows += attention(config, f"{theirs}.encoder_attn", f"{ours}.cross_attention")
            rows += [
                *same(f"{theirs}.fc1", f"{ours}.feed_forward.input"),
                *same(f"{theirs}.fc2", f"{ours}.feed_forward.output"),
                *same(f"{theirs}.final_layer_norm", f"{ours}.feed_forward_norm"),
            ]
    return rows


def attention(config: TransformerConfig, theirs: str, ours: str) -> list[Row]:
    """One attention and the norm after it."""
    return [
        *stacked(
            [f"{theirs}.q_proj", f"{theirs}.k_proj", f"{theirs}.v_proj"],
            f"{ours}.input",
            attention_sizes(config),
        ),
        *same(f"{theirs}.out_proj", f"{ours}.output"),
        *same(f"{theirs}_layer_norm", f"{ours}_norm"),
    ]


def embeddings(config: TransformerConfig, source: str, target: str) -> list[Row]:
    """The tables, what is tied once; and the bias of the logits."""
    rows = [Row((source,), "source_embedding.weight")]
    if config.tying != "three_way":
        rows.append(Row((target,), "target_embedding.weight"))
    if config.tying == "none":
        rows += same("lm_head", "projection", kinds(False))
    if config.output_bias:
        rows.append(Row((BIAS,), "output_bias", Flattened()))
    return rows


def tables(weights: ForeignWeights, shared: bool, tied: bool) -> tuple[Tying, str, str]:
    """How the embeddings are tied, and the names of the source's and the target's.

    Args:
        weights: all that there are: what is shared may be there once or under every name.
        shared: one embedding for both sides.
        tied: the projection is the target's embedding.
    """
    if shared and tied:
        return "three_way", _one_of(weights, SHARED, SOURCE, TARGET), ""
    source, target = _one_of(weights, SOURCE, SHARED), _one_of(weights, TARGET, SHARED)
    return "two_way" if tied else "none", source, target


def copies(weights: ForeignWeights, tying: Tying, source: str, target: str) -> dict[str, str]:
    """Names that may stand for a table again."""
    same_as = {SOURCE: source, TARGET: target or source, PROJECTION: target or source}
    if tying == "none":
        del same_as[PROJECTION]
    if tying == "three_way":
        same_as[SHARED] = source
    return {name: of for name, of in same_as.items() if name != of and name in weights}


def unused(tying: Tying) -> list[str]:
    """What may be in a file and is of no use: a shared table where each side has its own."""
    return [] if tying == "three_way" else [SHARED]


def has_bias(weights: ForeignWeights) -> bool:
    """Whether logits have a bias; one of zeros is none."""
    return BIAS in weights and bool(weights[BIAS].any())


def equal_sides(keys: Keys, name: str, default: int) -> int:
    """A number that has a key for the encoder and one for the decoder; both must be the same."""
    value = keys.whole(f"encoder_{name}", default)
    if keys.whole(f"decoder_{name}", default) != value:
        keys.refuse(f"decoder_{name}", f"{value}, as encoder_{name}")
    return value


def pass_over(keys: Keys) -> None:
    """Keys that are of training alone, or say again what others say."""
    keys.without_effect("encoder_layerdrop", "decoder_layerdrop", "classifier_dropout")
    keys.without_effect("classif_dropout", "num_hidden_layers", "hidden_size")
    keys.without_effect("add_bias_logits", "extra_pos_embeddings", "save_step")
    keys.settled("is_encoder_decoder", True)
    keys.settled("normalize_before", False)
    keys.settled("add_final_layer_norm", False)


def _one_of(weights: ForeignWeights, *names: str) -> str:
    """The first name that is there, or else the first."""
    return next((name for name in names if name in weights), names[0])
