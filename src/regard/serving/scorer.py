"""The engine as what scores given translations, for one run."""

from collections.abc import Sequence

from regard.engine.engine import Engine
from regard.text.vocabulary import Vocabulary


class EngineScorer:
    """The engine as a `Scorer` of `regard.decoding.scored.score_by`.

    Args:
        engine: the model, packed.
        target: the vocabulary of the targets.
    """

    def __init__(self, engine: Engine, target: Vocabulary) -> None:
        self._engine = engine
        self._target = target

    def __call__(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[float]:
        """The log-probability of each target, its end token included."""
        start, end = self._target.start_id, self._target.eos_id
        found = self._engine.score(sources, [[*ids, end] for ids in targets], bos=start)
        return [each.log_prob for each in found]
