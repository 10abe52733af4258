"""How a translation is searched for."""

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from regard.settings import MOST, MOST_FACTOR, MOST_TOKENS, Settings

# What only one of the methods looks at.
_ONLY_OF: Final = {
    "beam": ("beam", "alpha", "coverage"),
    "sample": ("temperature", "top_k", "top_p", "min_p", "seed"),
}


class DecodingConfig(Settings):
    """Search settings; the defaults are the paper's (section 6.1).

    `method` is beam search (greedy when `beam` is 1) or sampling. In beam search a hypothesis of
    `n` tokens (the end token counted) scores `log p / ((5 + n) / 6) ** alpha` plus `coverage`
    times the GNMT coverage term (arXiv:1609.08144, section 7); `alpha` may have any sign. A
    sample scores `log p`. Only beam search looks at `beam`, `alpha` and `coverage`, and only
    sampling at `temperature`, `top_k`, `top_p`, `min_p` and `seed`: under the other method they
    must have their defaults.

    A target has at most `max_extra_tokens` tokens more than its source, and at most
    `max_tokens` when that is not 0; at least `min_tokens`. `batch_tokens` bounds the padded
    source tokens of a batch times the beam.
    """

    method: Literal["beam", "sample"] = "beam"
    beam: int = Field(default=4, ge=1, le=10_000)
    alpha: float = 0.6
    coverage: float = Field(default=0.0, ge=0, le=MOST_FACTOR)
    n_best: int = Field(default=1, ge=1, le=10_000)
    temperature: float = Field(default=1.0, gt=0, le=MOST_FACTOR)
    top_k: int = Field(default=0, ge=0, le=MOST)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    seed: int = Field(default=1, ge=-(2**64), lt=2**64)
    no_repeat_ngram: int = Field(default=0, ge=0, le=MOST_TOKENS)
    min_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    max_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    max_extra_tokens: int = Field(default=50, ge=0, le=MOST_TOKENS)
    batch_tokens: int = Field(default=4096, ge=1, le=MOST)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        changed = {
            name: value
            for name, value in self
            if value != type(self).model_fields[name].get_default()
        }
        if problem := without_effect(self.method, changed):
            raise ValueError(problem)
        if self.method == "beam" and self.n_best > self.beam:
            raise ValueError(f"n_best = {self.n_best} is more than beam = {self.beam}")
        if self.max_tokens and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens = {self.min_tokens} is more than max_tokens = {self.max_tokens}"
            )
        return self


def without_effect(method: str, asked: Mapping[str, Any]) -> str:
    """What to say of the settings asked for that `method` does not look at; "" if there are none.

    Args:
        method: how it will be searched.
        asked: settings, by name, with their values.
    """
    for other, names in _ONLY_OF.items():
        found = [f"{name} = {asked[name]}" for name in names if name in asked]
        if found and other != method:
            verb = "needs" if len(found) == 1 else "need"
            return f'{" and ".join(found)} {verb} method = "{other}"'
    return ""


def changed_settings(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """All settings `below` with some `above` laid over them.

    Where these ask for another method, what only the former one looks at has its default again,
    so that one may sample from a run whose recipe says how wide its beam is.
    """
    settings = dict(below)
    if "method" in above and above["method"] != below["method"]:
        for name in _ONLY_OF.get(str(below["method"]), ()):
            settings[name] = DecodingConfig.model_fields[name].get_default()
    return settings | dict(above)
