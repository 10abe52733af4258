"""Curves end where time or memory do, and a process that dies takes nothing with it."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import get_args

import pytest

from regard.compare import curves
from regard.compare.curves import Growing, decode, grow
from regard.compare.helper import Helper
from regard.compare.layers import SUBJECTS, Subject, subjects_named
from regard.compare.results import Axis, Curve, Pass
from regard.compare.schedule import Plan
from regard.compare.worker import PassFound, PassOrder, PeakMemory


def curve(
    helper: Helper,
    *,
    of: Pass,
    axis: Axis,
    values: Sequence[int],
    fixed: int,
    heads: int,
    seconds: float,
) -> Curve:
    """One curve by itself, until time or memory ends it."""
    ends = time.perf_counter() + seconds
    growing = Growing(helper, of=of, axis=axis, values=values, fixed=fixed, heads=heads)
    while growing.next is not None:
        growing.step(ends - time.perf_counter())
    return growing.curve()


LENGTHS = tuple(2**power for power in range(5, 13))


class Pretended(Helper):
    """Answers as if a pass took `cost` seconds and `held` bytes for each pair of places."""

    def __init__(self, cost: float, held: float = 1.0) -> None:
        (subject,) = subjects_named(["plain"])
        super().__init__(subject, seed=1, threads=1)
        self.cost, self.held = cost, held
        self.name = ""
        self.asked: list[int] = []

    def passes(self, order: PassOrder) -> PassFound | str:
        self.asked.append(order.n)
        if order.n > 2048:
            return "the process was ended"
        return PassFound(
            seconds=self.cost * order.n**2, repeats=3, peak_bytes=round(self.held * order.n**2)
        )


def pretended(helper: Pretended, seconds: float) -> Curve:
    return curve(
        helper,
        of="training",
        axis="n",
        values=LENGTHS,
        fixed=16,
        heads=2,
        seconds=seconds,
    )


@pytest.fixture
def helper() -> Iterator[Helper]:
    (subject,) = subjects_named(["plain"])
    with Helper(subject, seed=1, threads=1) as made:
        yield made


def order(n: int, seconds: float = 0.2) -> PassOrder:
    return PassOrder(of="training", n=n, d=16, heads=2, seconds=seconds)


def test_a_pass_that_should_take_longer_than_is_left_is_not_begun() -> None:
    asked = Pretended(cost=1e-4)
    found = pretended(asked, seconds=20.0)
    assert asked.asked == [32, 64, 128]
    assert [point.n for point in found.points] == asked.asked
    assert found.stopped.startswith("no time left: about 39.3 s would be needed, ")
    assert found.time is not None
    assert found.time.exponent == pytest.approx(2.0)


def test_curves_side_by_side_come_about_as_far_and_the_cheap_ones_farther() -> None:
    told: list[tuple[str, int]] = []

    class Slow(Pretended):
        def passes(self, order: PassOrder) -> PassFound | str:
            told.append((self.name, order.n))
            time.sleep(self.cost * order.n**2)
            return super().passes(order)

    def made(name: str, cost: float) -> Growing:
        helper = Slow(cost=cost)
        helper.name = name
        return Growing(helper, of="training", axis="n", values=LENGTHS, fixed=16, heads=2)

    dear, cheap = made("dear", 2e-6), made("cheap", 1e-8)
    grow([(dear, 1.0), (cheap, 1.0)], seconds=1.5)
    # Shortest first, as long as the dear one has the time for it.
    assert told[:6] == [(name, n) for n in (32, 64, 128) for name in ("dear", "cheap")]
    assert dear.next is None
    assert cheap.next is None
    assert [point.n for point in cheap.curve().points if point.seconds] == list(LENGTHS[:-1])
    last = dear.curve()
    assert last.points[-1].n < 1024
    assert last.stopped.startswith("no time left: about ")


@pytest.mark.parametrize(("slower", "linear"), [(1.0, 4096), (2.0, 2048)])
def test_three_minutes_reach_lengths_that_tell_something(
    slower: float, linear: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes as it would on one core, and on one half as fast.

    Seconds of a training step at n = 2,048 as they were on a core in 2026; forward is a third.
    """
    costs = {
        "plain": 0.273, "sdpa": 0.131, "window": 0.105, "bigbird": 0.074, "linformer": 0.036,
        "linear": 0.048, "performer": 0.066, "rnn": 0.110, "lstm": 0.069, "gru": 0.339,
        "ssru": 0.048, "convolution": 0.037, "mamba": 0.072,
    }  # fmt: skip
    now = 0.0
    monkeypatch.setattr(curves, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(curves, "memory", dict)

    class Clocked(Helper):
        def __init__(self, subject: Subject) -> None:
            super().__init__(subject, seed=1, threads=1)
            self.name, self.power = subject.name, subject.theory.time_n.exponent

        def passes(self, order: PassOrder) -> PassFound | str:
            nonlocal now
            cost = slower * costs[self.name] * (order.n / 2048) ** self.power
            cost *= 1.0 if order.of == "training" else 1 / 3
            slow = 4 * cost  # the pass for the memory, and the one that fills it anew
            repeats = max(1, min(7, int((order.seconds - slow) / cost)))
            now += slow + cost * repeats + 0.02
            return PassFound(seconds=cost, repeats=repeats, peak_bytes=2**24)

    plan = Plan()
    growing = {
        (subject.name, of): Growing(
            Clocked(subject), of=of, axis="n", values=plan.lengths, fixed=256, heads=4
        )
        for subject in SUBJECTS
        for of in get_args(Pass)
    }
    counting = 15.0
    given = (180 * plan.learning - counting) * plan.by_length / plan.learning
    grow([(each, 1.0) for each in growing.values()], seconds=given)
    assert now <= given
    for (name, _), each in growing.items():
        found = each.curve()
        least = {"plain": linear // 2, "sdpa": linear // 2, "gru": linear // 2}.get(name, linear)
        assert found.points[-1].n >= least, name
        assert found.time is not None


def test_with_no_time_at_all_nothing_is_measured() -> None:
    asked = Pretended(cost=1e-9)
    found = pretended(asked, seconds=0.0)
    assert (asked.asked, found.points) == ([], ())
    assert (found.time, found.memory) == (None, None)
    assert found.stopped.startswith("no time left")


def test_a_pass_that_should_take_more_memory_than_is_free_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(curves, "memory", lambda: {"in all": 9.0, "available": 1.0})
    asked = Pretended(cost=1e-9, held=2**20)
    found = pretended(asked, seconds=20.0)
    assert asked.asked == [32]
    assert found.stopped == ("no memory left: about 2.0 GiB would be needed, 1.0 GiB are free")


def test_a_point_whose_process_died_says_so_and_is_the_last() -> None:
    found = pretended(Pretended(cost=1e-9), seconds=20.0)
    *measured, last = found.points
    assert [point.n for point in measured] == list(LENGTHS[:-1])
    assert (last.n, last.seconds, last.note) == (4096, None, "the process was ended")
    assert found.stopped == last.note
    assert found.time is not None
    assert found.time.last == 2048


def test_a_process_measures_passes_and_steps(helper: Helper) -> None:
    found = helper.passes(order(64))
    assert isinstance(found, PassFound)
    assert found.seconds > 0
    assert found.repeats >= 1
    steps = decode(helper, contexts=(8, 64, 256), d=16, heads=2, seconds=5.0)
    assert [point.context for point in steps.points] == [8, 64, 256]
    assert [point.state_bytes for point in steps.points] == [8 * 128, 64 * 128, 256 * 128]
    assert steps.state is not None
    assert steps.state.exponent == 1.0


def test_the_memory_of_a_pass_is_at_least_that_of_its_scores(helper: Helper) -> None:
    found = helper.passes(order(1024))
    assert isinstance(found, PassFound)
    assert found.peak_bytes is not None
    assert 2 * 1024**2 * 4 < found.peak_bytes < 20 * 2 * 1024**2 * 4


def test_a_process_that_was_ended_says_how_and_another_goes_on(helper: Helper) -> None:
    assert helper._process is not None
    assert helper._process.pid is not None
    os.kill(helper._process.pid, signal.SIGKILL)
    assert helper.passes(order(16)) == (
        "the process was ended by signal 9, as when there is no more memory"
    )
    assert isinstance(helper.passes(order(16)), PassFound)


def test_memory_that_there_is_not_is_said_and_the_process_goes_on(helper: Helper) -> None:
    found = helper.passes(order(2**20, seconds=60.0))
    assert isinstance(found, str)
    assert "memory" in found
    assert isinstance(helper.passes(order(16)), PassFound)


def test_an_answer_that_does_not_come_is_not_waited_for(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(helper.passes(order(16)), PassFound)
    monkeypatch.setattr("regard.compare.helper.SLACK", 0.05)
    assert helper.passes(order(4096, seconds=0.0)) == "stopped after 0 s, for want of time"


def test_what_is_held_and_let_go_is_in_the_peak() -> None:
    memory = PeakMemory()
    held = bytearray(50_000_000)
    held[::4096] = b"x" * len(held[::4096])
    del held
    taken = memory.taken()
    assert taken is not None
    assert 45_000_000 < taken < 80_000_000
