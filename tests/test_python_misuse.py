"""What is exported, called from Python with what it can't use."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.arguments import plain_numbers, whole_number

TESTS = Path(__file__).parent


def test_wrong_arguments_get_an_error_of_ours_and_numpys_numbers_are_taken(
    tmp_path: Path,
) -> None:
    """And nothing is made of it: no TypeError from somewhere deep, no guess at what was meant."""
    done = subprocess.run(
        [sys.executable, TESTS / "misuse.py", tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not (tmp_path / "new").exists()


def test_numbers_of_numpy_become_pythons() -> None:
    assert plain_numbers({"a": True, "b": np.int8(1), "c": "1"}) == {"a": True, "b": 1, "c": "1"}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (True, "expected a whole number from 1 to 1,024, got True"),
        (2.0, "expected a whole number from 1 to 1,024, got 2.0"),
        ([], "expected a whole number from 1 to 1,024, got an empty list"),
        (np.float64(2), "expected a whole number from 1 to 1,024, got"),
        ("9" * 50, f"expected a whole number from 1 to 1,024, got '{'9' * 39}..."),
    ],
)
def test_what_is_no_whole_number_is_shown(value: object, problem: str) -> None:
    with pytest.raises(regard.RegardError) as caught:
        whole_number(value, "threads", least=1, most=1024, hint="Leave it out.")
    assert str(caught.value).startswith(f"threads: {problem}")
    assert str(caught.value).endswith("\n  Leave it out.")
