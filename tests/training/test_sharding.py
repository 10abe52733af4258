"""Weights cut over processes are trained, saved and validated as whole ones are."""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from training.digits import measured, settings
from training.kinds import KINDS
from training.processes import together
from training.test_processes import trained as trained_in_folder

from regard.shapes import Tensor
from regard.training.config import AdamConfig
from regard.training.feed import Feed
from regard.training.losses import LossSums, translation_loss
from regard.training.precision import Precision
from regard.training.processes import ALONE, Processes
from regard.training.sharding import gathered, local
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally
from regard.training.validation import Validation
from regard.weights.checkpoints import checkpoint_steps, find_checkpoint

CPU = torch.device("cpu")
# Adam makes steps of what is only rounding, where a gradient is truly 0: a larger eps.
ADAM = AdamConfig(eps=1e-4)


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: gathered(tensor.detach()).clone() for name, tensor in tensors.items()}


def steps_of(
    processes: Processes, kind: str = "translator", precision: Precision = "float32",
    *, rows: int = 9, **changes: object,
) -> dict[str, Any]:  # fmt: skip
    """Four steps: losses, norms, the gradients of the first, weights and averages at the end."""
    values: dict[str, object] = {"parallel": "shard", "ema_decay": 0.9, "optimizer": ADAM}
    config = settings(clip_norm=0.5, **(values | changes))
    model = KINDS[kind].model(0.0)
    numbers = sum(weight.numel() for weight in model.parameters())
    stepper = Stepper(
        model, config, device=CPU, precision=precision, loss=KINDS[kind].loss,
        processes=processes,
    )  # fmt: skip
    held = sum(local(weight).numel() for weight in model.parameters())
    found: dict[str, Any] = {"losses": [], "norms": [], "tokens": [], "held": held / numbers}
    feed = Feed(
        KINDS[kind].batches(rows=rows, longest=9), epoch=0, start=0, parts=config.accumulate,
        device=CPU, rank=processes.rank, count=processes.count,
    )  # fmt: skip
    with feed:
        for step, batch in zip(range(1, 5), feed, strict=False):
            tally = Tally(Window())
            stepper.take(batch, step, 1e-2, tally)
            tally.look()
            found["losses"].append(tally.window.smoothed / tally.window.tokens)
            found["norms"].append(tally.norm)
            found["tokens"].append(sum(len(part.targets_n) for part in batch.counting))
            if step == 1:
                found["gradients"] = whole(
                    {name: weight.grad for name, weight in model.named_parameters()
                     if weight.grad is not None}
                )  # fmt: skip
    found["weights"] = whole(model.state_dict())
    found["averages"] = whole(stepper.average.weights)
    return found


def assert_close(one: dict[str, Any], other: dict[str, Any], within: float = 1e-6) -> None:
    assert one["losses"] == pytest.approx(other["losses"], rel=within)
    assert one["norms"] == pytest.approx(other["norms"], rel=within)
    for kind in ("gradients", "weights", "averages"):
        assert one[kind].keys() == other[kind].keys()
        torch.testing.assert_close(one[kind], other[kind], rtol=0, atol=within)


@pytest.mark.parametrize(
    ("kind", "count", "accumulate", "recomputed"),
    [
        ("translator", 2, 1, False),
        ("translator", 4, 1, False),
        ("translator", 2, 2, True),
        ("translator with experts", 2, 2, False),
        ("translator with experts", 4, 1, True),
        ("adapted translator", 2, 2, True),
        ("language model", 2, 2, True),
        ("language model", 4, 1, False),
        ("language model with experts", 2, 1, False),
        ("adapted language model", 4, 2, False),
    ],
)
def test_cut_weights_give_the_losses_gradients_and_averages_of_one_process(
    kind: str, count: int, accumulate: int, recomputed: bool
) -> None:
    alone = steps_of(ALONE, kind)
    changes = {"accumulate": accumulate, "activation_checkpointing": recomputed}
    found = together(count, lambda one: steps_of(one, kind, **changes))
    for one in found:
        assert isinstance(one, dict), one
        assert_close(one, alone)
        assert one["held"] < 1.6 / count  # three experts can't be cut into even shares
    assert sum(one["held"] for one in found) == pytest.approx(1)
    assert len({tuple(one["tokens"]) for one in found}) > 1, "the test wants unequal shares"


# Eight parts are wanted and there are as many as rows: some processes have one less, or none.
@pytest.mark.parametrize("rows", [3, 6])
def test_where_a_batch_has_too_few_rows_for_all_parts_no_process_waits_for_another(
    rows: int,
) -> None:
    kind = "translator with experts"
    alone = steps_of(ALONE, kind, rows=rows)
    for one in together(4, lambda each: steps_of(each, kind, rows=rows, accumulate=2)):
        assert isinstance(one, dict), one
        assert_close(one, alone)


@pytest.mark.parametrize("kind", ["translator with experts", "adapted language model"])
def test_in_bfloat16_cut_weights_are_trained_as_whole_ones_are(kind: str) -> None:
    def work(processes: Processes) -> object:
        return [
            steps_of(processes, kind, "bfloat16", parallel=parallel, accumulate=2)
            for parallel in ("shard", "replicate")
        ]

    alone = steps_of(ALONE, kind, "bfloat16")
    for one in together(2, work):
        assert isinstance(one, list), one
        cut, replicated = one
        # Gradients are summed in another order: a weight, or a slope that is truly 0, rounds
        # otherwise.
        assert_close(cut, replicated, within=1e-4)
        assert cut["losses"] == pytest.approx(alone["losses"], rel=1e-2)


def trained(processes: Processes, path: Path, **changes: Any) -> dict[str, Tensor]:
    weights = trained_in_folder(processes, path, parallel="shard", **changes)
    return whole(weights)


def final(path: Path, step: int) -> dict[str, dict[str, Tensor]]:
    found = find_checkpoint(path, step)
    return {name: found.tensors(name) for name in found.names if name != "random"}


def test_a_cut_run_goes_on_exactly_and_its_files_are_those_of_a_run_that_is_not_cut(
    tmp_path: Path,
) -> None:
    changes = {"ema_decay": 0.9, "keep_last": 9}
    undisturbed = tmp_path / "undisturbed"
    cut = tmp_path / "cut"
    plain = tmp_path / "plain"
    for path, steps in ((undisturbed, 9), (cut, 5)):
        found = together(2, lambda one: trained(one, path, max_steps=steps, **changes))  # noqa: B023
        assert isinstance(found[0], dict), found
    together(2, lambda one: trained_in_folder(one, plain, max_steps=9, **changes))
    for group, tensors in final(undisturbed, 9).items():
        shapes = {name: tensor.shape for name, tensor in final(plain, 9)[group].items()}
        assert {name: tensor.shape for name, tensor in tensors.items()} == shapes
    again = together(2, lambda one: trained(one, cut, resume=True, max_steps=9, **changes))
    assert isinstance(again[0], dict), again
    for group, tensors in final(undisturbed, 9).items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, final(cut, 9)[group][name]), name


def test_a_cut_run_goes_on_with_other_numbers_of_processes_and_back(tmp_path: Path) -> None:
    # Without dropout, whose numbers depend on how many processes there are.
    def work(path: Path, count: int, steps: int, parallel: str = "shard") -> None:
        def one(processes: Processes) -> object:
            return trained_in_folder(
                processes, path, resume=steps > 3, dropout=0.0, parallel=parallel,
                max_steps=steps, ema_decay=0.9, optimizer=ADAM,
            )  # fmt: skip

        for found in [one(ALONE)] if count == 1 else together(count, one):
            assert isinstance(found, dict), found

    work(tmp_path / "whole", 1, 3)
    work(tmp_path / "whole", 1, 9)
    for steps, count, parallel in (
        (3, 2, "shard"), (4, 1, "shard"), (6, 4, "shard"), (7, 2, "replicate"), (9, 2, "shard")
    ):  # fmt: skip
        work(tmp_path / "cut", count, steps, parallel)
    for group, tensors in final(tmp_path / "whole", 9).items():
        torch.testing.assert_close(final(tmp_path / "cut", 9)[group], tensors, rtol=0, atol=1e-6)


def test_the_main_process_validates_the_averages_whole(tmp_path: Path) -> None:
    def work(processes: Processes) -> object:
        seen: list[dict[str, Tensor]] = []

        def validate(model: torch.nn.Module) -> Validation:
            assert not model.training
            seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
            return measured(float(len(seen)))

        trained(processes, tmp_path / "run", validate=validate, ema_decay=0.9, max_steps=8)
        return seen

    seen, nothing = together(2, work)
    assert not isinstance(seen, str), seen
    assert nothing == []
    assert len(seen) == 2
    saved = final(tmp_path / "run", 8)["ema"]
    assert all(torch.equal(seen[-1][name], tensor) for name, tensor in saved.items())


def test_a_step_that_is_not_finite_in_one_process_is_skipped_by_all(tmp_path: Path) -> None:
    def work(processes: Processes) -> object:
        calls: list[int] = []

        def loss(*arguments: Any) -> LossSums:
            calls.append(1)
            sums = translation_loss(*arguments)
            if processes.rank == 1 and len(calls) == 3:
                return LossSums(sums.smoothed * math.nan, sums.nll)
            return sums

        return trained(processes, tmp_path / "run", loss=loss, max_steps=4)

    for weights in together(2, work):
        assert isinstance(weights, dict), weights
        assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    found = find_checkpoint(tmp_path / "run", 4)
    assert found.state()["position"]["skipped"] == 1
    counts = {float(n) for name, n in found.tensors("optimizer").items() if name.endswith(".step")}
    assert counts == {3.0}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_where_one_is_killed_or_asked_to_stop_all_end_and_the_run_can_be_gone_on_with(
    tmp_path: Path, how: signal.Signals
) -> None:
    path = tmp_path / "run"
    undisturbed = together(2, lambda one: trained(one, tmp_path / "whole"))

    def work(processes: Processes) -> object:
        calls: list[int] = []

        def loss(*arguments: Any) -> LossSums:
            calls.append(1)
            if processes.rank == 1 and len(calls) == 6:
                os.kill(os.getpid(), how)
            return translation_loss(*arguments)

        return trained(processes, path, loss=loss)

    left, other = together(2, work)
    if how == signal.SIGKILL:
        assert other is None
        assert "another process has ended or does not answer, at step 5" in left
        assert checkpoint_steps(path) == [4]
    else:
        assert "Interrupted: stopped as asked at step 6 of 8; everything is saved" in left
        assert checkpoint_steps(path) == [4, 6]
    again = together(2, lambda one: trained(one, path, resume=True))
    assert all(torch.equal(again[0][name], undisturbed[0][name]) for name in again[0])
