"""The base of every config: frozen, keyword-only, strict about names and types."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A frozen group of settings; an unknown key, a wrong type, nan and infinity are refused.

    Reading a config imports no torch, so that a bad recipe is refused at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
