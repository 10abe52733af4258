"""The vocabulary that came with a checkpoint, as a run folder keeps it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from regard.errors import CheckpointError, ModelError
from regard.text.foreign import sentencepiece_vocabulary, tokenizers_vocabulary
from regard.weights.files import read_file
from regard.weights.foreign.folder import ForeignFolder, read_json
from regard.weights.foreign.keys import token, tokens
from regard.weights.layout import SOURCE_TOKENIZER, TARGET_TOKENIZER

_LIBRARY: Final = "tokenizer.json"

Vocabularies = tuple[bytes, bytes | None]
Control = Mapping[str, int | None]
Names = Mapping[str, str]

BERT_NAMES: Final[Names] = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
ROBERTA_NAMES: Final[Names] = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}


def decoder_vocabulary(folder: ForeignFolder, size: int) -> Vocabularies | None:
    """That of a language model: it starts from its begin token or, without one, its end."""
    values = folder.generation()
    bos, eos, pad = (token(values, f"{name}_token_id") for name in ("bos", "eos", "pad"))
    start, end = _first(bos, eos, 0), _first(eos, bos, 0)
    control = {"pad": _first(pad, eos, bos, 0), "start": start, "eos": end}
    return one_vocabulary(folder, size, control, ends=tokens(values, "eos_token_id")[1:])


def seq2seq_vocabulary(
    folder: ForeignFolder, size: int, *, begins: bool = False
) -> Vocabularies | None:
    """That of an encoder-decoder with one vocabulary: texts end with the end token.

    Args:
        folder: what holds it.
        size: how many ids the model has.
        begins: whether texts begin with the begin token, where that is another (BART).
    """
    control = seq2seq_control(folder)
    end = _first(control["eos"])
    bos = token(folder.values, "bos_token_id") if begins else None
    prefix = () if bos is None or bos == end else (bos,)
    return one_vocabulary(folder, size, control, prefix=prefix, suffix=(end,))


def seq2seq_control(folder: ForeignFolder) -> Control:
    """The control ids of an encoder-decoder, which starts from its padding if nothing else."""
    values = folder.generation()
    pad = _first(token(values, "pad_token_id"), 0)
    start = _first(token(values, "decoder_start_token_id"), pad)
    return {"pad": pad, "start": start, "eos": _first(token(values, "eos_token_id"), 0)}


def notes_of_ends(folder: ForeignFolder) -> tuple[str, ...]:
    """What is to be said where an encoder-decoder has several end tokens."""
    first, *others = tokens(folder.generation(), "eos_token_id") or (0,)
    if not others:
        return ()
    return (f"eos_token_id = {first} ends a text here, and {others} are never generated",)


def either_vocabulary(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabularies | None:
    """One vocabulary for both sides, or else tokenizer.source.json and tokenizer.target.json."""
    if (folder.path / _LIBRARY).exists():
        return seq2seq_vocabulary(folder, sizes[0])
    control = seq2seq_control(folder)
    suffix = (_first(control["eos"]),)
    source, target = (
        one_vocabulary(folder, size, control, suffix=suffix, file=file)
        for size, file in zip(sizes, (SOURCE_TOKENIZER, TARGET_TOKENIZER), strict=True)
    )
    return None if source is None or target is None else (source[0], target[0])


def encoder_vocabulary(folder: ForeignFolder, size: int, usual: Names) -> Vocabularies | None:
    """That of an encoder, whose control tokens tokenizer_config.json names, or else are the usual.

    Raises:
        CheckpointError: it is damaged, lacks one of them, or has other ids than the model.
    """
    path = folder.path / _LIBRARY
    if not path.exists():
        return None
    names = _names(folder, usual)
    ids = _ids(read_json(path), str(path))
    if missing := [names[role] for role in ("cls", "sep", "pad") if names[role] not in ids]:
        raise CheckpointError(f"it has no token {', '.join(missing)}", where=str(path))
    begin, end = ids[names["cls"]], ids[names["sep"]]
    control = {"pad": ids[names["pad"]], "start": begin, "eos": end}
    control |= {"mask": ids[names["mask"]]} if names["mask"] in ids else {}
    return one_vocabulary(folder, size, control, prefix=(begin,), suffix=(end,))


def one_vocabulary(
    folder: ForeignFolder,
    size: int,
    control: Control,
    *,
    prefix: tuple[int, ...] = (),
    suffix: tuple[int, ...] = (),
    ends: tuple[int, ...] = (),
    file: str = _LIBRARY,
) -> Vocabularies | None:
    """What tokenizer.json holds, with what our models need to know of it; None without one.

    Raises:
        CheckpointError: it is damaged, or has other ids than the model.
    """
    path = folder.path / file
    if not path.exists():
        return None
    try:
        made = tokenizers_vocabulary(
            read_file(path),
            pad=_first(control["pad"]),
            start=_first(control["start"]),
            eos=_first(control["eos"]),
            mask=control.get("mask"),
            prefix=prefix,
            suffix=suffix,
            ends=ends,
            size=size,
            name=str(path),
        )
    except ModelError as error:
        raise CheckpointError(error.problem, where=error.where, hint=error.hint) from None
    return made, None


def two_sides(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabularies | None:
    """Marian's: a sentencepiece model a side, with one table of ids or two; None without.

    Raises:
        CheckpointError: a file is damaged, or has other ids than the model.
        ModelError: the package sentencepiece is not installed.
    """
    models = [folder.path / f"{side}.spm" for side in ("source", "target")]
    ids, target_ids = folder.path / "vocab.json", folder.path / "target_vocab.json"
    if not all(path.exists() for path in (*models, ids)):
        return None
    control = seq2seq_control(folder)
    first, second = (
        sentencepiece_vocabulary(
            read_file(path),
            pad=_first(control["pad"]),
            start=_first(control["start"]),
            eos=_first(control["eos"]),
            ids=_table(table),
            size=size,
            name=str(path),
        )
        for path, table, size in zip(
            models, (ids, target_ids if target_ids.exists() else ids), sizes, strict=True
        )
    )
    return first, None if first == second else second


def _table(path: Path) -> dict[str, int]:
    """The id of every piece."""
    table = read_json(path)
    if not all(type(number) is int and number >= 0 for number in table.values()):
        raise CheckpointError("wanted a table of pieces and their ids", where=str(path))
    return table


def _names(folder: ForeignFolder, usual: Names) -> Names:
    """What control tokens are called."""
    path = folder.path / "tokenizer_config.json"
    told = read_json(path) if path.exists() else {}
    names = dict(usual)
    for role in usual:
        value = told.get(f"{role}_token")
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            names[role] = value
    return names


def _ids(library: Mapping[str, Any], where: str) -> dict[str, int]:
    """Every token of a tokenizer.json with its id."""
    try:
        pieces = library["model"]["vocab"]
        if isinstance(pieces, list):
            pieces = {piece[0]: number for number, piece in enumerate(pieces)}
        added = {item["content"]: item["id"] for item in library.get("added_tokens") or []}
        return {**pieces, **added}
    except (KeyError, TypeError, IndexError):
        raise CheckpointError("not a readable tokenizer", where=where) from None


def _first(*ids: int | None) -> int:
    """The first that there is."""
    return next(number for number in ids if number is not None)
