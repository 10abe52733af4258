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
from regard.text.vocabulary import Vocabulary

_PARTIAL = "partial"


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


def discard_unfinished(folder: Path) -> None:
    """Remove what a preparation that failed left in the folder, and the folder if it is empty."""
    shutil.rmtree(folder / _PARTIAL, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


@dataclass(frozen=True, kw_only=True)
class PreparedFolder:
    """The folder of a prepared text; what is made lies aside in it until all of it is there.

    `index` is the file that says what the others were made of. `key` is all but the vocabularies
    that the text depends on; its "train" has the sums of the files in their order. `given` are the
    vocabularies, or None where `trained` are the settings by which they are trained. `expected` is
    the fingerprint that the text must have, and `names` are its files, for an error.
    """

    path: Path
    index: str
    key: dict[str, Any]
    trained: dict[str, Any] | None
    given: Sequence[Vocabulary] | None
    expected: str | None
    names: Sequence[str]

    def is_current(self, log: Callable[[str], None]) -> bool:
        """Return whether the folder holds this text, with the vocabularies given or so trained.

        Raises:
            DataError: it does, and the text is not the expected one.
        """
        if not self._holds():
            return False
        log(f"text: nothing changed, using what is prepared in {self.path}")
        self._check_expected(self.path)
        return True

    def begin(self) -> Path:
        """Return an empty folder inside, for files that are not finished."""
        shutil.rmtree(self._partial, ignore_errors=True)
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
            DataError: the text is not the expected one; what was in the folder stays.
        """
        partial = self._partial
        made = [self.key, sums(vocabularies), *made_of]
        index = {
            "key": self.key,
            "vocabulary": self.trained,
            "tokenizers": sums(vocabularies),
            "fingerprint": hashlib.sha256(json.dumps(made).encode("utf-8")).hexdigest(),
            **more,
            "sizes": {path.name: path.stat().st_size for path in sorted(partial.iterdir())},
        }
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
        try:
            index = read_index(self.path / self.index)
            return bool(
                index["key"] == self.key
                and (
                    index["vocabulary"] == self.trained
                    if self.given is None
                    else index["tokenizers"] == sums(self.given)
                )
                and all(
                    (self.path / name).stat().st_size == size
                    for name, size in index["sizes"].items()
                )
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _changed(self) -> list[str]:
        """The files that are not what they were when the expected text was prepared here."""
        try:
            former = read_index(self.path / self.index)
            sums_before = former["key"]["train"] if former["fingerprint"] == self.expected else []
        except (OSError, ValueError, KeyError, TypeError):
            return []
        if len(sums_before) != len(self.names):
            return []
        sums_now = zip(self.names, self.key["train"], sums_before, strict=True)
        return [name for name, now, before in sums_now if now != before]

    def _check_expected(self, folder: Path) -> None:
        """Refuse a text that is not the one that a run was trained on."""
        found = str(read_index(folder / self.index)["fingerprint"])
        if self.expected is not None and found != self.expected:
            raise DataError(
                "the training text is not what the run was trained on",
                where=", ".join(self._changed() or self.names),
                hint="Bring the former files and settings back, or start a new run with --init.",
            )
