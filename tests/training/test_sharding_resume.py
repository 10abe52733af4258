"""A run whose weights are cut over processes loses nothing, whatever it trains, however it ends."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from training.digits import measured
from training.kinds import KINDS
from training.processes import together
from training.records import read_metrics
from training.test_sharding import final, trained

import regard
from regard.recipes import run as runs
from regard.training.losses import LossSums
from regard.training.processes import Processes
from regard.training.progress import SilentReporter
from regard.training.validation import Validation
from regard.weights.checkpoints import checkpoint_steps

EVERYTHING = {"ema_decay": 0.9, "accumulate": 2, "clip_norm": 0.5, "keep_last": 9}


def assert_all_the_same(one: Path, other: Path, step: int) -> None:
    """The checkpoints of a step, and the models, have the same bits."""
    first, second = final(one, step), final(other, step)
    assert first.keys() == second.keys()
    for group, tensors in first.items():
        assert tensors.keys() == second[group].keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, second[group][name]), f"{group} {name}"
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def done(count: int, work: Callable[[Processes], Any]) -> None:
    for found in together(count, work):
        assert not isinstance(found, str), found


# An epoch has 5 batches of two parts: 5 is its edge, 3 is amid one.
@pytest.mark.parametrize(
    ("kind", "precision", "stop", "count"),
    [
        ("translator with experts", "float32", "amid an epoch", 2),
        ("translator with experts", "bfloat16", "amid an accumulation", 4),
        ("language model", "bfloat16", "at an epoch's edge", 2),
        ("adapted language model", "float32", "amid an accumulation", 2),
    ],
)
def test_a_stopped_and_resumed_cut_run_has_the_bits_of_one_that_was_not_stopped(
    tmp_path: Path, kind: str, precision: str, stop: str, count: int
) -> None:
    changes = {**EVERYTHING, "kind": kind, "precision": precision}
    step = 5 if stop == "at an epoch's edge" else 3

    def stopped(processes: Processes) -> object:
        calls: list[int] = []

        def loss(*arguments: Any) -> LossSums:
            calls.append(1)
            call = 2 * step if stop == "amid an accumulation" else 2 * step - 1
            if processes.rank == 1 and len(calls) == call:
                signal.raise_signal(signal.SIGTERM)
            return KINDS[kind].loss(*arguments)

        return trained(processes, tmp_path / "cut", loss=loss, **changes)

    done(count, lambda one: trained(one, tmp_path / "whole", **changes))
    for said in together(count, stopped):
        assert f"Interrupted: stopped as asked at step {step} of 8" in said
    assert checkpoint_steps(tmp_path / "cut")[-1] == step
    done(count, lambda one: trained(one, tmp_path / "cut", resume=True, **changes))
    assert_all_the_same(tmp_path / "cut", tmp_path / "whole", 8)


def pids(processes: Processes, folder: Path) -> list[int]:
    """The pid of each process."""
    folder.mkdir(exist_ok=True)
    (folder / f"aside-{processes.rank}").write_text(str(os.getpid()))
    (folder / f"aside-{processes.rank}").rename(folder / str(processes.rank))
    processes.any(False)
    return [int((folder / str(rank)).read_text()) for rank in range(processes.count)]


# With each, what happens to which processes amid the second validation, in that order.
ENDS = {
    "a signal to the one that validates": [(0, signal.SIGTERM)],
    "a signal to one that waits": [(1, signal.SIGINT)],
    "a kill of one that waits": [(1, signal.SIGKILL)],
    "a kill of all": [(1, signal.SIGKILL), (0, signal.SIGKILL)],
}


@pytest.mark.parametrize("end", ENDS)
def test_a_cut_run_that_ends_amid_a_validation_goes_on_as_if_it_had_not(
    tmp_path: Path, end: str
) -> None:
    precision = "bfloat16" if "signal" in end else "float32"
    changes = {**EVERYTHING, "kind": "language model with experts", "precision": precision,
               "checkpoint_every": 4, "validate_every": 3}  # fmt: skip

    def work(processes: Processes, path: Path, *, ending: bool, resume: bool = False) -> object:
        every = pids(processes, tmp_path / f"{path.name}-{resume}") if ending else []
        calls: list[int] = []

        def validate(model: torch.nn.Module) -> Validation:
            calls.append(1)
            if every and len(calls) == 2:
                for rank, number in ENDS[end]:
                    os.kill(every[rank], number)
            return measured(float(next(iter(model.parameters())).detach().double().sum()))

        return trained(processes, path, resume=resume, validate=validate, **changes)

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done(2, lambda one: work(one, whole, ending=False))
    found = together(2, lambda one: work(one, cut, ending=True))
    assert not any(isinstance(one, dict) for one in found), "it went on to the end"
    # Before a validation all is saved; a signal waits for its end and one more step.
    assert checkpoint_steps(cut) == ([3, 4, 6, 7] if "signal" in end else [3, 4, 6])
    done(2, lambda one: work(one, cut, ending=False, resume=True))
    assert_all_the_same(cut, whole, 8)
    valid = [
        [(record["step"], record["bleu"]) for record in read_metrics(path / "metrics.jsonl")
         if record["event"] == "valid"] for path in (whole, cut)
    ]  # fmt: skip
    assert valid[0] == valid[1]


SETTINGS = (
    "training.max_steps=9", "training.checkpoint_every=4", "training.validate_every=4",
    "training.batch_tokens=150", "training.log_every=1", "training.device=cpu",
    "training.sample_lines=1", "training.accumulate=2", "training.ema_decay=0.9",
    "training.parallel=shard", "vocabulary.size=290", "vocabulary.bpe_dropout=0.2",
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.encoder_layers=1",
    "model.decoder_layers=1", "model.experts.number=2", "decoding.beam=1",
    "decoding.max_extra_tokens=1", "training.optimizer.eps=1e-4",
)  # fmt: skip


@pytest.fixture
def text(tmp_path: Path) -> Path:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    lines = [" ".join([*words[at % 7 : at % 7 + 1 + at % 4], words[at % 10]]) for at in range(70)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return path


def typed(processes: Processes, text: Path, out: Path, *keys: str, resume: bool = False) -> None:
    """Train as the command does it, as one of these processes."""

    @contextmanager
    def joined() -> Iterator[Processes]:
        yield processes

    patch = pytest.MonkeyPatch()
    patch.setattr(runs, "joined", joined)  # in this forked process alone
    try:
        if resume:
            runs.resume(out, list(keys), reporter=SilentReporter())
        else:
            recipe = regard.load_recipe("tiny", [f'data.tsv=["{text}"]', *SETTINGS, *keys])
            runs.train(recipe, out, reporter=SilentReporter())
    finally:
        patch.undo()


def test_with_bpe_dropout_cut_weights_see_the_text_that_one_process_sees(
    text: Path, tmp_path: Path
) -> None:
    keys = ("training.precision=float32", "model.dropout=0", "model.experts.balance=0.1")
    for name, count in (("alone", 1), ("two", 2)):
        done(count, lambda one: typed(one, text, tmp_path / name, *keys))  # noqa: B023

    def losses(name: str) -> list[float]:
        records = read_metrics(tmp_path / name / "metrics.jsonl")
        return [record["loss"] for record in records if record["event"] == "train"]

    assert len(losses("alone")) == 9
    assert losses("two") == pytest.approx(losses("alone"), rel=1e-6)


def test_with_bpe_dropout_a_cut_run_in_bfloat16_goes_on_to_the_bit(
    text: Path, tmp_path: Path
) -> None:
    keys = ("training.precision=bfloat16", "model.dropout=0.1")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done(2, lambda one: typed(one, text, whole, *keys))
    done(2, lambda one: typed(one, text, cut, *keys, "training.max_steps=6"))
    done(2, lambda one: typed(one, text, cut, "training.max_steps=9", resume=True))
    assert_all_the_same(cut, whole, 9)
