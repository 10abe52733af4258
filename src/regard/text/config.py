"""Where text comes from, and how it is cut into tokens."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from regard.settings import Settings

Paths = Annotated[tuple[str, ...], Field(strict=False)]


class VocabularyConfig(Settings):
    """A subword vocabulary trained from the training data.

    `size` counts every entry, control tokens and the 256 bytes included. `joint` trains one
    vocabulary on both sides; otherwise each side gets one of `size`. `bpe_dropout` is the chance
    that a merge is skipped while training (arXiv:1910.13267).
    """

    kind: Literal["bpe", "unigram"] = "bpe"
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
    valid_pairs: int = Field(default=1000, ge=1)
    max_tokens: int = Field(default=256, ge=1)
    max_ratio: float = Field(default=8.0, ge=1)

    @model_validator(mode="after")
    def _files_pair_up(self) -> Self:
        if len(self.source) != len(self.target):
            raise ValueError(
                f"{len(self.source)} source file(s) and {len(self.target)} target file(s): "
                "each source file needs its target file, in the same order"
            )
        if self.source and self.tsv:
            raise ValueError("give source and target, or tsv, not both")
        files = len(self.source) + len(self.tsv)
        if self.weights and len(self.weights) != files:
            raise ValueError(f"{len(self.weights)} weights for {files} training file(s)")
        if not all(weight > 0 for weight in self.weights):
            given = ", ".join(f"{weight:g}" for weight in self.weights)
            raise ValueError(f"every one of weights must be more than 0, got [{given}]")
        if bool(self.valid_source) != bool(self.valid_target):
            raise ValueError("valid_source and valid_target go together")
        if self.valid_source and self.valid_tsv:
            raise ValueError("give valid_source and valid_target, or valid_tsv, not both")
        return self
