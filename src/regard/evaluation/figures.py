"""The figures that say how good a model is: what each is called, and how it is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Figure:
    """One figure: its name for people, its decimals, whether more is better, how it is computed.

    A share is kept as a number from 0 to 1 and written in percent.
    """

    name: str
    digits: int
    more_is_better: bool
    how: str = ""
    share: bool = False

    @property
    def title(self) -> str:
        """The name as a title."""
        return self.name[0].upper() + self.name[1:] if self.name.islower() else self.name

    def show(self, value: float, *, more: int = 0) -> str:
        """The value for people, with so many more decimals."""
        digits = self.digits + more
        return f"{100 * value:.{digits}f} %" if self.share else f"{value:.{digits}f}"

    def best(self, points: Sequence[tuple[int, float]]) -> tuple[int, float]:
        """Of (step, value), the best value and its step; of equals the first."""
        return (max if self.more_is_better else min)(points, key=lambda point: point[1])


# In the order in which they are shown.
FIGURES: Final = {
    "bleu": Figure("BLEU", 1, True),
    "chrf": Figure("chrF", 1, True),
    "accuracy": Figure("accuracy", 1, True, "the share that is right", share=True),
    "f1": Figure("macro F1", 1, True, "the mean over the labels", share=True),
    "loss": Figure("loss", 3, False, "in nats, unsmoothed, per target"),
    "perplexity": Figure("perplexity", 2, False, "unsmoothed, per target token"),
    "bits_per_byte": Figure("bits per byte", 3, False, "of the text in UTF-8"),
}


def figures_of(record: Mapping[str, object]) -> dict[str, float]:
    """The figures that a record has, in the order in which they are shown.

    Where there is a translation to be scored, its loss says no more than its perplexity.
    """
    found = {name: value for name in FIGURES if isinstance(value := record.get(name), float)}
    if "bleu" in found:
        found.pop("loss", None)
    return found


def shown(figures: Mapping[str, float]) -> str:
    """The figures on a line."""
    parts = []
    for name, value in figures_of(figures).items():
        parts.append(f"{FIGURES[name].name} {FIGURES[name].show(value)}")
    return "  ".join(parts)
