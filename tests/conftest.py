"""One thread and the same examples every time, so that a failure can be seen again."""

import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from regard.kernels import attention as kernel
from regard.kernels import native

torch.set_num_threads(1)
settings.register_profile(
    "same-every-time",
    derandomize=True,
    deadline=None,
    max_examples=15,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("same-every-time")


@pytest.fixture
def hang_up() -> Iterator[None]:
    """A hang-up is not ignored, also where the tests were started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def one_thread_again() -> Iterator[None]:
    """After a test that asked for more: a process forked with more threads hangs in torch."""
    yield
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the attention kernel did it, of each pass that asks for it."""
    if native.absence():
        pytest.skip(f"no native kernels: {native.absence()}")
    done: list[bool] = []
    kernels = kernel.attention

    def noted(*parts: object) -> object:
        done.append((out := kernels(*parts)) is not None)  # type: ignore[arg-type]
        return out

    monkeypatch.setattr(kernel, "_fast", lambda: True)
    monkeypatch.setattr("regard.nn.attention.attention", noted)
    return done
