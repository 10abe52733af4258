"""Several processes train one model: as one process does, and to the last bit alike."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training.digits import DigitBatches, measured, settings, tiny_model
from training.kinds import KINDS
from training.processes import together
from training.records import read_metrics

from regard.training.feed import Feed
from regard.training.loop import Trainer
from regard.training.losses import LossSums, translation_loss
from regard.training.processes import ALONE, Processes
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally
from regard.training.validation import Validation
from regard.weights.checkpoints import checkpoint_steps
from regard.weights.lock import WriterLock
from regard.weights.manifest import read_manifest
from regard.weights.run_folder import RunFolder

CPU = torch.device("cpu")


def first_steps(
    processes: Processes, *, rows: int = 9, accumulate: int = 1, steps: int = 4
) -> dict[str, Any]:
    """The losses of some steps, the gradients of the first, and the weights after the last."""
    model = tiny_model()
    stepper = Stepper(
        model, settings(accumulate=accumulate, clip_norm=1.0), device=CPU, precision="float32",
        loss=translation_loss, processes=processes,
    )  # fmt: skip
    losses, norms, gradients, here = [], [], {}, []
    feed = Feed(
        DigitBatches(rows=rows, longest=9), epoch=0, start=0, parts=accumulate, device=CPU,
        rank=processes.rank, count=processes.count,
    )  # fmt: skip
    with feed:
        for step, batch in zip(range(1, steps + 1), feed, strict=False):
            tally = Tally(Window())
            stepper.take(batch, step, 1e-2, tally)
            tally.look()
            losses.append(tally.window.smoothed / tally.window.tokens)
            norms.append(tally.norm)
            here.append(sum(len(part.targets_n) for part in batch.counting))
            if step == 1:
                gradients = {
                    name: weight.grad.clone() for name, weight in model.named_parameters()
                    if weight.grad is not None
                }  # fmt: skip
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    return {"losses": losses, "norms": norms, "gradients": gradients, "weights": weights,
            "tokens here": here}  # fmt: skip


@pytest.mark.parametrize(
    ("count", "rows", "accumulate"),
    [(2, 9, 1), (4, 9, 1), (2, 9, 2), (4, 3, 1), (2, 1, 2)],
)
def test_the_same_batch_gives_the_same_losses_and_gradients_on_any_number_of_processes(
    count: int, rows: int, accumulate: int
) -> None:
    alone = first_steps(ALONE, rows=rows)
    found = together(count, lambda one: first_steps(one, rows=rows, accumulate=accumulate))
    for one in found:
        assert isinstance(one, dict), one
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-6)
        assert one["norms"] == pytest.approx(alone["norms"], rel=1e-6)
        torch.testing.assert_close(one["gradients"], alone["gradients"], rtol=0, atol=1e-6)
        for name, weight in one["weights"].items():
            assert torch.equal(weight, found[0]["weights"][name]), name
    shares = [one["tokens here"] for one in found]
    assert len(set(map(tuple, shares))) > 1, "the test wants shares of different sizes"
    assert [sum(step) for step in zip(*shares, strict=True)] == alone["tokens here"]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_each_row_of_an_epoch_is_in_one_process_once(count: int) -> None:
    batches = DigitBatches(rows=7, per_epoch=4)
    seen: list[list[int]] = []
    parts: list[list[int]] = [[] for _ in range(count)]
    for rank in range(count):
        feed = Feed(batches, epoch=0, start=0, parts=2, device=CPU, rank=rank, count=count)
        with feed:
            for _, batch in zip(range(4), feed, strict=False):
                seen += [row for part in batch.counting for row in part.source_bs.tolist()]
                parts[rank].append(len(batch.parts))

    def stripped(rows: list[list[int]]) -> list[tuple[int, ...]]:
        return sorted(tuple(token for token in row if token) for row in rows)

    every = [row for place in range(4) for row in batches.batch(0, place).source_bs.tolist()]
    assert stripped(seen) == stripped(every)
    assert all(each == parts[0] for each in parts), "they would wait for each other"


def trained(
    processes: Processes, path: Path, *, resume: bool = False, loss: Any = None,
    kind: str = "translator",
    validate: Callable[[torch.nn.Module], Validation] | None = None, dropout: float = 0.2,
    **changes: object,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Train in a folder, which the main process alone writes to; return the weights."""
    if processes.main and not resume:
        RunFolder.create(path).close()
    processes.from_main(lambda: None)
    lock = WriterLock(path) if processes.main else None
    with RunFolder(path, read_manifest(path), lock) as folder:
        trainer = Trainer(
            KINDS[kind].model(dropout), KINDS[kind].batches(rows=6), settings(**changes), folder,
            loss=loss or KINDS[kind].loss, validate=validate, processes=processes,
        )  # fmt: skip
        trainer.run(resume=resume)
        return trainer.model.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_goes_on_exactly_with_the_same_number_of_processes_and_also_with_others(
    tmp_path: Path,
) -> None:
    whole = together(2, lambda one: trained(one, tmp_path / "whole", max_steps=9, ema_decay=0.9))
    assert same(whole[0], whole[1])
    cut = tmp_path / "cut"
    together(2, lambda one: trained(one, cut, max_steps=5, ema_decay=0.9))
    saved = RunFolder(cut, read_manifest(cut), None).sha256("model.safetensors")
    for count in (2, 4, 1):
        with_others = together(
            count,
            lambda one: trained(one, cut, resume=True, max_steps=9, ema_decay=0.9, keep_last=9),
        )
        assert same(with_others[0], with_others[-1])
        assert same(with_others[0], whole[0]) == (count == 2)
        assert checkpoint_steps(cut) == [4, 5, 8, 9]
        events = read_metrics(cut / "metrics.jsonl")
        assert [one["processes"] for one in events if one["event"] == "resume"] == [count]
        # Back to where the two processes stopped.
        for step in (8, 9):
            (cut / f"checkpoints/step-{step:08d}").rename(tmp_path / f"{count}-{step}")
    assert saved != RunFolder(cut, read_manifest(cut), None).sha256("model.safetensors")


def test_validation_is_done_by_one_and_all_stop_early_by_it(tmp_path: Path) -> None:
    def work(processes: Processes) -> tuple[int, int]:
        calls: list[int] = []

        def validate(model: torch.nn.Module) -> Validation:
            calls.append(1)
            return measured(9.0 - len(calls))

        changes = {"validate_every": 2, "patience": 2, "max_steps": 50}
        trained(processes, tmp_path / "run", validate=validate, **changes)
        return processes.rank, len(calls)

    assert together(2, work) == [(0, 3), (1, 0)]


def test_a_signal_to_any_process_stops_all_after_the_same_step(tmp_path: Path) -> None:
    def work(processes: Processes) -> object:
        calls: list[int] = []

        def loss(*arguments: object) -> LossSums:
            calls.append(1)
            if processes.rank == 1 and len(calls) == 3:
                signal.raise_signal(signal.SIGTERM)
            return translation_loss(*arguments)

        return trained(processes, tmp_path / "run", loss=loss)

    found = together(2, work)
    for one in found:
        assert one.startswith("Interrupted: stopped as asked at step 3 of 8; everything is saved")
    assert checkpoint_steps(tmp_path / "run") == [3]


def test_where_one_is_killed_the_others_say_so_and_the_run_can_be_gone_on_with(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    whole = together(2, lambda one: trained(one, tmp_path / "whole"))

    def work(processes: Processes) -> object:
        calls: list[int] = []

        def loss(*arguments: object) -> LossSums:
            calls.append(1)
            if processes.rank == 1 and len(calls) == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            return translation_loss(*arguments)

        return trained(processes, path, loss=loss)

    left, killed = together(2, work)
    assert killed is None
    assert left.startswith(
        "RegardError: training: another process has ended or does not answer, at step 5\n"
        f"  Go on from the last checkpoint: torchrun ... -m regard train {path} --resume\n"
    )
    assert checkpoint_steps(path) == [4]
    again = together(2, lambda one: trained(one, path, resume=True))
    assert same(again[0], whole[0])


def test_what_the_main_process_could_not_do_the_others_are_told() -> None:
    def work(processes: Processes) -> object:
        def make() -> int:
            raise ValueError("no text")

        return processes.from_main(make)

    first, second = together(2, work)
    assert first.startswith("ValueError: no text")
    assert second.startswith("ElsewhereError: process 0 could not go on: no text")
