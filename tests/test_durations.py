import pytest

from regard.durations import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (599.6, "10 min"),
        (754.0, "13 min"),
        (3599.0, "1 h 0 min"),
        (3599.9, "1 h 0 min"),
        (9000.0, "2 h 30 min"),
        (9000.0 + 59, "2 h 31 min"),
    ],
)
def test_a_duration_is_said_in_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words
