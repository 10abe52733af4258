"""How a translation is searched for."""

from typing import Literal, Self

from pydantic import Field, model_validator

from regard.settings import Settings


class DecodingConfig(Settings):
    """Search settings; the defaults are the paper's (section 6.1).

    `method` is beam search (greedy when `beam` is 1) or sampling. A hypothesis of `n` tokens
    (the end token counted) scores `log p / ((5 + n) / 6) ** alpha` plus `coverage` times the
    GNMT coverage term (arXiv:1609.08144, section 7); `alpha` may have any sign.

    A target has at most `max_extra_tokens` tokens more than its source, and at most
    `max_tokens` when that is not 0; at least `min_tokens`. `batch_tokens` bounds the padded
    source tokens of a batch times the beam.
    """

    method: Literal["beam", "sample"] = "beam"
    beam: int = Field(default=4, ge=1)
    alpha: float = Field(default=0.6, allow_inf_nan=False)
    coverage: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    n_best: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    seed: int = 1
    no_repeat_ngram: int = Field(default=0, ge=0)
    min_tokens: int = Field(default=0, ge=0)
    max_tokens: int = Field(default=0, ge=0)
    max_extra_tokens: int = Field(default=50, ge=0)
    batch_tokens: int = Field(default=4096, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.method == "beam" and self.n_best > self.beam:
            raise ValueError(f"n_best = {self.n_best} is more than beam = {self.beam}")
        if self.max_tokens and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens = {self.min_tokens} is more than max_tokens = {self.max_tokens}"
            )
        return self
