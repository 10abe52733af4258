"""What a folder of prepared text was made of, and whether that is still so."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.text.config import VocabularyConfig
from regard.text.vocabulary import Vocabulary


def file_sum(path: str) -> str:
    """Return the SHA-256 of a file as it lies on the disk, packed or not."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sums(vocabularies: Iterable[Vocabulary]) -> list[str]:
    """Return the SHA-256 of each vocabulary."""
    return [hashlib.sha256(each.to_bytes()).hexdigest() for each in vocabularies]


def settings_of(vocabulary: VocabularyConfig | None) -> dict[str, Any] | None:
    """Return what of the settings a trained vocabulary depends on; None where it was given."""
    return None if vocabulary is None else vocabulary.model_dump(exclude={"bpe_dropout"})


def is_current(
    index_file: Path,
    key: dict[str, Any],
    trained: dict[str, Any] | None,
    given: Sequence[Vocabulary] | None,
) -> bool:
    """Return whether the folder holds this text, with the vocabularies given or so trained."""
    try:
        index = read_index(index_file)
        return bool(
            index["key"] == key
            and (
                index["vocabulary"] == trained
                if given is None
                else index["tokenizers"] == sums(given)
            )
            and all(
                (index_file.parent / name).stat().st_size == size
                for name, size in index["sizes"].items()
            )
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read_index(index_file: Path) -> dict[str, Any]:
    """Return what `write_index` wrote."""
    index: dict[str, Any] = json.loads(index_file.read_text(encoding="utf-8"))
    return index


def write_index(
    index_file: Path,
    *,
    key: dict[str, Any],
    trained: dict[str, Any] | None,
    vocabularies: Sequence[Vocabulary],
    made_of: Sequence[Any],
    more: dict[str, Any],
) -> None:
    """Write, last of all files, what the others were made of.

    Args:
        index_file: where to, in the folder of the other files.
        key: all but the vocabularies that the text depends on.
        trained: the settings by which the vocabularies were trained; None where they were given.
        vocabularies: of the text.
        made_of: what, beside key and vocabularies, the fingerprint is of.
        more: what else to keep.
    """
    made = [key, sums(vocabularies), *made_of]
    index = {
        "key": key,
        "vocabulary": trained,
        "tokenizers": sums(vocabularies),
        "fingerprint": hashlib.sha256(json.dumps(made).encode("utf-8")).hexdigest(),
        **more,
        "sizes": {path.name: path.stat().st_size for path in sorted(index_file.parent.iterdir())},
    }
    index_file.write_text(json.dumps(index, indent=1), encoding="utf-8")


def check_expected(index_file: Path, expected: str | None, names: Iterable[str]) -> None:
    """Refuse a text that is not the one that a run was trained on.

    Raises:
        DataError: the fingerprint is not the expected one.
    """
    if expected is not None and str(read_index(index_file)["fingerprint"]) != expected:
        raise DataError(
            "the training text is not what the run was trained on",
            where=", ".join(names),
            hint="Bring the former files and settings back, or start a new run with --init.",
        )


def install(index_file: Path, folder: Path, expected: str | None, names: Iterable[str]) -> None:
    """Move the finished files into their place; without an index, no half of them is believed.

    Raises:
        DataError: the text is not the expected one; what is in the folder stays.
    """
    partial = index_file.parent
    try:
        check_expected(index_file, expected, names)
    except DataError:
        shutil.rmtree(partial)
        raise
    (folder / index_file.name).unlink(missing_ok=True)
    for path in sorted(partial.iterdir(), key=lambda path: path.name == index_file.name):
        path.replace(folder / path.name)
    partial.rmdir()


def empty_partial(folder: Path) -> Path:
    """Return an empty folder inside, for files that are not finished."""
    partial = folder / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial
