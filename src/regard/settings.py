"""The base of every config: frozen, keyword-only, strict about names and types."""

from typing import Final

from pydantic import BaseModel, ConfigDict

# Bounds of numbers that nothing else bounds, far beyond what is of use. What is beyond them would
# end as an overflow, or as memory without end, far from the key that it came from.
MOST_TOKENS: Final = 2**20  # of one text; the engine's, too
MOST_WIDE: Final = 10**12  # sizes of weights, of which the machine's memory says more
MOST: Final = 2**31 - 1  # what is counted
MOST_SEED: Final = 2**63 - 1
MOST_FACTOR: Final = 1e6


class Settings(BaseModel):
    """A frozen group of settings; an unknown key, a wrong type, nan and infinity are refused.

    Reading a config imports no torch, so that a bad recipe is refused at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
