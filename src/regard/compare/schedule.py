"""What is measured of all layers in which order, and what each part of it may take."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from regard.compare.curves import Growing, decode, grow
from regard.compare.helper import Helper
from regard.compare.layers import Subject
from regard.compare.results import Axis, Curve, Decode, Pass

Say = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, as far as time and memory allow.

    The shares are of the time that counting has left over, and those when a part must end; a
    machine on which counting takes long measures less in every part.

    Attributes:
        d_model: the width at which the length varies.
        num_heads: heads of layers that have some.
        lengths: rising.
        length: the one at which the width varies.
        widths: rising.
        contexts: tokens before a step of decoding, rising.
        by_length: until when curves against the length are measured.
        by_width: until when those against the width are.
        decoding: until when steps of decoding are.
        learning: until when models learn; without it the parts before it get its time.
    """

    d_model: int = 256
    num_heads: int = 4
    lengths: tuple[int, ...] = tuple(2**power for power in range(7, 21))
    length: int = 1024
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    contexts: tuple[int, ...] = (128, 512, 2048, 8192)
    by_length: float = 0.40
    by_width: float = 0.49
    decoding: float = 0.55
    learning: float = 0.95


# The curves of a layer, and how much time each gets beside the others.
_CURVES: Final[tuple[tuple[Pass, float], ...]] = (("forward", 1.0), ("training", 2.0))
# All are compared with full attention, which gets more.
_FULL: Final = 2.0


class Clock:
    """The time that a comparison has, and what of it is left.

    Args:
        seconds: all of it.
        started: when it began by `time.perf_counter`; now, if left out.
    """

    def __init__(self, seconds: float, started: float | None = None) -> None:
        self.started = time.perf_counter() if started is None else started
        self.seconds = seconds

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.started

    @property
    def share(self) -> float:
        """The share of all time that has passed."""
        return self.passed / self.seconds

    def until(self, share: float) -> float:
        """Seconds until that share of all time has passed; 0 if it has."""
        return max(0.0, share * self.seconds - self.passed)

    def shares_from_now(self, last: float) -> Callable[[float], float]:
        """Seconds until a share of the time from now on; `last` stays where it is of all time."""
        now = min(self.share, last)
        return lambda share: self.until(now + (last - now) * share / last)


@dataclass(kw_only=True)
class Measured:
    """The curves of one layer, and its steps of decoding."""

    curves: list[Curve] = field(default_factory=list)
    decode: Decode = field(
        default_factory=lambda: Decode(reason="it sees both sides, and has no state")
    )


def measure(
    subjects: Sequence[Subject],
    plan: Plan,
    clock: Clock,
    *,
    left: Callable[[float], float],
    seed: int,
    threads: int,
    say: Say,
) -> dict[str, Measured]:
    """Curves against the length first, then those against the width, then decoding.

    Args:
        subjects: the layers; each has a process of its own all the while.
        plan: what is measured.
        clock: the time that there is.
        left: the seconds until a share of the plan.
        seed: of all random numbers.
        threads: of PyTorch.
        say: told what is being done, and which share of all is done.

    Returns:
        What was found, by name.
    """
    found = {subject.name: Measured() for subject in subjects}
    parts: tuple[tuple[Axis, float], ...] = (("n", plan.by_length), ("d", plan.by_width))
    with ExitStack() as opened:
        helpers = {
            subject.name: opened.enter_context(Helper(subject, seed=seed, threads=threads))
            for subject in subjects
        }

        for axis, until in parts:
            growing = [
                (subject, weight, _Told(helpers[subject.name], subject, of, axis, plan, clock, say))
                for subject in subjects
                for of, weight in _CURVES
            ]
            weighted = [
                (one, weight * (_FULL if subject.config.kind == "full" else 1.0))
                for subject, weight, one in growing
            ]
            grow(weighted, seconds=left(until))
            for subject, _, one in growing:
                found[subject.name].curves.append(one.curve())
        causal = [subject for subject in subjects if subject.causal]
        while causal:
            subject = causal.pop(0)
            say(f"{subject.name}: decoding", clock.share)
            found[subject.name].decode = decode(
                helpers[subject.name],
                contexts=plan.contexts,
                d=plan.d_model,
                heads=plan.num_heads,
                seconds=left(plan.decoding) / (len(causal) + 1),
            )
    return found


class _Told(Growing):
    """A curve that says what is measured of it."""

    def __init__(
        self,
        helper: Helper,
        subject: Subject,
        of: Pass,
        axis: Axis,
        plan: Plan,
        clock: Clock,
        say: Say,
    ) -> None:
        along, fixed = (plan.lengths, plan.d_model) if axis == "n" else (plan.widths, plan.length)
        super().__init__(helper, of=of, axis=axis, values=along, fixed=fixed, heads=plan.num_heads)
        self._what = f"{subject.name}: {of}, {axis}"
        self._clock = clock
        self._say = say

    def step(self, left: float) -> None:
        """Say what comes, and measure it."""
        if self.next is not None:
            self._say(f"{self._what} = {self.next:,}", self._clock.share)
        super().step(left)
