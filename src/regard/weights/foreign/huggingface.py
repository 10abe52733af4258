"""A model of ours as a folder that transformers loads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never, cast

from regard.errors import CheckpointError
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    TransformerConfig,
    experts_in_words,
    mixers_in_words,
)
from regard.nn.config import RMSNormConfig
from regard.weights.aside import folder_aside
from regard.weights.files import rename, sync_folder, write_file
from regard.weights.foreign import bert_export, gpt2, llama, marian
from regard.weights.foreign.model import OwnModel, Written
from regard.weights.foreign.parts import require
from regard.weights.foreign.tokenizer_files import tokenizer_files
from regard.weights.tensors import tensor_chunks

_MADE_BY = {"format": "pt"}


def write(model: OwnModel[ModelConfig], out: Path) -> Written:
    """Write config.json, model.safetensors and a tokenizer; all of it, or nothing.

    Raises:
        ModelError: the format has no place for a setting of the model, which is named.
        CheckpointError: there is something at `out` already.
        RunFolderError: it can't be written.
    """
    made = written(model)
    files: dict[str, Any] = {"config.json": _json({**made.values, "dtype": "float32"})}
    if made.generation:
        files["generation_config.json"] = _json(made.generation)
    kind = str(made.values["model_type"])
    files |= tokenizer_files(model, kind)
    if out.exists():
        raise CheckpointError(
            "there is something of that name", where=str(out), hint="Use another --out."
        )
    with folder_aside(out) as aside:
        for name, data in files.items():
            (aside / name).parent.mkdir(exist_ok=True)
            write_file(aside / name, data)
        write_file(aside / "model.safetensors", tensor_chunks(made.weights, _MADE_BY))
        sync_folder(aside)
        rename(aside, out)
    return made


def written(model: OwnModel[ModelConfig]) -> Written:
    """A model in the names of the family that has a place for it.

    Raises:
        ModelError: none has; the settings that are in the way are named.
    """
    config = model.config
    require(
        "transformers",
        (not (mixers := mixers_in_words(config)), mixers),
        (not (experts := experts_in_words(config)), experts),
    )
    match config:
        case TransformerConfig():
            return marian.write(cast(OwnModel[TransformerConfig], model))
        case DecoderConfig():
            decoder = cast(OwnModel[DecoderConfig], model)
            rms = isinstance(config.norm, RMSNormConfig)
            return llama.write(decoder) if rms else gpt2.write(decoder)
        case EncoderConfig():
            return bert_export.write(cast(OwnModel[EncoderConfig], model))
        case _ as never:
            assert_never(never)


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, indent=2) + "\n").encode()
