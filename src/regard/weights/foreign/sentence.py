"""How a sentence-transformers folder makes one vector of a text."""

from typing import Any, Final

from regard.weights.foreign.folder import ForeignFolder, present, read_json
from regard.weights.foreign.keys import Keys

_POOLING: Final = "1_Pooling/config.json"
_LIMITS: Final = "sentence_bert_config.json"


def embedding_settings(folder: ForeignFolder) -> dict[str, Any]:
    """Pooling and normalisation, as its modules say; nothing where the folder is of a plain model.

    Raises:
        CheckpointError: it pools in a way that no model here does.
    """
    path = folder.path / _POOLING
    if not present(path):
        return {}
    values = read_json(path)
    keys = Keys(values, str(path))
    mean = keys.flag("pooling_mode_mean_tokens", False)
    cls = keys.flag("pooling_mode_cls_token", False)
    if "pooling_mode" in keys:  # newer files say it in a word
        mean, cls = keys.text("pooling_mode") == "mean", keys.text("pooling_mode") == "cls"
    others = [
        name
        for name, value in values.items()
        if name.startswith("pooling_mode_")
        and name not in ("pooling_mode_mean_tokens", "pooling_mode_cls_token")
        and value
    ]
    if mean == cls or others:
        keys.refuse(others[0] if others else "pooling_mode", "mean or cls, one of the two")
    return {"pooling": "mean" if mean else "cls", "normalize": _normalizes(folder)}


def longest_text(folder: ForeignFolder, positions: int) -> int:
    """The most tokens of a text, as the folder says, or as the model has positions."""
    path = folder.path / _LIMITS
    if not present(path):
        return positions
    longest = Keys(read_json(path), str(path)).whole("max_seq_length", positions)
    return min(longest or positions, positions)


def _normalizes(folder: ForeignFolder) -> bool:
    path = folder.path / "modules.json"
    return present(path) and "models.Normalize" in path.read_text(
        encoding="utf-8", errors="replace"
    )
