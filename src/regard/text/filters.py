"""Which tokenised pairs are fit to train on, and why the others are not."""

from regard.counts import counted
from regard.text.config import DataConfig
from regard.text.survey import Survey, is_empty

SMALL_DIFFERENCE = 10


class PairFilter:
    """Decides which pairs are fit to train on, and counts the others by reason.

    Args:
        config: the limits.
        found: what says which pairs are held out; None where none is.
    """

    def __init__(self, config: DataConfig, found: Survey | None) -> None:
        self._config = config
        self._found = found
        self.held_out: list[tuple[str, str]] = []
        self.counts = dict.fromkeys(("read", "kept", "empty", "too_long", "ratio", "held_out"), 0)

    def keeps(self, pair: tuple[str, str], source: int, target: int) -> bool:
        """Judge a pair by its text and its numbers of tokens."""
        verdict = self._verdict(pair, max(source, target), min(source, target))
        self.counts["read"] += 1
        self.counts[verdict] += 1
        return verdict == "kept"

    def _verdict(self, pair: tuple[str, str], longer: int, shorter: int) -> str:
        if is_empty(pair):
            return "empty"
        if longer > self._config.max_tokens:
            return "too_long"
        if longer > shorter * self._config.max_ratio and longer - shorter > SMALL_DIFFERENCE:
            return "ratio"
        if self._found is not None and self._found.holds_out(pair[0]):
            if len(self.held_out) < self._found.hold_out:
                self.held_out.append(pair)
            return "held_out"
        return "kept"

    def reasons(self) -> str:
        """Say how many pairs were left out for which reason."""
        said = {
            "empty": "with an empty side",
            "too_long": f"with more than {counted(self._config.max_tokens, 'token')}",
            "ratio": f"with a length ratio over {self._config.max_ratio:g}",
        }
        return ", ".join(
            f"{self.counts[reason]:,} {words}"
            for reason, words in said.items()
            if self.counts[reason]
        )
