"""How a language model goes on with a text."""

from typing import Annotated

from pydantic import Field, field_validator

from regard.settings import MOST, MOST_FACTOR, MOST_SEED, Settings


class GenerationConfig(Settings):
    """How to draw the next token, and when to stop.

    The logit of a token that occurs already, in the prompt or after it, is first divided by
    `repetition_penalty`, or multiplied by it where it is below 0 (arXiv:1909.05858). Then all are
    divided by `temperature` (0 is greedy: the likeliest token, always), the `top_k` likeliest
    stay (0: all), of these as few as have together the share `top_p`, and of these the ones at
    least `min_p` times as likely as the likeliest.

    It ends at the end token, after `max_tokens` tokens, or at the first of the strings of `stop`,
    which is not part of the result.
    """

    max_tokens: int = Field(default=256, ge=1, le=MOST)
    samples: int = Field(default=1, ge=1, le=10_000)
    temperature: float = Field(default=1.0, ge=0, le=MOST_FACTOR)
    top_k: int = Field(default=0, ge=0, le=MOST)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=100)
    stop: Annotated[tuple[str, ...], Field(strict=False)] = ()
    seed: int = Field(default=1, ge=0, le=MOST_SEED)

    @field_validator("stop")
    @classmethod
    def _stops_somewhere(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise ValueError("an empty string of stop would stop before anything is drawn")
        if any("\ud800" <= letter <= "\udfff" for text in stop for letter in text):
            raise ValueError("a string of stop holds half of a surrogate pair, which no UTF-8 can")
        return stop
