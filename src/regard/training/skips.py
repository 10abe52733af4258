"""Steps that changed nothing: counted and told with the lines of their batch; too many are the end.

A step is skipped where its loss or its gradient is not finite.
"""

from collections.abc import Callable
from pathlib import Path

from regard.counts import counted
from regard.errors import DivergenceError, NotFiniteError
from regard.training.journal import Journal
from regard.training.progress import Reporter
from regard.training.state import Position
from regard.training.tally import NotFinite, Tally

_LINES_SHOWN = 10
_ADVICE = "Try a lower learning rate, a longer warm-up, or training.clip_norm = 1."


class Skips:
    """Reads the figures of the steps that were taken, and counts those that changed nothing.

    Args:
        position: where training stands; its counts are kept here.
        tally: holds the figures.
        most: so many skipped steps in a row end the training.
        journal: is told of each.
        reporter: shows each.
        line: the file and the line number of a row of the data.
        last_checkpoint: where the newest checkpoint is, once all is written.
    """

    def __init__(
        self,
        position: Position,
        tally: Tally,
        *,
        most: int,
        journal: Journal,
        reporter: Reporter,
        line: Callable[[int], tuple[str, int]] | None,
        last_checkpoint: Callable[[], Path | None],
    ) -> None:
        self._position = position
        self._tally = tally
        self._most = most
        self._journal = journal
        self._reporter = reporter
        self._line = line
        self._last_checkpoint = last_checkpoint
        self._bad: NotFinite | None = None
        self._lines: list[tuple[str, int]] = []

    @property
    def only(self) -> bool:
        """Whether steps were taken, and none of them changed anything."""
        return 0 < self._position.step == self._position.skipped

    def look(self) -> None:
        """Take in the figures that wait, and count the steps that changed nothing.

        Raises:
            DivergenceError: they are too many in a row.
        """
        for bad in self._tally.look():
            if bad is None:
                self._position.skipped_in_row = 0
            else:
                self._skipped(bad)

    def diverged(self) -> DivergenceError | None:
        """The error that ends the training after the last step, if that changed nothing."""
        in_row = self._position.skipped_in_row
        if self._bad is None or not in_row:
            return None
        before = "the step" if in_row == 2 else f"each of the {in_row - 1} steps"
        several = f"; in {before} before it, too, the loss or the gradient was not finite"
        checkpoint = self._last_checkpoint()
        good = f"The last good checkpoint is {checkpoint}."
        return self._ended(
            f"{self._bad}{several if in_row > 1 else ''}",
            good if checkpoint else "No checkpoint was saved.",
        )

    def untrained(self) -> DivergenceError:
        """The error that ends a training of whose steps none changed anything."""
        why = self._bad or "a loss or gradient was not finite in each"
        return self._ended(
            f"none of the {counted(self._position.step, 'step')} changed the model: {why}",
            "No model was written.",
        )

    def unmeasurable(self, why: NotFiniteError) -> DivergenceError:
        """The error that ends a training whose losses are finite, but not its model's answers."""
        self._journal.end("diverged", {"problem": why.problem, "lines": []})
        self._reporter.end()
        checkpoint = self._last_checkpoint()
        kept = (
            f"The newest checkpoint, {checkpoint}, may be of such weights: remove it, and --resume "
            "goes on from the one before."
        )
        return DivergenceError(
            f"the validation after step {self._position.step}: {why.problem}",
            where="training",
            hint="\n  ".join([*([kept] if checkpoint else []), _ADVICE]),
        )

    def _skipped(self, bad: NotFinite) -> None:
        position = self._position
        position.skipped += 1
        position.skipped_in_row += 1
        self._bad = bad
        # Windows of one document have its first line's name.
        self._lines = [*dict.fromkeys(self._line(row) for row in bad.rows)] if self._line else []
        self._journal.skipped(bad, self._names())
        if position.skipped_in_row >= self._most and (error := self.diverged()):
            raise error
        where = f"; its batch holds {_shown(self._lines)}" if self._lines else ""
        self._reporter.say(
            f"{bad}: the step is skipped ({position.skipped_in_row} in a row; training ends at "
            f"{self._most}){where}"
        )

    def _ended(self, problem: str, rest: str) -> DivergenceError:
        """Note that training ends; the error that says why, and which lines it was."""
        self._journal.end("diverged", {"problem": str(self._bad), "lines": self._names()})
        self._reporter.end()
        which = [f"Its batch holds {_shown(self._lines)}."] if self._lines else []
        hint = "\n  ".join([*which, rest, _ADVICE])
        return DivergenceError(problem, where="training", hint=hint)

    def _names(self) -> list[str]:
        return [f"{file}:{number}" for file, number in self._lines]


def _shown(lines: list[tuple[str, int]]) -> str:
    """The numbers of the first of some lines, each file named once, and how many more there are."""
    numbers: dict[str, list[str]] = {}
    for file, number in lines[:_LINES_SHOWN]:
        numbers.setdefault(file, []).append(str(number))
    parts = [f"of {file}: {', '.join(some)}" for file, some in numbers.items()]
    if len(lines) > _LINES_SHOWN:
        parts.append(f"and {len(lines) - _LINES_SHOWN:,} more, all named in metrics.jsonl")
    return ("these lines " if len(lines) > 1 else "this line ") + "; ".join(parts)
