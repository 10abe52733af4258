"""Weights whose files say nothing of their settings: what a config.json beside them must say."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from regard.models.config import TransformerConfig
from regard.nn.config import LayerNormConfig, SinusoidalConfig
from regard.weights.foreign.folder import ForeignFolder, ForeignWeights
from regard.weights.foreign.keys import MOST_LAYERS, Keys
from regard.weights.foreign.model import ForeignModel
from regard.weights.foreign.parts import ACTIVATIONS, wanted_weights
from regard.weights.foreign.table import Row, bring
from regard.weights.foreign.transformers_seq2seq import Tying
from regard.weights.foreign.vocabulary import either_vocabulary, notes_of_ends

_MAX_TOKENS: Final = 512


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a program names its weights, and what it does where a config.json doesn't say.

    Args:
        name: what it is called.
        table: names there and here.
        source: the weight that is the source's embedding; `target` likewise.
        projection: the part that makes logits; where it has no weight it is tied.
        inner: a weight of a feed-forward that has its width as rows.
        stacks: what the names of the layers of encoder and decoder begin with.
        norm_position: where the norms are, if config.json doesn't say.
        eps: what norms add to a variance, if config.json doesn't say.
        has_bias: whether a bias of the projection is a weight of it.
        skipped: names that may be there and are no weights.
    """

    name: str
    table: Callable[[TransformerConfig], list[Row]]
    source: str
    target: str
    projection: str
    inner: str
    stacks: tuple[str, str]
    norm_position: Literal["pre", "post"]
    eps: float
    has_bias: bool = True
    skipped: tuple[str, ...] = ()


def layers(weights: ForeignWeights, prefix: str) -> int:
    """How many layers there are: one more than the highest number after `prefix`."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d{1,4})\.")
    numbers = [int(found[1]) for found in map(pattern.match, weights) if found]
    return min(1 + max(numbers, default=0), MOST_LAYERS)


def read_layout(layout: Layout, folder: ForeignFolder, weights: ForeignWeights) -> ForeignModel:
    """A translator whose sizes its weights tell, and whose other settings its config.json.

    Raises:
        CheckpointError: it is damaged, or not what its settings say.
    """
    keys = folder.keys()
    keys.without_effect("description")
    tied = f"{layout.projection}.weight" not in weights
    shared = tied and layout.target not in weights
    tying: Tying = "three_way" if shared else "two_way" if tied else "none"
    config = _config(layout, weights, keys, tying)
    longest = keys.whole("max_tokens", _MAX_TOKENS)
    keys.close()
    sizes = (
        weights.rows(layout.source),
        weights.rows(layout.source if shared else layout.target),
    )
    brought = bring(
        layout.table(config),
        weights,
        wanted_weights(config, *sizes),
        copies={layout.target: layout.source} if shared else {},
        skipped=layout.skipped,
        where=folder.where,
    )
    return ForeignModel(
        family="seq2seq",
        config=config,
        weights=brought,
        vocabularies=either_vocabulary(folder, sizes),
        origin=f"{layout.name} of {folder.where}",
        max_tokens=longest,
        decoding=folder.search(),
        notes=(*notes_of_ends(folder), *weights.notes()),
    )


def _config(layout: Layout, weights: ForeignWeights, keys: Keys, tying: Tying) -> TransformerConfig:
    weights.rows(layout.source)
    encoder, decoder = layout.stacks
    positions: dict[str, SinusoidalConfig] = {
        "interleaved": SinusoidalConfig(layout="interleaved"),
        "halves": SinusoidalConfig(layout="halves"),
    }
    return TransformerConfig(
        d_model=weights[layout.source].shape[1],
        num_heads=keys.whole("num_heads"),
        d_ff=weights.rows(layout.inner),
        encoder_layers=layers(weights, encoder),
        decoder_layers=layers(weights, decoder),
        dropout=keys.number("dropout", 0.1),
        norm=LayerNormConfig(eps=keys.number("norm_eps", layout.eps)),
        norm_position=keys.one_of(
            "norm_position", {"pre": "pre", "post": "post"}, layout.norm_position
        ),
        feed_forward=keys.one_of("activation", ACTIVATIONS, "relu"),
        positions=keys.one_of("sinusoids", positions, "interleaved"),
        embedding_scale=keys.flag("embedding_scale", True),
        tying=tying,
        output_bias=layout.has_bias and f"{layout.projection}.bias" in weights,
    )
