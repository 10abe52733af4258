"""A disk that refuses a write amid a training: what was saved is good, and the file is named."""

import errno
import os
import resource
import signal
from collections.abc import Callable
from types import ModuleType

import pytest

from regard.weights.checkpoints import checkpoint_steps

FAULTS = {
    "full": errno.ENOSPC,
    "read-only": errno.EROFS,
    "broken": errno.EIO,
}


def failing(number: int, code: int, *, lasting: bool) -> Callable[..., None]:
    def fail(at: int, name: str, arguments: tuple[object, ...]) -> None:
        if at == number or (lasting and at > number):
            raise OSError(code, os.strerror(code))

    return fail


# tests/weights/test_crashes.py lets every single call fail; these are a few of them from the
# command line: amid the first save and amid later ones, once and from then on.
@pytest.mark.parametrize(
    ("fault", "number", "lasting"),
    [
        ("full", 3, True),
        ("full", 57, True),
        ("full", 80, False),
        ("read-only", 64, True),
        ("broken", 71, True),
        ("broken", 112, False),
    ],
)
def test_a_save_that_fails_ends_the_training_names_the_file_and_leaves_the_one_before(
    kills: ModuleType,
    whole: object,
    train: Callable[..., int],
    fault: str,
    number: int,
    lasting: bool,
) -> None:
    work, run = whole, f"{fault}-{number}"
    code = FAULTS[fault]
    assert train(work, run, failing(number, code, lasting=lasting)) == 2
    message = work.said[work.said.rindex("error: ") :]
    assert message.startswith(f"error: {work.folder / run}/"), message
    assert os.strerror(code) in message
    assert "Traceback" not in work.said
    kills.require_little_lost(work, run)
    assert train(work, run) == 0
    assert work.weights_sum(run) == work.weights_sum("whole")


def test_a_file_that_may_not_grow_ends_the_training_and_is_named(
    kills: ModuleType, whole: object, train: Callable[..., int]
) -> None:
    """The system's own refusal: RLIMIT_FSIZE, as a full disk gives it, amid the second save."""

    def limit(at: int, name: str, arguments: tuple[object, ...]) -> None:
        _, begun, _ = whole.account.numbers
        if begun == 2 * kills.INTERVAL:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    # Python sets handlers in the main thread alone, and the save is in another: it is inherited.
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        code = train(whole, "limited", limit)
    finally:
        signal.signal(signal.SIGXFSZ, before)
    assert code == 2
    assert "File too large" in whole.said
    assert f"error: {whole.folder}/limited/checkpoints/step-00000008/" in whole.said
    assert checkpoint_steps(whole.folder / "limited") == [4]
    assert train(whole, "limited") == 0
    assert whole.weights_sum("limited") == whole.weights_sum("whole")
