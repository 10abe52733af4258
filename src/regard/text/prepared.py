"""What a folder of prepared text was made of, and whether that is still so."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.text.config import VocabularyConfig
from regard.text.lines import writing
from regard.text.vocabulary import Vocabulary

_PARTIAL = "partial"
# Of the index and of what it says of the files; those before it had no number.
_FORMAT = 1


def file_sum(path: str) -> str:
    """Return the SHA-256 of a file as it lies on the disk, packed or not."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sums(vocabularies: Iterable[Vocabulary]) -> list[str]:
    """Return the SHA-256 of each vocabulary."""
    return [hashlib.sha256(each.to_bytes()).hexdigest() for each in vocabularies]


def settings_of(vocabulary: VocabularyConfig) -> dict[str, Any]:
    """Return what of the settings a trained vocabulary depends on."""
    return vocabulary.model_dump(exclude={"bpe_dropout"})


def read_index(index_file: Path) -> dict[str, Any]:
    """Return what `PreparedFolder.finish` wrote."""
    index: dict[str, Any] = json.loads(index_file.read_text(encoding="utf-8"))
    return index


def damaged_files(folder: Path, index_file: str) -> list[str]:
    """The prepared files that don't hold what was written: missing, cut, or with other bytes.

    All of them are read, at about a gigabyte a second.

    Returns:
        The names of the files; that of the index alone where it is what is damaged, or where
        `is_of_another_version`.
    """
    index = _sound_index(folder / index_file)
    if index is None:
        return [index_file]
    return [name for name, known in index["sums"].items() if _sum_or_none(folder / name) != known]


def is_of_another_version(index_file: Path) -> bool:
    """Whether a text was prepared by a version of regard whose index is another, and not damaged.

    0.1.0 kept no sums, neither of the files nor of the index.
    """
    try:
        index = read_index(index_file)
        if "sum" in index or "sums" in index:
            return _as_written(index) and index.get("format", _FORMAT) != _FORMAT
        return {"key", "vocabulary", "tokenizers", "fingerprint"} <= index.keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _sound_index(index_file: Path) -> dict[str, Any] | None:
    """The index, if it is there, as it was written, and of this version."""
    try:
        index = read_index(index_file)
        return index if _as_written(index) and index.get("format", _FORMAT) == _FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _as_written(index: dict[str, Any]) -> bool:
    """Whether an index has the sum that it was written with."""
    rest = dict(index)
    known: str = rest.pop("sum")
    return known == _index_sum(rest)


def _index_sum(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index).encode("utf-8")).hexdigest()


def _sum_or_none(path: Path) -> str | None:
    try:
        return file_sum(str(path))
    except OSError:
        return None


def discard_unfinished(folder: Path) -> None:
    """Remove what a preparation that failed left in the folder, and the folder if it is empty."""
    shutil.rmtree(folder / _PARTIAL, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


@dataclass(frozen=True, kw_only=True)
class PreparedFolder:
    """The folder of a prepared text; what is made lies aside in it until all of it is there.

    `index` is the file that says what the others were made of. `key` is all but the vocabularies
    that the text depends on; its "train" and "valid" have the sums of the files in their order, or
    "valid" what is to be held out. `given` are the vocabularies, or None where `trained` are the
    settings by which they are trained. `expected` is the fingerprint that the text must have;
    `names` and `valid_names` are the files to train and to validate on, for an error.
    """

    path: Path
    index: str
    key: dict[str, Any]
    trained: dict[str, Any] | None
    given: Sequence[Vocabulary] | None
    expected: str | None
    names: Sequence[str]
    valid_names: Sequence[str] = ()

    def is_current(self, log: Callable[[str], None]) -> bool:
        """Return whether the folder holds this text, with the vocabularies given or so trained.

        Files that are damaged, or of another version, are told to `log`: they are to be prepared
        again.

        Raises:
            DataError: it does, and the text is not the expected one.
        """
        if not self._holds():
            return False
        if is_of_another_version(self.path / self.index):
            log(
                "text: another version of regard prepared it, so the text is prepared again: "
                f"{self.path / self.index}"
            )
            return False
        if damaged := damaged_files(self.path, self.index):
            names = ", ".join(str(self.path / name) for name in damaged)
            log(f"text: damaged, so the text is prepared again: {names}")
            return False
        log(f"text: nothing changed, using what is prepared in {self.path}")
        self._check_expected(self.path)
        return True

    def begin(self) -> Path:
        """Return an empty folder inside, for files that are not finished.

        Raises:
            DataError: it can't be made.
        """
        shutil.rmtree(self._partial, ignore_errors=True)
        with writing(self._partial):
            self._partial.mkdir(parents=True)
        return self._partial

    def finish(
        self, vocabularies: Sequence[Vocabulary], made_of: Sequence[Any], more: dict[str, Any]
    ) -> None:
        """Write the index, and move the files into their place.

        Without an index, no half of them is believed.

        Args:
            vocabularies: of the text.
            made_of: what, beside key and vocabularies, the fingerprint is of.
            more: what else to keep in the index.

        Raises:
            DataError: the text is not the expected one, or the index can't be written; what was
                in the folder stays.
        """
        partial = self._partial
        made = [self.key, sums(vocabularies), *made_of]
        index = {
            "format": _FORMAT,
            "key": self.key,
            "vocabulary": self.trained,
            "tokenizers": sums(vocabularies),
            "fingerprint": hashlib.sha256(json.dumps(made).encode("utf-8")).hexdigest(),
            **more,
        }
        written = {path.name: file_sum(str(path)) for path in sorted(partial.iterdir())}
        index["sums"] = written
        index["sum"] = _index_sum(index)
        with writing(partial / self.index):
            (partial / self.index).write_text(json.dumps(index, indent=1), encoding="utf-8")
        try:
            self._check_expected(partial)
        except DataError:
            shutil.rmtree(partial)
            raise
        (self.path / self.index).unlink(missing_ok=True)
        for path in sorted(partial.iterdir(), key=lambda path: path.name == self.index):
            path.replace(self.path / path.name)
        partial.rmdir()

    @property
    def _partial(self) -> Path:
        return self.path / _PARTIAL

    def _holds(self) -> bool:
        """Whether the folder has this text, sound or damaged."""
        index = _sound_index(self.path / self.index)
        if index is None:
            return (self.path / self.index).exists()
        same_words = (
            index["vocabulary"] == self.trained
            if self.given is None
            else index["tokenizers"] == sums(self.given)
        )
        return bool(index["key"] == self.key and same_words)

    def _check_expected(self, folder: Path) -> None:
        """Refuse a text that is not the one that a run was trained on."""
        found = str(read_index(folder / self.index)["fingerprint"])
        if self.expected is not None and found != self.expected:
            where, problem = self._otherwise()
            raise DataError(
                problem,
                where=", ".join(where),
                hint="Bring the former files and settings back, or start a new run with --init.",
            )

    def _otherwise(self) -> tuple[Sequence[str], str]:
        """The files that are not what they were when the expected text was prepared, and how."""
        problem = "the training text is not what the run was trained on"
        former = _sound_index(self.path / self.index)
        if former is None or former["fingerprint"] != self.expected:
            if self.valid_names:
                problem = "the training or the validation text is not what the run was trained on"
            return [*self.names, *self.valid_names], problem
        train = _changed(self.names, self.key["train"], former["key"]["train"])
        valid = _changed(self.valid_names, self.key["valid"], former["key"]["valid"])
        if valid and not train:
            return valid, "the validation text is not what the run was validated on"
        if valid:
            problem += f", and the validation text is another too: {', '.join(valid)}"
        return train or self.names, problem


def _changed(names: Sequence[str], now: Any, before: Any) -> list[str]:  # noqa: ANN401 - from JSON
    """The files whose sums are others than before; all where they are more or fewer."""
    here, there = _all_sums(now), _all_sums(before)
    if len(here) != len(there):
        return list(names)
    return [name for name, one, other in zip(names, here, there, strict=True) if one != other]


def _all_sums(key: Any) -> list[str]:  # noqa: ANN401 - from JSON
    """The sums in a key: of one file, of files, or of pairs of them; none in what is no file's."""
    if isinstance(key, str):
        return [key]
    return [each for part in key for each in _all_sums(part)] if isinstance(key, list) else []
