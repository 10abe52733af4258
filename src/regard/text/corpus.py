"""From raw parallel text to tokenised arrays: all of it checked first, and made only once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.counts import counted
from regard.errors import DataError
from regard.text.arrays import Corpus, CorpusWriter, token_type
from regard.text.config import DataConfig, VocabularyConfig
from regard.text.filters import PairFilter
from regard.text.inputs import PairFile, training_files, validation_file
from regard.text.lines import writing
from regard.text.prepared import PreparedFolder, read_index, settings_of, sums
from regard.text.sampling import announce_vocabulary, stride_of
from regard.text.survey import SMALLEST_VALIDATION, Log, Survey, is_empty, survey
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary, load_vocabulary

FORMAT = 1
INDEX_FILE = "corpus.json"
CHUNK_PAIRS = 4096


@dataclass(frozen=True)
class Tokenizers:
    """The vocabularies of the two sides; the same one twice where it is joint."""

    source: Vocabulary
    target: Vocabulary

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source is self.target or self.source.to_bytes() == self.target.to_bytes()


@dataclass(frozen=True)
class GivenVocabularies:
    """Vocabularies that come from elsewhere; a side of None gets one of its own.

    Where the vocabulary is to be joint, one given serves both sides.
    """

    source: Vocabulary | None = None
    target: Vocabulary | None = None


@dataclass(frozen=True)
class ValidationSet:
    """The text to validate on, untouched; line N of the target translates line N of the source."""

    source_lines: list[str]
    target_lines: list[str]


@dataclass(frozen=True)
class PreparedData:
    """All that training needs of the text.

    `counts` says what became of the pairs of the training files: `read` = `kept` + `empty` +
    `too_long` + `ratio` + `held_out`.
    """

    tokenizers: Tokenizers
    train: Corpus
    valid: ValidationSet
    counts: dict[str, int]


def prepare_corpus(
    config: DataConfig,
    vocabulary: VocabularyConfig,
    folder: Path,
    *,
    tokenizers: Tokenizers | GivenVocabularies | None = None,
    expected: str | None = None,
    log: Log,
) -> PreparedData:
    """Check all text, train the vocabulary, filter, tokenise; or open what is there already.

    Everything is read once before anything is made, so that a fault in the last line is found
    first. Files are read in streams and tokenised in chunks: memory does not grow with the
    number of pairs. The result lies in `folder` and is used again as long as the contents of the
    files, the filters and the vocabulary's settings stay the same.

    Args:
        config: the files and the filters.
        vocabulary: what to train; not looked at where both tokenizers are given.
        folder: where the arrays go; made if missing. Only one process may prepare at a time.
        tokenizers: use these, on one side or both, instead of training new ones.
        expected: the fingerprint that the corpus must have; what is in `folder` is not replaced
            by another.
        log: is told, a line at a time, what was found, left out and made.

    Raises:
        DataError: a file is missing, empty, damaged, not UTF-8, or does not match its partner;
            no pair is left; or the corpus is not the expected one.
    """
    files = training_files(config)
    valid_file = validation_file(config)
    source, target = _given(tokenizers, joint=vocabulary.joint)
    given, trained = None, None
    if source is not None and target is not None:
        given = (source, target)
    else:
        came = {name: sums([side])[0] for name, side in _named(source, target).items()}
        trained = {**settings_of(vocabulary), **({"given": came} if came else {})}
    prepared = PreparedFolder(
        path=folder,
        index=INDEX_FILE,
        key=_key(config, files, valid_file),
        trained=trained,
        given=given,
        expected=expected,
        names=[path for file in files for path in file.paths],
        valid_names=valid_file.paths if valid_file else (),
    )
    if prepared.is_current(log):
        return _opened(folder, files)
    found = survey(files, config.valid_pairs if valid_file is None else 0, log)
    valid = None if valid_file is None else _read_validation(valid_file, log)
    made = (
        Tokenizers(*given)
        if given is not None
        else _train_tokenizers(files, found, vocabulary, source, target, log)
    )
    partial = prepared.begin()
    writer = CorpusWriter(partial, made.source.size, made.target.size)
    fit = PairFilter(config, found if valid is None else None)
    file_pairs = [_tokenise(file, made, fit, writer) for file in files]
    writer.close()
    _report(fit, files, log)
    if valid is None:
        valid = _held_out_set(fit, found, files, log)
    _write_rest(partial, made, valid)
    prepared.finish(
        (made.source, made.target),
        [file_pairs],
        {"joint": made.joint, "file_pairs": file_pairs, "counts": fit.counts},
    )
    return _opened(folder, files)


def _given(
    tokenizers: Tokenizers | GivenVocabularies | None, *, joint: bool
) -> tuple[Vocabulary | None, Vocabulary | None]:
    """Return the vocabulary that is given for each side."""
    if tokenizers is None:
        return None, None
    source, target = tokenizers.source, tokenizers.target
    return (source or target, target or source) if joint else (source, target)


def _named(source: Vocabulary | None, target: Vocabulary | None) -> dict[str, Vocabulary]:
    sides = {"source": source, "target": target}
    return {name: side for name, side in sides.items() if side is not None}


def _key(
    config: DataConfig, files: tuple[PairFile, ...], valid_file: PairFile | None
) -> dict[str, Any]:
    """Return all but the tokenizers that the prepared corpus depends on, as JSON holds it."""
    return {
        "format": FORMAT,
        "train": [file.fingerprint() for file in files],
        "valid": config.valid_pairs if valid_file is None else valid_file.fingerprint(),
        "max_tokens": config.max_tokens,
        "max_ratio": config.max_ratio,
    }


def _opened(folder: Path, files: tuple[PairFile, ...]) -> PreparedData:
    index = read_index(folder / INDEX_FILE)
    source = load_vocabulary(folder / "source.tokenizer.json")
    target = source
    if not index["joint"]:
        target = load_vocabulary(folder / "target.tokenizer.json")
    valid = json.loads((folder / "valid.json").read_text(encoding="utf-8"))
    return PreparedData(
        tokenizers=Tokenizers(source, target),
        train=Corpus(
            folder,
            source_type=token_type(source.size),
            target_type=token_type(target.size),
            files=[file.name for file in files],
            file_pairs=index["file_pairs"],
            fingerprint=index["fingerprint"],
        ),
        valid=ValidationSet(valid["source"], valid["target"]),
        counts=index["counts"],
    )


def _read_validation(file: PairFile, log: Log) -> ValidationSet:
    pairs = list(file.pairs())
    if all(map(is_empty, pairs)):
        raise DataError("every pair of the validation text has an empty side", where=file.name)
    log(f"text: {counted(len(pairs), 'validation pair')} in {file.name}")
    return ValidationSet([source for source, _ in pairs], [target for _, target in pairs])


def _train_tokenizers(
    files: tuple[PairFile, ...],
    found: Survey,
    config: VocabularyConfig,
    source: Vocabulary | None,
    target: Vocabulary | None,
    log: Log,
) -> Tokenizers:
    stride = stride_of(found.characters, "pair", log)

    def sample(sides: tuple[int, ...]) -> Iterator[str]:
        for file in files:
            for pair in islice(file.pairs(), 0, None, stride):
                if not found.holds_out(pair[0]):
                    yield from (pair[side] for side in sides)

    if config.joint:
        both = Tokenizer.train(sample((0, 1)), config)
        announce_vocabulary("both sides", both, config, log)
        return Tokenizers(both, both)
    if source is None:
        source = Tokenizer.train(sample((0,)), config)
        announce_vocabulary("the source", source, config, log)
    if target is None:
        target = Tokenizer.train(sample((1,)), config)
        announce_vocabulary("the target", target, config, log)
    return Tokenizers(source, target)


def _tokenise(file: PairFile, tokenizers: Tokenizers, fit: PairFilter, writer: CorpusWriter) -> int:
    """Write the fit pairs of a file; return how many they are."""
    kept = 0
    first_line = 1
    pairs = file.pairs()
    while chunk := list(islice(pairs, CHUNK_PAIRS)):
        sources = tokenizers.source.encode_batch([source for source, _ in chunk])
        targets = tokenizers.target.encode_batch([target for _, target in chunk])
        rows = [
            row
            for row, pair in enumerate(chunk)
            if fit.keeps(pair, len(sources[row]), len(targets[row]))
        ]
        writer.write(
            [sources[row] for row in rows],
            [targets[row] for row in rows],
            [first_line + row for row in rows],
        )
        kept += len(rows)
        first_line += len(chunk)
    return kept


def _report(fit: PairFilter, files: tuple[PairFile, ...], log: Log) -> None:
    counts = fit.counts
    reasons = fit.reasons()
    if not counts["kept"]:
        held_out = f"{counts['held_out']:,} held out for validation" if counts["held_out"] else ""
        raise DataError(
            f"no pair is left to train on, of {counts['read']:,}: "
            f"{', '.join(filter(None, (reasons, held_out)))}",
            where=", ".join(file.name for file in files),
            hint="raise data.max_tokens or data.max_ratio, or look at the files",
        )
    if reasons:
        left_out = counts["read"] - counts["kept"] - counts["held_out"]
        log(f"text: left out {left_out:,} of {counted(counts['read'], 'pair')}: {reasons}")
    log(f"text: {counted(counts['kept'], 'pair')} to train on")


def _held_out_set(
    fit: PairFilter, found: Survey, files: tuple[PairFile, ...], log: Log
) -> ValidationSet:
    """Return the pairs held out; of a text too small or too uniform, its first pairs."""
    pairs = fit.held_out
    if pairs:
        log(
            f"text: held {counted(fit.counts['held_out'], 'pair')} out, "
            f"validating on {len(pairs):,}"
        )
    else:
        pairs = [pair for pair in islice(files[0].pairs(), CHUNK_PAIRS) if not is_empty(pair)]
        pairs = pairs[:SMALLEST_VALIDATION]
        why = f"too short to hold any out ({counted(found.pairs, 'pair')})"
        if found.hold_out:
            why = f"all {found.pairs:,} pairs have nearly the same source, so none is held out"
        log(
            f"text: {why}; validating on "
            f"{counted(len(pairs), 'training pair')}, so the figures say nothing of unseen text"
        )
    return ValidationSet([source for source, _ in pairs], [target for _, target in pairs])


def _write_rest(partial: Path, tokenizers: Tokenizers, valid: ValidationSet) -> None:
    """Write the tokenizers and the validation text."""
    tokenizers.source.save(partial / "source.tokenizer.json")
    if not tokenizers.joint:
        tokenizers.target.save(partial / "target.tokenizer.json")
    lines = {"source": valid.source_lines, "target": valid.target_lines}
    with writing(partial / "valid.json"):
        (partial / "valid.json").write_text(json.dumps(lines), encoding="utf-8")
