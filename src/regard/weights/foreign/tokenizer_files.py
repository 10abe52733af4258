"""A vocabulary as files that transformers reads: the same text gives the same ids there."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from regard.models.config import DecoderConfig, ModelConfig
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary
from regard.weights.foreign.model import OwnModel
from regard.weights.foreign.opening import templates_opening

Files = dict[str, bytes]

TARGET = "target_tokenizer"
_SPACE: Mapping[str, Any] = {"type": "Prepend", "prepend": " "}
_OF_BYTES: Mapping[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}
_WITHOUT_SPACE: Mapping[str, Any] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def tokenizer_files(model: OwnModel[ModelConfig], kind: str) -> Files:
    """The files of a model's vocabulary; that of a target of its own goes into a folder of its own.

    Args:
        model: the model.
        kind: its `model_type`, which tells transformers how to read a sentencepiece vocabulary.
    """
    source, target = model.source, model.target
    documents = [json.loads(side.to_bytes()) for side in (source, target)]
    if all(document.get("kind") == "sentencepiece" for document in documents):
        return _pieces(documents, model) if kind == "marian" else {}
    around = _around(source, isinstance(model.config, DecoderConfig))
    files = _library(source, documents[0], around, model)
    if documents[1] != documents[0]:
        theirs = _library(target, documents[1], around, model)
        files |= {f"{TARGET}/{name}": data for name, data in theirs.items()}
    return files


def _around(vocabulary: Vocabulary, decoder: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that transformers is to put before and after a text, as regard does."""
    if not decoder:
        return vocabulary.prefix, vocabulary.suffix
    begins = vocabulary.start_id != vocabulary.eos_id
    return vocabulary.prefix or ((vocabulary.start_id,) if begins else ()), ()


def _library(
    vocabulary: Vocabulary,
    document: dict[str, Any],
    around: tuple[tuple[int, ...], tuple[int, ...]],
    model: OwnModel[ModelConfig],
) -> Files:
    """tokenizer.json, and what transformers must be told of it."""
    decoder = isinstance(model.config, DecoderConfig)
    if isinstance(vocabulary, Tokenizer):
        content = _made_here(vocabulary, document, around)
    else:
        content = document["library"]
        if decoder and templates_opening(content) != around[0]:
            content = {**content, "post_processor": _template(vocabulary, *around)}
    control: dict[str, int | None] = {
        "pad_token": vocabulary.pad_id,
        "bos_token": vocabulary.start_id,
        "eos_token": vocabulary.eos_id,
        "mask_token": vocabulary.mask_id,
    }
    if vocabulary.mask_id is not None:
        control |= {"cls_token": vocabulary.start_id, "sep_token": vocabulary.eos_id}
    names = {
        role: vocabulary.tokens([number])[0]
        for role, number in control.items()
        if number is not None
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.max_tokens + len(around[0]) + len(around[1]),
        "clean_up_tokenization_spaces": False,
        # What is typed is text, a control token's name too; but a mask is typed to be filled in.
        "split_special_tokens": vocabulary.mask_id is None,
        **names,
    }
    return {"tokenizer.json": _json(content), "tokenizer_config.json": _json(settings)}


def _made_here(
    vocabulary: Tokenizer,
    document: dict[str, Any],
    around: tuple[tuple[int, ...], tuple[int, ...]],
) -> dict[str, Any]:
    """What regard does around the library, told to the library."""
    if vocabulary.kind == "char":
        decoder: dict[str, Any] = {
            "type": "Sequence",
            "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}],
        }
        normalizer = None
    else:
        decoder = {"type": "Sequence", "decoders": [dict(_OF_BYTES), dict(_WITHOUT_SPACE)]}
        normalizer = dict(_SPACE)
    control = sorted(vocabulary.control_ids)
    return {
        **document,
        "added_tokens": [_special(number, vocabulary.tokens([number])[0]) for number in control],
        "normalizer": normalizer,
        "decoder": decoder,
        "post_processor": _template(vocabulary, *around),
    }


def _special(number: int, name: str) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": name, **plain, "special": True}


def _template(
    vocabulary: Vocabulary, before: tuple[int, ...], after: tuple[int, ...]
) -> dict[str, Any]:
    """What is put around a text."""

    def token(number: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": vocabulary.tokens([number])[0], "type_id": 0}}

    def text(name: str) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": 0}}

    first, last = [token(number) for number in before], [token(number) for number in after]
    named = {vocabulary.tokens([number])[0]: number for number in (*before, *after)}
    return {
        "type": "TemplateProcessing",
        "single": [*first, text("A"), *last],
        "pair": [*first, text("A"), *last, text("B"), *last],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for name, number in named.items()
        },
    }


def _pieces(documents: list[dict[str, Any]], model: OwnModel[ModelConfig]) -> Files:
    """Marian's two sentencepiece models and their table of ids, or tables."""
    source, target = documents
    if source["ids"] is None or target["ids"] is None:
        return {}
    files = {
        "source.spm": base64.b64decode(source["model"]),
        "target.spm": base64.b64decode(target["model"]),
        "vocab.json": _json(source["ids"]),
    }
    apart = source["ids"] != target["ids"]
    if apart:
        files["target_vocab.json"] = _json(target["ids"])
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": model.max_tokens + 1,
        "separate_vocabs": apart,
        "pad_token": model.source.tokens([model.source.pad_id])[0],
        "eos_token": model.source.tokens([model.source.eos_id])[0],
    }
    return files | {"tokenizer_config.json": _json(settings)}


def _json(values: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    return (json.dumps(values, ensure_ascii=False, indent=1) + "\n").encode()
