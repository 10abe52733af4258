"""Where text comes from, and how it is cut into tokens."""

from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from regard.counts import counted
from regard.settings import MOST, MOST_FACTOR, Settings

Paths = Annotated[tuple[str, ...], Field(strict=False)]


class VocabularyConfig(Settings):
    """A vocabulary trained from the training data.

    `bpe` and `unigram` are of subwords; `char` has every character of the training text, at most
    `size`, and cuts others into bytes; `foreign` came with a checkpoint from elsewhere. `size`
    counts every entry, control tokens and the 256 bytes included. `joint` trains one vocabulary
    on both sides; otherwise each side gets one of `size`. `bpe_dropout` is the chance that a
    merge is skipped while training (arXiv:1910.13267).
    """

    kind: Literal["bpe", "unigram", "char", "foreign"] = "bpe"
    size: int = Field(default=37_000, ge=260, le=1_000_000)
    joint: bool = True
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _dropout_needs_bpe(self) -> Self:
        if self.bpe_dropout and self.kind != "bpe":
            raise ValueError(f'bpe_dropout = {self.bpe_dropout} needs kind = "bpe"')
        return self


class DataConfig(Settings):
    """The parallel text: line-aligned files, or TSV files of `source<TAB>target`.

    Files may be plain, .gz, .xz or .zst. `weights` says how often each training file (a pair of
    files, or a TSV) is sampled relative to its size; left out, each pair of lines is seen once
    an epoch. Without validation files, `valid_pairs` pairs are held out by a hash of the source.

    Pairs with a side of more than `max_tokens` tokens (the end token not counted), or whose
    token counts differ by more than a factor of `max_ratio` (and by more than 10 tokens), are
    left out and counted.
    """

    source: Paths = ()
    target: Paths = ()
    tsv: Paths = ()
    weights: Annotated[tuple[float, ...], Field(strict=False)] = ()
    valid_source: str = ""
    valid_target: str = ""
    valid_tsv: str = ""
    valid_pairs: int = Field(default=1000, ge=1, le=MOST)
    max_tokens: int = Field(default=256, ge=1, le=MOST)
    max_ratio: float = Field(default=8.0, ge=1, le=MOST_FACTOR)

    @model_validator(mode="after")
    def _files_pair_up(self) -> Self:
        if len(self.source) != len(self.target):
            raise ValueError(
                f"{counted(len(self.source), 'source file')} and "
                f"{counted(len(self.target), 'target file')}: "
                "each source file needs its target file, in the same order"
            )
        if self.source and self.tsv:
            raise ValueError("give source and target, or tsv, not both")
        files = len(self.source) + len(self.tsv)
        if self.weights and len(self.weights) != files:
            weights = counted(len(self.weights), "weight")
            raise ValueError(f"{weights} for {counted(files, 'training file')}")
        given = ", ".join(f"{weight:g}" for weight in self.weights)
        if not all(weight > 0 for weight in self.weights):
            raise ValueError(f"every one of weights must be more than 0, got [{given}]")
        if not all(1 <= weight * MOST_FACTOR <= MOST_FACTOR**2 for weight in self.weights):
            raise ValueError(f"every one of weights must be from 1e-06 to 1e+06, got [{given}]")
        if bool(self.valid_source) != bool(self.valid_target):
            raise ValueError("valid_source and valid_target go together")
        if self.valid_source and self.valid_tsv:
            raise ValueError("give valid_source and valid_target, or valid_tsv, not both")
        return self


class TextConfig(Settings):
    """Plain text, for a model of one side: files, plain, .gz, .xz or .zst.

    `documents` says where a document ends: at the end of its `file`, at every `line`, or at
    every `blank` line. No token attends to another document. A document of more than
    `max_tokens` tokens is cut into windows of that many.

    Without `valid_text` the share `valid_share` is held out: whole documents, chosen by a hash of
    their text, or where each file is a document its last part, of whole lines unless the last
    line is too long for that.
    """

    text: Paths = ()
    valid_text: str = ""
    documents: Literal["file", "line", "blank"] = "file"
    valid_share: float = Field(default=0.1, gt=0, lt=1)
    max_tokens: int = Field(default=256, ge=2, le=MOST)


class LabelsConfig(Settings):
    """Text with labels, to classify: files of `label<TAB>text`, plain, .gz, .xz or .zst.

    `names` are the labels, in the order of the classes; left out, those of the training text,
    sorted. Without `valid` the share `valid_share` of the lines is held out by a hash of the
    text.
    """

    train: Paths = ()
    valid: str = ""
    valid_share: float = Field(default=0.1, gt=0, lt=1)
    names: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @field_validator("names")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(f'names has the label "{name}" {count} times; each has one class')
        return names


class MaskingConfig(Settings):
    """Which tokens an encoder has to fill in, drawn anew each time a text is seen.

    Of all text tokens the share `rate` is chosen; of the chosen, the share `masked` becomes the
    mask token, the share `random` a random token, and the rest stays as it is.

    Source: Devlin et al. 2018, arXiv:1810.04805, section 3.1; drawn anew: arXiv:1907.11692.
    """

    rate: float = Field(default=0.15, gt=0, lt=1)
    masked: float = Field(default=0.8, ge=0, le=1)
    random: float = Field(default=0.1, ge=0, le=1)

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.masked + self.random > 1:
            raise ValueError(
                f"masked = {self.masked} and random = {self.random} are together more than 1"
            )
        return self
