"""The vocabulary that came with a checkpoint, as a run folder keeps it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from regard.errors import CheckpointError, ModelError
from regard.text.foreign import sentencepiece_vocabulary, tokenizers_vocabulary
from regard.weights.files import read_file
from regard.weights.foreign.folder import ForeignFolder, present, read_json
from regard.weights.foreign.opening import opening, token_ids
from regard.weights.layout import SOURCE_TOKENIZER, TARGET_TOKENIZER

_LIBRARY: Final = "tokenizer.json"

Vocabularies = tuple[bytes, bytes | None]
Control = Mapping[str, int | None]
Names = Mapping[str, str]

BERT_NAMES: Final[Names] = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
ROBERTA_NAMES: Final[Names] = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}


def decoder_vocabulary(folder: ForeignFolder, size: int) -> Vocabularies | None:
    """That of a language model.

    It starts from its begin token where its tokenizer puts that before a text, and else from its
    end token, which says that nothing opens one.

    Raises:
        CheckpointError: it is damaged, or has other ids than the model.
    """
    bos, pad = (folder.token(f"{name}_token_id", size) for name in ("bos", "pad"))
    ends = folder.tokens("eos_token_id", size)
    end = _first(*ends, bos, 0)
    before = opening(folder, size, bos)
    begins = len(before) == 1 and before[0] not in (*ends, end)
    start = before[0] if begins else end
    control = {"pad": _first(pad, *ends, bos, 0), "start": start, "eos": end}
    # What is more than a begin token of its own is put before a text as it is.
    prefix = () if begins else before
    return one_vocabulary(folder, size, control, prefix=prefix, ends=ends[1:])


def seq2seq_vocabulary(
    folder: ForeignFolder, size: int, *, begins: bool = False
) -> Vocabularies | None:
    """That of an encoder-decoder with one vocabulary: texts end with the end token.

    Args:
        folder: what holds it.
        size: how many ids the model has.
        begins: whether texts begin with the begin token, where that is another (BART).
    """
    control = seq2seq_control(folder, size)
    end = _first(control["eos"])
    ends = folder.tokens("eos_token_id", size)
    bos = folder.token("bos_token_id", size, of_model=True) if begins else None
    prefix = () if bos is None or bos in (end, *ends) else (bos,)
    return one_vocabulary(folder, size, control, prefix=prefix, suffix=(end,))


def seq2seq_control(folder: ForeignFolder, *sizes: int) -> Control:
    """The control ids of an encoder-decoder, which starts from its padding if nothing else.

    Args:
        folder: what says them.
        sizes: how many ids the source has and the target, or both of them.

    Raises:
        CheckpointError: there are no such ids.
    """
    pad = _first(folder.token("pad_token_id", min(sizes)), 0)
    start = _first(folder.token("decoder_start_token_id", sizes[-1]), pad)
    folder.tokens("bos_token_id", max(sizes))
    return {"pad": pad, "start": start, "eos": _first(folder.token("eos_token_id", min(sizes)), 0)}


def notes_of_ends(folder: ForeignFolder) -> tuple[str, ...]:
    """What is to be said where an encoder-decoder has several end tokens."""
    ends = folder.generation().get("eos_token_id")
    first, *others = ends if isinstance(ends, list) and ends else (0,)
    if not others:
        return ()
    return (f"eos_token_id = {first} ends a text here, and {others} are never generated",)


def either_vocabulary(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabularies | None:
    """One vocabulary for both sides, or else tokenizer.source.json and tokenizer.target.json."""
    if present(folder.path / _LIBRARY):
        return seq2seq_vocabulary(folder, sizes[0])
    control = seq2seq_control(folder, *sizes)
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
    for name in ("bos", "eos", "pad", "decoder_start"):
        folder.tokens(f"{name}_token_id", size)
    path = folder.path / _LIBRARY
    if not present(path):
        return None
    names = _names(folder, usual)
    ids = token_ids(read_json(path), str(path))
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
    if not present(path):
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
    if not all(present(path) for path in (*models, ids)):
        return None
    control = seq2seq_control(folder, *sizes)
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
            models, (ids, target_ids if present(target_ids) else ids), sizes, strict=True
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
    told = read_json(path) if present(path) else {}
    names = dict(usual)
    for role in usual:
        value = told.get(f"{role}_token")
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            names[role] = value
    return names


def _first(*ids: int | None) -> int:
    """The first that there is."""
    return next(number for number in ids if number is not None)
