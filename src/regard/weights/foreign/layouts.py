"""Weights whose files say nothing of their settings: what a config.json beside them must say."""

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal

from regard.models.config import TransformerConfig
from regard.nn.config import LayerNormConfig, SinusoidalConfig
from regard.weights.foreign.folder import ForeignFolder, ForeignWeights
from regard.weights.foreign.keys import MOST_LAYERS
from regard.weights.foreign.model import ForeignModel
from regard.weights.foreign.parts import ACTIVATIONS, wanted_weights
from regard.weights.foreign.table import Row, bring
from regard.weights.foreign.vocabulary import either_vocabulary, notes_of_ends

_MAX_TOKENS: Final = 512

Table = Callable[[TransformerConfig], list[Row]]


def layers(weights: ForeignWeights, prefix: str) -> int:
    """How many layers there are: one more than the highest number after `prefix`."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d{1,4})\.")
    numbers = [int(found[1]) for found in map(pattern.match, weights) if found]
    return min(1 + max(numbers, default=0), MOST_LAYERS)


def read_layout(
    folder: ForeignFolder,
    weights: ForeignWeights,
    table: Table,
    *,
    name: str,
    source: str,
    target: str,
    projection: str,
    inner: str,
    stacks: tuple[str, str],
    norm_position: Literal["pre", "post"],
    eps: float,
    projection_bias: bool,
    skipped: Iterator[str] | list[str],
) -> ForeignModel:
    """A translator whose sizes its weights tell, and whose other settings its config.json.

    Args:
        folder: what holds it.
        weights: its weights.
        table: names there and here.
        name: what it is called.
        source: the weight that is the source's embedding; `target` and `projection` likewise. A
            projection that is not there is tied.
        inner: a weight of a feed-forward that has its width as rows.
        stacks: what the names of the layers of encoder and decoder begin with.
        norm_position: where the norms are, if config.json doesn't say.
        eps: what norms add to a variance, if config.json doesn't say.
        projection_bias: whether the projection has a bias.
        skipped: names that may be there and are no weights.

    Raises:
        CheckpointError: it is damaged, or not what its settings say.
    """
    keys = folder.keys()
    tied = projection not in weights
    shared = tied and target not in weights
    sizes = weights.rows(source), weights.rows(source if shared else target)
    heads = keys.whole("num_heads")
    keys.without_effect("description")
    config = TransformerConfig(
        d_model=weights[source].shape[1],
        num_heads=heads,
        d_ff=weights.rows(inner),
        encoder_layers=layers(weights, stacks[0]),
        decoder_layers=layers(weights, stacks[1]),
        dropout=keys.number("dropout", 0.1),
        norm=LayerNormConfig(eps=keys.number("norm_eps", eps)),
        norm_position=keys.one_of("norm_position", {"pre": "pre", "post": "post"}, norm_position),
        feed_forward=keys.one_of("activation", ACTIVATIONS, "relu"),
        positions=SinusoidalConfig(
            layout=keys.one_of(
                "sinusoids", {"interleaved": "interleaved", "halves": "halves"}, "interleaved"
            )
        ),
        embedding_scale=keys.flag("embedding_scale", True),
        tying="three_way" if shared else "two_way" if tied else "none",
        output_bias=projection_bias,
    )
    longest = keys.whole("max_tokens", _MAX_TOKENS)
    keys.close()
    brought = bring(
        table(config),
        weights,
        wanted_weights(config, *sizes),
        copies={target: source} if shared else {},
        skipped=skipped,
        where=folder.where,
    )
    return ForeignModel(
        family="seq2seq",
        config=config,
        weights=brought,
        vocabularies=either_vocabulary(folder, sizes),
        origin=f"{name} of {folder.where}",
        max_tokens=longest,
        decoding=folder.search(),
        notes=(*notes_of_ends(folder), *weights.notes()),
    )
