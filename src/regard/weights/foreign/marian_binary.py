"""Models as Firefox and Bergamot ship them: Marian's binary file, sentencepiece vocabularies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from regard.counts import counted
from regard.errors import CheckpointError
from regard.models.config import TransformerConfig
from regard.nn.config import FeedForwardKind, LayerNormConfig, SinusoidalConfig
from regard.shapes import Tensor
from regard.text.foreign import sentencepiece_vocabulary
from regard.weights.files import read_file
from regard.weights.foreign.folder import present
from regard.weights.foreign.marian_items import Item, read_items
from regard.weights.foreign.marian_settings import MarianSettings, Value, read_settings
from regard.weights.foreign.marian_table import BIAS, table
from regard.weights.foreign.model import ForeignModel
from regard.weights.foreign.parts import wanted_weights
from regard.weights.foreign.table import bring

EOS: Final = 0

_SETTINGS: Final = "special:model.yml"
# How int8 activations are scaled; here they are not rounded.
_SCALES: Final = "_QuantMultA"
_EMBEDDING: Final = "Wemb"
# Bergamot cuts a text into sentences of at most so many tokens.
_MAX_TOKENS: Final = 128
_ACTIVATIONS: Final[dict[str, FeedForwardKind]] = {"relu": "relu", "swish": "swish"}
_REQUIRED: Final[dict[str, Value]] = {
    "type": "transformer",
    "input-types": [],
    "layer-normalization": "false",
    "lemma-dim-emb": "0",
    "right-left": "false",
    "tied-embeddings-src": "false",
    "transformer-ffn-depth": "2",
    "transformer-no-projection": "false",
    "transformer-pool": "false",
    "transformer-rnn-projection": "false",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": "false",
    "transformer-train-positions": "false",
    "ulr": "false",
}


@dataclass(frozen=True)
class _Files:
    """What a folder holds; `target` is None where one vocabulary serves both sides."""

    model: Path
    source: Path
    target: Path | None


def is_marian_binary(folder: Path) -> bool:
    """Whether a folder looks like a model of this kind."""
    return folder.is_dir() and any(folder.glob("model*.bin")) and any(folder.glob("*.spm"))


def read(folder: Path) -> ForeignModel:
    """The model of a folder with `model*.bin` and `vocab*.spm` (or `srcvocab`, `trgvocab`).

    The lists of likely words beside it (`lex*.bin`) are not used: every word may be chosen.

    Raises:
        CheckpointError: a file is missing or damaged, or the model has a part that none here has.
        ModelError: a vocabulary is damaged, or the package sentencepiece is missing.
    """
    files = _find(folder)
    items = read_items(files.model)
    config, source_size, target_size = _config(items, where=str(files.model))
    weights = _weights(items, config, source_size, target_size, where=str(files.model))

    def vocabulary(path: Path, size: int) -> bytes:
        return sentencepiece_vocabulary(
            read_file(path), pad=size, start=size, eos=EOS, size=size + 1, name=str(path)
        )

    return ForeignModel(
        family="seq2seq",
        config=config,
        weights=weights,
        vocabularies=(
            vocabulary(files.source, source_size),
            None if files.target is None else vocabulary(files.target, target_size),
        ),
        origin=f"Marian binary {files.model.name}",
        max_tokens=_MAX_TOKENS,
        decoding={"beam": 1},
        notes=("int8 weights are brought as float32, and nothing is rounded on the way",),
    )


def _find(folder: Path) -> _Files:
    def one(*patterns: str) -> Path | None:
        found = sorted({path for pattern in patterns for path in folder.glob(pattern)})
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CheckpointError(
                f"there are {len(found)} files like {patterns[0]}, wanted one: {names}",
                where=str(folder),
            )
        return found[0] if found and present(found[0]) else None

    def needed(pattern: str) -> Path:
        path = one(pattern)
        if path is None:
            raise CheckpointError(f"there is no file like {pattern}", where=str(folder))
        return path

    model, joint = needed("model*.bin"), one("vocab*.spm")
    if joint is not None:
        return _Files(model, joint, None)
    return _Files(model, needed("srcvocab*.spm"), needed("trgvocab*.spm"))


def _config(items: Mapping[str, Item], *, where: str) -> tuple[TransformerConfig, int, int]:
    """The settings as ours, and the sizes of the two vocabularies.

    Raises:
        CheckpointError: they are missing, or ask for what no model here has.
    """
    if _SETTINGS not in items:
        raise CheckpointError(f"there is no {_SETTINGS} in the file", where=where)
    values = read_settings(items[_SETTINGS].text(), where=where)
    settings = MarianSettings(values, where=where)
    settings.require(_REQUIRED)
    depths = [settings.number(key) for key in ("enc-depth", "dec-depth")]
    if max(depths) > len(items):
        raise CheckpointError(
            f"the settings speak of {counted(max(depths), 'layer')}, and the file holds "
            f"{counted(len(items), 'item')}",
            where=where,
        )
    tying = _tying(settings)
    names = (_EMBEDDING,) * 2 if tying == "three_way" else ("encoder_Wemb", "decoder_Wemb")
    for name in names:
        if name not in items:
            raise CheckpointError(f"the file lacks the embedding {name}", where=where)
    d_model, num_heads = settings.number("dim-emb"), settings.number("transformer-heads")
    if d_model % 2 or d_model < 4 or d_model % num_heads:
        raise CheckpointError(
            f"dim-emb is {d_model} and transformer-heads is {num_heads}, wanted an even width "
            "that the heads divide",
            where=where,
        )
    config = TransformerConfig(
        d_model=d_model,
        num_heads=num_heads,
        d_ff=settings.number("transformer-dim-ffn"),
        encoder_layers=depths[0],
        decoder_layers=depths[1],
        norm=LayerNormConfig(eps=1e-9),
        norm_position=_norm_position(settings, where),
        feed_forward=_activation(settings, where),
        positions=SinusoidalConfig(layout="halves", wavelengths="full"),
        tying=tying,
        output_bias=True,
        decoder_mixer=_mixer(settings, where),
    )
    return config, items[names[0]].shape[0], items[names[1]].shape[0]


def _tying(settings: MarianSettings) -> Literal["three_way", "two_way", "none"]:
    if settings.flag("tied-embeddings-all"):
        return "three_way"
    return "two_way" if settings.flag("tied-embeddings") else "none"


def _norm_position(settings: MarianSettings, where: str) -> Literal["post", "pre"]:
    keys = ("preprocess", "postprocess", "postprocess-emb", "postprocess-top")
    found = [settings.operations(f"transformer-{key}") for key in keys]
    match found:
        case ["", "an", "", ""]:
            return "post"
        case ["n", "a", "", "n"]:
            return "pre"
        case _:
            told = ", ".join(
                f'transformer-{key} = "{value}"' for key, value in zip(keys, found, strict=True)
            )
            raise CheckpointError(
                f'{told}; regard reads "", "an", "", "" (norms after) and "n", "a", "", "n" '
                "(norms before), dropout aside",
                where=where,
            )


def _activation(settings: MarianSettings, where: str) -> FeedForwardKind:
    found = settings.text("transformer-ffn-activation")
    if found not in _ACTIVATIONS:
        raise CheckpointError(
            f"transformer-ffn-activation is {found}, and regard reads {' and '.join(_ACTIVATIONS)}",
            where=where,
        )
    return _ACTIVATIONS[found]


def _mixer(settings: MarianSettings, where: str) -> Literal["attention", "ssru"]:
    found = settings.text("transformer-decoder-autoreg", "self-attention")
    cell = settings.text("dec-cell", "ssru")
    if found == "self-attention":
        return "attention"
    if found == "rnn" and cell == "ssru":
        return "ssru"
    raise CheckpointError(
        f"the decoder's sequence layer is {found} with cells {cell}; regard reads self-attention, "
        "and rnn with cells ssru",
        where=where,
    )


def _weights(
    items: Mapping[str, Item],
    config: TransformerConfig,
    source_size: int,
    target_size: int,
    *,
    where: str,
) -> dict[str, Tensor]:
    weights = {
        name: _tensor(item)
        for name, item in items.items()
        if name != _SETTINGS and not name.endswith(_SCALES)
    }
    if BIAS not in items:  # output-omit-bias
        weights[BIAS] = torch.zeros(target_size)
    wanted = wanted_weights(config, source_size + 1, target_size + 1)
    return bring(table(config), weights, wanted, where=where)


def _tensor(item: Item) -> Tensor:
    """An item as torch has it: embeddings v d, the matrix of a product out in, the rest vectors."""
    if item.name.endswith(_EMBEDDING):
        return item.matrix()
    return item.vector() if item.shape[0] == 1 else item.linear()
