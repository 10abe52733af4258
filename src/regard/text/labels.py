"""Text with labels: files of `label<TAB>text`, all of it checked first, and tokenised once."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.counts import counted
from regard.errors import DataError, ModelError
from regard.text.arrays import (
    ArrayFile,
    Indices,
    Mapped,
    OneSideWriter,
    TextCorpus,
    token_type,
)
from regard.text.config import LabelsConfig, VocabularyConfig
from regard.text.inputs import present
from regard.text.labelled_lines import LabelSurvey, read_labelled, survey_labels, training_texts
from regard.text.prepared import PreparedFolder, file_sum, read_index, settings_of
from regard.text.sampling import announce_vocabulary
from regard.text.survey import SMALLEST_VALIDATION, Log
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary, load_vocabulary

FORMAT = 1
INDEX_FILE = "labels.json"
CHUNK_LINES = 4096


class LabelledCorpus:
    """Tokenised texts and the number of the label of each."""

    def __init__(self, folder: Path, name: str, texts: TextCorpus) -> None:
        self.texts = texts
        self._labels = Mapped(folder / f"{name}.labels.bin", "int32")

    def __len__(self) -> int:
        return len(self.texts)

    def line(self, index: int) -> tuple[str, int]:
        """Return the file that a text came from, and its line there, counted from 1."""
        return self.texts.line(index)

    def labels(self, indices: Indices) -> Indices:
        """Return the numbers of the labels of these texts."""
        return self._labels.array[indices].astype(np.int64)

    def release(self) -> None:
        """Let go of the pages that were read."""
        self.texts.release()
        self._labels.release()


@dataclass(frozen=True)
class PreparedLabels:
    """All that training a classifier needs of the text.

    `names` are the labels in the order of their numbers. `counts` says what became of the lines
    of the training files: `read` = `kept` + `empty` + `held_out`; of all texts, `cut` had more
    tokens than a row.
    """

    vocabulary: Vocabulary
    names: tuple[str, ...]
    train: LabelledCorpus
    valid: LabelledCorpus
    counts: dict[str, int]


def prepare_labels(
    config: LabelsConfig,
    settings: VocabularyConfig,
    folder: Path,
    *,
    max_tokens: int,
    vocabulary: Vocabulary | None = None,
    expected: str | None = None,
    log: Log,
) -> PreparedLabels:
    """Check all lines, train the vocabulary, tokenise; or open what is there already.

    All is read once before anything is made. Lines without text are left out and counted; texts
    that are too long are cut and counted. The result lies in `folder` and is used again as long
    as the contents of the files and the settings stay the same.

    Args:
        config: the files and the labels.
        settings: what vocabulary to train; not looked at where one is given.
        folder: where the arrays go; made if missing. Only one process may prepare at a time.
        max_tokens: the most tokens of a row, prefix and suffix counted.
        vocabulary: use this instead of training one.
        expected: the fingerprint that the text must have; what is in `folder` is not replaced by
            another.
        log: is told, a line at a time, what was found, left out and made.

    Raises:
        DataError: a file is missing, empty, damaged or not UTF-8; a line has no tab, no label or
            an unknown one; there are not at least two labels; or the text is not the expected
            one.
        ModelError: a row has no place for text.
    """
    _require_files(config)
    prepared = PreparedFolder(
        path=folder,
        index=INDEX_FILE,
        key=_key(config, max_tokens),
        trained=settings_of(settings) if vocabulary is None else None,
        given=None if vocabulary is None else (vocabulary,),
        expected=expected,
        names=config.train,
        valid_names=(config.valid,) if config.valid else (),
    )
    if prepared.is_current(log):
        return _opened(folder, config)
    found = survey_labels(config, log)
    if vocabulary is None:
        vocabulary = Tokenizer.train(training_texts(config, found), settings, mask=True)
        announce_vocabulary("the text", vocabulary, settings, log)
    room = max_tokens - len(vocabulary.prefix) - len(vocabulary.suffix)
    if room < 1:
        raise ModelError(f"max_tokens = {max_tokens} leaves no place for text")
    partial = prepared.begin()
    counts, train_texts, valid_texts = _write(partial, config, found, vocabulary, room, log)
    vocabulary.save(partial / "tokenizer.json")
    more = {"names": found.names, "train_texts": train_texts, "valid_texts": valid_texts}
    prepared.finish((vocabulary,), list(more.values()), {**more, "counts": counts})
    return _opened(folder, config)


def _require_files(config: LabelsConfig) -> None:
    if not config.train:
        raise DataError("no text with labels is given", where="labels", hint="give labels.train")
    for path in (*config.train, *filter(None, [config.valid])):
        present(path)


def _key(config: LabelsConfig, max_tokens: int) -> dict[str, Any]:
    """Return all but the vocabulary that the prepared text depends on, as JSON holds it."""
    return {
        "format": FORMAT,
        "train": [file_sum(path) for path in config.train],
        "valid": file_sum(config.valid) if config.valid else config.valid_share,
        "names": list(config.names),
        "max_tokens": max_tokens,
    }


def _opened(folder: Path, config: LabelsConfig) -> PreparedLabels:
    index = read_index(folder / INDEX_FILE)
    vocabulary = load_vocabulary(folder / "tokenizer.json")

    def opened(name: str, files: tuple[str, ...]) -> LabelledCorpus:
        texts = TextCorpus(
            folder,
            name,
            dtype=token_type(vocabulary.size),
            files=files,
            file_texts=index[f"{name}_texts"],
            fingerprint=index["fingerprint"],
        )
        return LabelledCorpus(folder, name, texts)

    return PreparedLabels(
        vocabulary=vocabulary,
        names=tuple(index["names"]),
        train=opened("train", config.train),
        valid=opened("valid", (config.valid,) if config.valid else config.train),
        counts=index["counts"],
    )


class _Writer:
    """Writes texts with labels, each cut to the places that a row has for it."""

    def __init__(
        self, folder: Path, name: str, names: tuple[str, ...], vocabulary: Vocabulary, room: int
    ) -> None:
        self._texts = OneSideWriter(folder, name, vocabulary.size)
        self._labels = ArrayFile(folder / f"{name}.labels.bin")
        self._numbers = {label: number for number, label in enumerate(names)}
        self._room = room
        self.cut = 0

    @property
    def texts(self) -> int:
        return self._texts.texts

    @property
    def tokens(self) -> int:
        return self._texts.total

    def write(self, number: int, label: str, ids: list[int]) -> None:
        self._texts.extend(ids[: self._room])
        self._texts.end(number)
        self._labels.write(np.array([self._numbers[label]], dtype=np.int32))
        self.cut += len(ids) > self._room

    def close(self) -> None:
        self._texts.close()
        self._labels.close()


def _write(
    partial: Path,
    config: LabelsConfig,
    found: LabelSurvey,
    vocabulary: Vocabulary,
    room: int,
    log: Log,
) -> tuple[dict[str, int], list[int], list[int]]:
    """Write the arrays; return the counts, and the texts of each file for training and not."""
    train = _Writer(partial, "train", found.names, vocabulary, room)
    valid = _Writer(partial, "valid", found.names, vocabulary, room)
    train_texts, valid_texts = [], []
    read = 0
    for path in config.train:
        before = train.texts, valid.texts
        read += _tokenise(path, found, vocabulary, train, valid)
        train_texts.append(train.texts - before[0])
        valid_texts.append(valid.texts - before[1])
    held_out = valid.texts
    if config.valid:
        _copy(config.valid, None, valid, vocabulary)
        valid_texts = [valid.texts]
        if not valid.texts:
            raise DataError("every line has a label and no text", where=config.valid)
    elif not held_out:
        at = next(index for index, texts in enumerate(train_texts) if texts)
        _copy(config.train[at], SMALLEST_VALIDATION, valid, vocabulary)
        valid_texts[at] = valid.texts
        log(
            f"text: {counted(read, 'line')} can't be split; validating on "
            f"{counted(valid.texts, 'training text')}, so the figures say nothing of unseen text"
        )
    train.close()
    valid.close()
    if not (train.tokens and valid.tokens):
        raise DataError(
            "the vocabulary has no token for anything in the text", where=", ".join(config.train)
        )
    counts = {
        "read": read,
        "kept": train.texts,
        "empty": read - train.texts - held_out,
        "held_out": held_out,
        "cut": train.cut + valid.cut,
    }
    _report(counts, valid.texts, room, log)
    return counts, train_texts, valid_texts


def _tokenise(
    path: str, found: LabelSurvey, vocabulary: Vocabulary, train: _Writer, valid: _Writer
) -> int:
    """Write the lines of a file that have a text; return how many lines there are."""
    read = 0
    lines = read_labelled(path)
    while chunk := list(islice(lines, CHUNK_LINES)):
        read += len(chunk)
        rows = vocabulary.encode_batch([text for _, _, text in chunk])
        for (number, label, text), ids in zip(chunk, rows, strict=True):
            if text.strip():
                (valid if found.holds_out(text) else train).write(number, label, ids)
    return read


def _report(counts: dict[str, int], valid_texts: int, room: int, log: Log) -> None:
    if counts["empty"]:
        log(f"text: left out {counted(counts['empty'], 'line')} without a text")
    if counts["cut"]:
        log(f"text: cut {counted(counts['cut'], 'text')} of more than {counted(room, 'token')}")
    log(
        f"text: {counted(counts['kept'], 'text')} to train on, "
        f"{counted(valid_texts, 'text')} to validate on"
    )


def _copy(path: str, most: int | None, writer: _Writer, vocabulary: Vocabulary) -> None:
    """Write the texts of a file, or the first of them."""
    texts = (line for line in read_labelled(path) if line[2].strip())
    for number, label, text in islice(texts, most):
        writer.write(number, label, vocabulary.encode(text))
