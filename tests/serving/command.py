"""How a command that a test called ended."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output, which ends with a newline if it holds anything."""
        assert self.out.endswith(b"\n") or not self.out
        return self.out.decode("utf-8").split("\n")[:-1]


Command = Callable[..., Done]
