"""Whether weights are those of a model: their names and shapes, compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Shaped(Protocol):
    """A tensor or an array, as far as it is looked at here."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How long it is along each axis."""
        ...


@dataclass(frozen=True, slots=True)
class Misfit:
    """A weight that is not as it was wanted.

    `found` and `wanted` are shapes, in words: "missing" where it was not found, and "nothing"
    where none of that name was wanted.
    """

    name: str
    found: str
    wanted: str


def misfits(weights: Mapping[str, Shaped], wanted: Mapping[str, Shaped]) -> list[Misfit]:
    """All weights that differ in name or shape from those that are wanted, by name."""
    found = []
    for name in sorted({*weights, *wanted}):
        have = f"{tuple(weights[name].shape)}" if name in weights else "missing"
        want = f"{tuple(wanted[name].shape)}" if name in wanted else "nothing"
        if have != want:
            found.append(Misfit(name, have, want))
    return found
