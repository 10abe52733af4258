"""From raw text to tokenised documents, for models of one side: checked first, made only once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from regard.counts import counted
from regard.errors import DataError
from regard.text.arrays import OneSideWriter, TextCorpus, token_type
from regard.text.config import TextConfig, VocabularyConfig
from regard.text.inputs import present
from regard.text.passages import Part, TextSurvey, read_parts, survey_text
from regard.text.prepared import PreparedFolder, file_sum, read_index, settings_of
from regard.text.sampling import announce_vocabulary, stride_of
from regard.text.survey import SMALLEST_VALIDATION, Log
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary, load_vocabulary

FORMAT = 1
INDEX_FILE = "text.json"
CHUNK_PARTS = 4096
CHUNK_CHARACTERS = 1 << 22
# Of documents that are all in training, about so many characters are validated on.
COPIED_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class PreparedText:
    """All that training needs of the text.

    `counts` says what became of the documents of the training files: `read` = `kept` + `empty` +
    `held_out`, and how many `tokens` and `valid_tokens` there are, without control tokens. A file
    that is one document and gave its last part to validation counts as kept.
    """

    vocabulary: Vocabulary
    train: TextCorpus
    valid: TextCorpus
    counts: dict[str, int]


def prepare_text(
    config: TextConfig,
    settings: VocabularyConfig,
    folder: Path,
    *,
    vocabulary: Vocabulary | None = None,
    mask: bool = False,
    expected: str | None = None,
    log: Log,
) -> PreparedText:
    """Check all text, train the vocabulary, tokenise; or open what is there already.

    Everything is read once before anything is made, so that a fault in the last line is found
    first. Files are read in streams and tokenised in parts: memory does not grow with the text.
    The result lies in `folder` and is used again as long as the contents of the files and the
    settings stay the same.

    A document of more than about 65,000 characters is tokenised in parts that end where a line
    does; only the first has a space put before it.

    Args:
        config: the files, and where a document ends.
        settings: what vocabulary to train; not looked at where one is given.
        folder: where the arrays go; made if missing. Only one process may prepare at a time.
        vocabulary: use this instead of training one.
        mask: whether a vocabulary that is trained is for an encoder.
        expected: the fingerprint that the text must have; what is in `folder` is not replaced by
            another.
        log: is told, a line at a time, what was found, left out and made.

    Raises:
        DataError: a file is missing, empty, damaged or not UTF-8; there is no text in them; or
            the text is not the expected one.
    """
    files = _files(config)
    prepared = PreparedFolder(
        path=folder,
        index=INDEX_FILE,
        key=_key(config, files),
        trained={**settings_of(settings), "mask": mask} if vocabulary is None else None,
        given=None if vocabulary is None else (vocabulary,),
        expected=expected,
        names=files,
        valid_names=(config.valid_text,) if config.valid_text else (),
    )
    if prepared.is_current(log):
        return _opened(folder, config, files)
    share = 0.0 if config.valid_text else config.valid_share
    found = survey_text(files, config.documents, share, log)
    valid_found = None
    if config.valid_text:
        valid_found = survey_text((config.valid_text,), config.documents, 0.0, log)
    if vocabulary is None:
        vocabulary = _train(found, settings, mask, log)
    partial = prepared.begin()
    counts, train_texts, valid_texts = _write(partial, found, valid_found, vocabulary, log)
    vocabulary.save(partial / "tokenizer.json")
    prepared.finish(
        (vocabulary,),
        [train_texts, valid_texts],
        {"train_texts": train_texts, "valid_texts": valid_texts, "counts": counts},
    )
    return _opened(folder, config, files)


def _files(config: TextConfig) -> tuple[str, ...]:
    if not config.text:
        raise DataError("no training text is given", where="data", hint="give data.text")
    for path in (*config.text, *filter(None, [config.valid_text])):
        present(path)
    return config.text


def _key(config: TextConfig, files: tuple[str, ...]) -> dict[str, Any]:
    """Return all but the vocabulary that the prepared text depends on, as JSON holds it."""
    return {
        "format": FORMAT,
        "train": [file_sum(path) for path in files],
        "valid": file_sum(config.valid_text) if config.valid_text else config.valid_share,
        "documents": config.documents,
    }


def _opened(folder: Path, config: TextConfig, files: tuple[str, ...]) -> PreparedText:
    index = read_index(folder / INDEX_FILE)
    vocabulary = load_vocabulary(folder / "tokenizer.json")
    dtype, fingerprint = token_type(vocabulary.size), index["fingerprint"]
    train, valid = (
        TextCorpus(
            folder,
            name,
            dtype=dtype,
            files=names,
            file_texts=index[f"{name}_texts"],
            fingerprint=fingerprint,
        )
        for name, names in (
            ("train", files),
            ("valid", (config.valid_text,) if config.valid_text else files),
        )
    )
    return PreparedText(vocabulary, train, valid, index["counts"])


def _train(found: TextSurvey, settings: VocabularyConfig, mask: bool, log: Log) -> Tokenizer:
    # Characters are counted as they pass; pieces are learned from what is kept in memory.
    stride = 1 if settings.kind == "char" else stride_of(found.characters, "part", log)
    parts = (
        part.text for file in found.files for part in read_parts(file, found) if not part.held_out
    )
    vocabulary = Tokenizer.train(islice(parts, 0, None, stride), settings, mask=mask)
    announce_vocabulary("the text", vocabulary, settings, log)
    return vocabulary


def _write(
    partial: Path,
    found: TextSurvey,
    valid_found: TextSurvey | None,
    vocabulary: Vocabulary,
    log: Log,
) -> tuple[dict[str, int], list[int], list[int]]:
    """Write the arrays; return the counts, and the texts of each file for training and not."""
    train = OneSideWriter(partial, "train", vocabulary.size)
    valid = OneSideWriter(partial, "valid", vocabulary.size)
    train_texts, valid_texts = [], []
    for file in found.files:
        before = train.texts, valid.texts
        _tokenise(read_parts(file, found), vocabulary, train, valid)
        train_texts.append(train.texts - before[0])
        valid_texts.append(valid.texts - before[1])
    if valid_found is not None:
        _tokenise(read_parts(valid_found.files[0], valid_found), vocabulary, valid, valid)
        valid_texts = [valid.texts]
    elif not valid.texts:
        valid_texts = [0] * len(found.files)
        valid_texts[found.first] = _copy_first(found, vocabulary, valid)
        log(
            f"text: {counted(found.documents, 'document')} can't be split; validating on "
            f"{counted(valid.texts, 'training document')}, so the figures say nothing of unseen "
            "text"
        )
    train.close()
    valid.close()
    if not (train.total and valid.total):
        raise DataError(
            "the vocabulary has no token for anything in the text", where=", ".join(found.files)
        )
    counts = {
        "read": found.documents + found.empty,
        "kept": train.texts,
        "empty": found.empty,
        "held_out": found.documents - train.texts,
        "tokens": train.total,
        "valid_tokens": valid.total,
    }
    log(
        f"text: {counted(train.texts, 'document')} of {counted(train.total, 'token')} to train "
        f"on, {counted(valid.total, 'token')} to validate on"
    )
    return counts, train_texts, valid_texts


def _copy_first(found: TextSurvey, vocabulary: Vocabulary, valid: OneSideWriter) -> int:
    """Write the first documents, or as much as is enough, for validation too; return how many."""

    def first() -> Iterator[Part]:
        ended = characters = 0
        for part in read_parts(found.files[found.first], found):
            characters += len(part.text)
            enough = characters >= COPIED_CHARACTERS
            yield replace(part, last=part.last or enough)
            ended += part.last
            if enough or ended == SMALLEST_VALIDATION:
                return

    _tokenise(first(), vocabulary, valid, valid)
    return valid.texts


def _tokenise(
    parts: Iterator[Part], vocabulary: Vocabulary, train: OneSideWriter, valid: OneSideWriter
) -> None:
    """Write the ids of documents that come in parts."""
    for chunk in _chunks(parts):
        heads = iter(vocabulary.encode_batch([part.text for part in chunk if part.first]))
        for part in chunk:
            writer = valid if part.held_out else train
            writer.extend(next(heads) if part.first else vocabulary.encode_more(part.text))
            if part.last:
                writer.end(part.line)


def _chunks(parts: Iterator[Part]) -> Iterator[list[Part]]:
    chunk: list[Part] = []
    characters = 0
    for part in parts:
        chunk.append(part)
        characters += len(part.text)
        if len(chunk) == CHUNK_PARTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
