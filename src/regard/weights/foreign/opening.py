"""What a language model's own tokenizer puts before a text."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from regard.errors import CheckpointError
from regard.weights.foreign.folder import ForeignFolder, present, read_json
from regard.weights.foreign.keys import Keys

_LIBRARY: Final = "tokenizer.json"
_SETTINGS: Final = "tokenizer_config.json"
# Which tokenizers put a begin token before a text where nothing is said: by name, or else by
# the model.
_BEGINNING: Final = ("LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer")
_PLAIN: Final = ("Qwen2Tokenizer", "Qwen2TokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast")
_BEGINNING_MODELS: Final = ("llama", "mistral")


def opening(folder: ForeignFolder, size: int, bos: int | None) -> tuple[int, ...]:
    """The ids that its tokenizer puts before a text.

    tokenizer_config.json's add_bos_token decides, as in transformers, then the template of
    tokenizer.json, then what the tokenizer is.

    Args:
        folder: the checkpoint.
        size: how many ids the model has.
        bos: its begin token, as its settings say.

    Raises:
        CheckpointError: a file is damaged, or names ids that the model lacks.
    """
    library_path, path = folder.path / _LIBRARY, folder.path / _SETTINGS
    library = read_json(library_path) if present(library_path) else {}
    settings = Keys(read_json(path) if present(path) else {}, str(path))
    begin = () if bos is None else (bos,)
    if "add_bos_token" in settings:
        if not settings.flag("add_bos_token", False):
            return ()
        named = settings.content("bos_token")
        ids = token_ids(library, str(library_path)) if library and named else {}
        return (ids[named],) if named in ids else begin
    try:
        before = templates_opening(library)
    except (KeyError, TypeError, IndexError, AttributeError):
        raise CheckpointError("its post_processor is damaged", where=str(library_path)) from None
    if before is None:
        kind = settings.text("tokenizer_class", "")
        plain = kind in _PLAIN or (kind not in _BEGINNING and folder.kind not in _BEGINNING_MODELS)
        return () if plain else begin
    if not all(type(number) is int and 0 <= number < size for number in before):
        raise CheckpointError(
            f"its post_processor puts {list(before)} before a text, wanted ids from 0 to "
            f"{size - 1:,}",
            where=str(library_path),
        )
    return before


def templates_opening(library: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The ids that the template of a tokenizer.json puts before a text; None without one."""
    return next(_templates(library.get("post_processor")), None)


def token_ids(library: Mapping[str, Any], where: str) -> dict[str, int]:
    """Every token of a tokenizer.json with its id.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        pieces = library["model"]["vocab"]
        if isinstance(pieces, list):
            pieces = {piece[0]: number for number, piece in enumerate(pieces)}
        added = {item["content"]: item["id"] for item in library.get("added_tokens") or []}
        return {**pieces, **added}
    except (KeyError, TypeError, IndexError):
        raise CheckpointError("not a readable tokenizer", where=where) from None


def _templates(section: Any) -> Iterator[tuple[int, ...]]:  # noqa: ANN401 - whatever JSON holds
    """Yield what each part of a post_processor that puts anything around a text puts before it."""
    match section:
        case {"type": "Sequence", "processors": [*parts]}:
            for part in parts:
                yield from _templates(part)
        case {"type": "TemplateProcessing"}:
            before: list[int] = []
            for piece in section["single"]:
                if "SpecialToken" not in piece:
                    break
                before += section["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
            yield tuple(before)
        case {"type": "BertProcessing" | "RobertaProcessing"}:
            yield (section["cls"][1],)
