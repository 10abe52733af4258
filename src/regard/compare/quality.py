"""What models of each layer learn, all with as many parameters and as much time."""

import math
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Event
from statistics import mean
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from regard.compare.helper import processes
from regard.compare.layers import Subject
from regard.compare.results import Quality
from regard.compare.tasks import TASKS, Task, draw, shape_of
from regard.nn.mixers.config import (
    BigBirdConfig,
    LinformerConfig,
    MixerConfig,
    WindowConfig,
)
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions, sinusoids
from regard.shapes import Float, Int, Tensor

SEEDS: Final = 3
_D_MODEL, _HEADS, _LAYERS = 32, 2, 2
_WIDTH: Final = 4 * _D_MODEL  # of the feed-forward beside full attention
_BATCH, _TEST = 32, 512
_RATE, _WARMUP = 1e-2, 30
# A run shorter than this tells nothing. How many are made to see what a run takes beside.
_SHORTEST, _TRIED = 0.15, 3
# Processes that start, and load what they need.
_START = 2.0
# Settings that fit these short examples: two layers of the window reach 14 places back, where
# copying asks for what is 26 back, and Linformer mixes as many places as it has rank into one.
_FITTING: Final[dict[str, MixerConfig]] = {
    "window": WindowConfig(window=8),
    "bigbird": BigBirdConfig(block=8, window=1, random_blocks=1),
    "linformer": LinformerConfig(rank=8),
}


Run = tuple[str, Task, int]
"""The layer's name, the task and the seed."""


class Learner(nn.Module):
    """Embedding, two blocks of the layer and a feed-forward, and a guess at every place.

    Sinusoids tell the places. The feed-forward is as wide as it takes for a block to have as
    many parameters as one of full attention with a feed-forward four times the width.
    """

    def __init__(self, subject: Subject, task: Task) -> None:
        super().__init__()
        sizes = shape_of(task)
        self.causal = subject.causal
        self.embedding = nn.Embedding(sizes.tokens, _D_MODEL)
        self.places: Tensor
        self.register_buffer("places", sinusoids(sizes.length, _D_MODEL, "halves").float())
        self.mixers = nn.ModuleList(
            subject.build(_D_MODEL, _HEADS, sizes.length) for _ in range(_LAYERS)
        )
        spare = _budget() - _size(self.mixers[0])
        width = max(1, round((spare - _D_MODEL) / (2 * _D_MODEL + 1)))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(_D_MODEL, width), nn.ReLU(), nn.Linear(width, _D_MODEL))
            for _ in range(_LAYERS)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(_D_MODEL) for _ in range(2 * _LAYERS + 1))
        self.head = nn.Linear(_D_MODEL, sizes.answers)

    def forward(self, tokens_bn: Int[Tensor, "b n"]) -> Float[Tensor, "b n a"]:
        """Logits of the answer at every place."""
        x = self.embedding(tokens_bn) + self.places
        span = Span.whole(Positions(), x, causal=self.causal)
        for layer in range(_LAYERS):
            x = x + self.mixers[layer](self.norms[2 * layer](x), span)
            x = x + self.feeds[layer](self.norms[2 * layer + 1](x))
        logits: Tensor = self.head(self.norms[-1](x))
        return logits


@dataclass(frozen=True, kw_only=True)
class Learned:
    """One run: the share of right answers, steps and seconds, parameters, guessing's share."""

    accuracy: float
    steps: int
    seconds: float
    parameters: int
    chance: float


def learn(
    subject: Subject,
    task: Task,
    *,
    seed: int,
    seconds: float = math.inf,
    steps: int | None = None,
) -> Learned:
    """Train a model of a layer on a task for so long, and try it on examples kept from training.

    What it learns depends on the layer, the task, the seed and the steps made, and on nothing
    else: not on the clock, which only ends it.

    Args:
        subject: the layer.
        task: what to learn.
        seed: of weights and examples.
        seconds: after so many it ends.
        steps: after so many it ends.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Learner(subject, task)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, betas=(0.9, 0.98), fused=True)
    started, made = time.perf_counter(), 0
    while made != steps and time.perf_counter() - started < seconds:
        if _Worker.asked_to_end():
            break
        made += 1
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(made / _WARMUP, (_WARMUP / made) ** 0.5)
        tokens, answers = draw(task, _BATCH, generator)
        loss = functional.cross_entropy(
            model(tokens).flatten(0, 1), answers.flatten(), ignore_index=-1
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    took = time.perf_counter() - started
    accuracy, chance = _tried(model.eval(), task)
    return Learned(
        accuracy=accuracy, steps=made, seconds=took, parameters=_size(model), chance=chance
    )


def measure_quality(
    subjects: Sequence[Subject],
    *,
    seconds: float,
    seed: int,
    progress: Callable[[str, float], None],
    steps: int | None = None,
) -> dict[str, tuple[Quality, ...]]:
    """What each layer learns of each task, with three seeds, each run in equal time.

    Runs go side by side, one a thread of PyTorch's. Both forms of full attention are one
    function, and are trained once.

    Args:
        subjects: the layers.
        seconds: what all may take together, without `steps`.
        seed: the first of the seeds.
        progress: told what is being done, and which share of it is done.
        steps: what each run makes, however long that takes: repeats runs exactly.

    Returns:
        What was found, by name; empty where there is too little time to learn anything.
    """
    trained = [_fitted(subject) for subject in subjects if not _is_twin(subject, subjects)]
    seeds = tuple(seed + number for number in range(SEEDS))
    jobs = [(subject, task, each) for each in seeds for task in TASKS for subject in trained]
    workers = min(torch.get_num_threads(), len(jobs))
    started = time.perf_counter()
    if steps is None and _share(seconds - _START, len(jobs), workers) < _SHORTEST:
        return {}
    context = processes()
    stop = context.Event()
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_Worker.begin, initargs=(stop,)
    ) as pool:
        try:
            own = math.inf
            if steps is None:
                beside = _beside(pool, trained)
                left = seconds - (time.perf_counter() - started)
                own = _share(left, len(jobs), workers) - beside
            if own < _SHORTEST:
                return {}
            found = _all_runs(pool, jobs, seconds=own, steps=steps, progress=progress)
        except BaseException:
            stop.set()  # else the runs under way would be waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    learned = {
        subject.name: tuple(_quality(subject, task, seeds, found) for task in TASKS)
        for subject in trained
    }
    for subject in subjects:
        if subject.name not in learned:
            twin = _twin(subject, trained)
            learned[subject.name] = tuple(
                each.model_copy(update={"same_as": twin}) for each in learned[twin]
            )
    return learned


def _share(seconds: float, jobs: int, workers: int) -> float:
    """What each of some jobs may take."""
    return seconds / -(-jobs // workers)


def _beside(pool: ProcessPoolExecutor, trained: Sequence[Subject]) -> float:
    """The seconds of a run that are not training, by runs without a step; the first load much."""
    took = []
    for subject in trained[: 2 * _TRIED]:
        started = time.perf_counter()
        pool.submit(learn, subject, "copying", seed=0, steps=0).result()
        took.append(time.perf_counter() - started)
    return mean(took[-_TRIED:])


def _all_runs(
    pool: ProcessPoolExecutor,
    jobs: Sequence[tuple[Subject, Task, int]],
    *,
    seconds: float,
    steps: int | None,
    progress: Callable[[str, float], None],
) -> dict[Run, Learned]:
    """Every run, in the processes of a pool."""
    found: dict[Run, Learned] = {}
    waiting: dict[Future[Learned], Run] = {}
    for subject, task, seed in jobs:
        future = pool.submit(learn, subject, task, seed=seed, seconds=seconds, steps=steps)
        waiting[future] = (subject.name, task, seed)
    while waiting:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            run = waiting.pop(future)
            found[run] = future.result()
            progress(f"{run[0]}: learning {run[1]}", len(found) / len(jobs))
    return found


def _quality(
    subject: Subject,
    task: Task,
    seeds: tuple[int, ...],
    found: dict[Run, Learned],
) -> Quality:
    runs = [found[subject.name, task, each] for each in seeds]
    steps = tuple(run.steps for run in runs)
    notes = []
    if not subject.causal:
        notes.append("sees both sides")
    if subject.name in _FITTING:
        notes.append(", ".join(f"{name} {value}" for name, value in subject.settings.items()))
    return Quality(
        task=task,
        parameters=runs[0].parameters,
        seconds=round(max(run.seconds for run in runs), 2),
        steps=steps,
        seeds=seeds,
        accuracies=tuple(round(run.accuracy, 4) for run in runs),
        chance=round(runs[0].chance, 4),
        note="; ".join(notes),
    )


@torch.inference_mode()
def _tried(model: nn.Module, task: Task) -> tuple[float, float]:
    """The share of right answers to examples kept from training; that of the likeliest one."""
    generator = torch.Generator().manual_seed(2**40)
    tokens, answers = draw(task, _TEST, generator, held_out=True)
    asked = answers >= 0
    guesses = model(tokens).argmax(-1)
    common = answers[asked].bincount().max() / asked.sum()
    return float((guesses == answers)[asked].float().mean()), float(common)


def _budget() -> int:
    """The parameters of a block of full attention, norms not counted."""
    attention = 4 * _D_MODEL * (_D_MODEL + 1)
    return attention + _WIDTH * (2 * _D_MODEL + 1) + _D_MODEL


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _fitted(subject: Subject) -> Subject:
    return replace(subject, config=_FITTING.get(subject.name, subject.config))


def _is_twin(subject: Subject, subjects: Sequence[Subject]) -> bool:
    """Whether an earlier one is the same function."""
    earlier = subjects[: list(subjects).index(subject)]
    return subject.config.kind == "full" and any(each.config.kind == "full" for each in earlier)


def _twin(subject: Subject, trained: Sequence[Subject]) -> str:
    return next(each.name for each in trained if each.config.kind == subject.config.kind)


class _Worker:
    """A process of the pool: what it was told at its start."""

    _stop: Event | None = None

    @classmethod
    def begin(cls, stop: Event) -> None:
        """Leave a Ctrl-C to the process that asked, which says when to end."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        cls._stop = stop

    @classmethod
    def asked_to_end(cls) -> bool:
        """Whether to end before time."""
        return cls._stop is not None and cls._stop.is_set()
