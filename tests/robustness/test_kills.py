from pathlib import Path
from types import ModuleType


def test_a_training_that_is_killed_again_and_again_ends_with_the_same_weights(
    kills: ModuleType, tmp_path: Path
) -> None:
    """A short form of benchmarks/kills.py, which does 200 kills; both check every restart."""
    outcome = kills.kill_again_and_again(tmp_path, kills=12, seed=7)
    assert (outcome.kills, outcome.amid_saves) == (12, 6)
    assert outcome.trainings >= 1
