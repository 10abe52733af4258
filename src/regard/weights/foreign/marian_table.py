"""The names of weights in Marian's own files, and ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from regard.models.config import TransformerConfig
from regard.shapes import Tensor
from regard.weights.foreign.parts import NEVER
from regard.weights.foreign.table import Copied, Row, Stacked

UNKNOWN: Final = 1
BIAS: Final = "decoder_ff_logit_out_b"
_EMBEDDINGS: Final = {
    "three_way": {"Wemb": "source_embedding.weight"},
    "two_way": {
        "encoder_Wemb": "source_embedding.weight",
        "decoder_Wemb": "target_embedding.weight",
    },
    "none": {
        "encoder_Wemb": "source_embedding.weight",
        "decoder_Wemb": "target_embedding.weight",
        "decoder_ff_logit_out_W": "projection.weight",
    },
}


@dataclass(frozen=True)
class _WithStart:
    """A table with a row for each token, to which one of zeros is added for the start token."""

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """One row more."""
        return torch.cat([parts[0], torch.zeros_like(parts[0][:1])])

    def send(self, whole: Tensor) -> list[Tensor]:
        """One row less."""
        return [whole[:-1]]


@dataclass(frozen=True)
class _Bias(_WithStart):
    """The bias of the logits, which keeps the start and the unknown token from being chosen.

    The start token has a zero embedding, whose logit would be 0, and Marian's search passes over
    the unknown token.
    """

    def bring(self, parts: Sequence[Tensor]) -> Tensor:
        """One number more."""
        return super().bring(parts).index_fill(0, torch.tensor([UNKNOWN, -1]), NEVER)


def table(config: TransformerConfig) -> list[Row]:
    """Marian's names and ours."""
    pre = "_pre" if config.norm_position == "pre" else ""
    rows = [Row((BIAS,), "output_bias", _Bias())]
    for theirs, ours in _EMBEDDINGS[config.tying].items():
        rows.append(Row((theirs,), ours, _WithStart()))
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            theirs, ours = f"{side}_l{layer + 1}", f"{side}_layers.{layer}"
            if side == "encoder" or config.decoder_mixer == "attention":
                rows += _attention(f"{theirs}_self", f"{ours}.self_attention", config.d_model, pre)
            else:
                rows += _ssru(f"{theirs}_rnn", f"{ours}.self_attention", pre)
            if side == "decoder":
                name = f"{ours}.cross_attention"
                rows += _attention(f"{theirs}_context", name, config.d_model, pre)
            rows += _feed_forward(f"{theirs}_ffn", f"{ours}.feed_forward", pre)
        if pre:
            rows += _norm(f"{side}_top", f"{side}_norm", "")
    return rows


def _attention(theirs: str, ours: str, d_model: int, pre: str) -> list[Row]:
    thirds = Stacked((d_model,) * 3)
    return [
        Row(tuple(f"{theirs}_W{part}" for part in "qkv"), f"{ours}.input.weight", thirds),
        Row(tuple(f"{theirs}_b{part}" for part in "qkv"), f"{ours}.input.bias", thirds),
        Row((f"{theirs}_Wo",), f"{ours}.output.weight", Copied()),
        Row((f"{theirs}_bo",), f"{ours}.output.bias", Copied()),
        *_norm(f"{theirs}_Wo", f"{ours}_norm", pre),
    ]


def _ssru(theirs: str, ours: str, pre: str) -> list[Row]:
    return [
        Row((f"{theirs}_W",), f"{ours}.value.weight", Copied()),
        Row((f"{theirs}_Wf",), f"{ours}.forget.weight", Copied()),
        Row((f"{theirs}_bf",), f"{ours}.forget.bias", Copied()),
        *_norm(theirs if pre else f"{theirs}_ffn", f"{ours}_norm", pre),
    ]


def _feed_forward(theirs: str, ours: str, pre: str) -> list[Row]:
    return [
        Row((f"{theirs}_W1",), f"{ours}.input.weight", Copied()),
        Row((f"{theirs}_b1",), f"{ours}.input.bias", Copied()),
        Row((f"{theirs}_W2",), f"{ours}.output.weight", Copied()),
        Row((f"{theirs}_b2",), f"{ours}.output.bias", Copied()),
        *_norm(f"{theirs}_ffn", f"{ours}_norm", pre),
    ]


def _norm(theirs: str, ours: str, pre: str) -> list[Row]:
    return [
        Row((f"{theirs}_ln_scale{pre}",), f"{ours}.weight", Copied()),
        Row((f"{theirs}_ln_bias{pre}",), f"{ours}.bias", Copied()),
    ]
