"""Checkpoints: all of a step or nothing, the newest whole one, and no more than are kept."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import RunFolderError
from regard.weights.checkpoints import (
    checkpoint_steps,
    find_checkpoint,
    keep_checkpoints,
    latest_checkpoint,
    latest_checkpoints,
    save_checkpoint,
)
from regard.weights.run_folder import RunFolder


def quiet(words: str) -> None:
    raise AssertionError(words)


def test_everything_saved_comes_back_to_the_bit(tmp_path: Path) -> None:
    state = {
        "step": 7,
        "rate": 0.1 + 0.2,
        "tiny": 5e-324,
        "random": {"state": 2**127 + 1, "name": "PCG64"},
        "best": None,
        "text": "ü\u2028\n",
    }
    groups = {
        "model": {"w": torch.randn(3, 3)},
        "optimizer": {"w.first": torch.randn(3, 3), "step": torch.tensor(7)},
        "random": {"torch": torch.get_rng_state()},
    }
    saved = save_checkpoint(tmp_path, 7, groups, state)
    assert saved.path == tmp_path / "checkpoints" / "step-00000007"
    found = latest_checkpoint(tmp_path, quiet)
    assert found == saved
    assert found.state() == state
    assert found.names == ["model", "optimizer", "random"]
    for name, group in groups.items():
        back = found.tensors(name)
        assert back.keys() == group.keys()
        assert all(torch.equal(back[key], group[key]) for key in group)


def test_the_newest_is_the_highest_step_also_past_eight_digits(
    tmp_path: Path, make_checkpoint: Callable
) -> None:
    for step in (99_999_999, 5, 100_000_000):
        make_checkpoint(tmp_path, step)
    assert checkpoint_steps(tmp_path) == [5, 99_999_999, 100_000_000]
    found = latest_checkpoint(tmp_path, quiet)
    assert found
    assert found.step == 100_000_000
    assert [one.step for one in latest_checkpoints(tmp_path, 2, quiet)] == [99_999_999, 100_000_000]


def test_where_there_is_none_none_is_found(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path, quiet) is None
    assert checkpoint_steps(tmp_path) == []


def test_a_damaged_newest_is_passed_over_and_named(run_path: Path) -> None:
    broken = run_path / "checkpoints" / "step-00000002" / "optimizer.safetensors"
    data = bytearray(broken.read_bytes())
    data[-1] ^= 1
    broken.write_bytes(data)
    said: list[str] = []
    found = latest_checkpoint(run_path, said.append)
    assert found
    assert found.step == 1
    assert said == [
        f"{broken}: the file is damaged: its bytes are not those that were written (SHA-256); "
        "the checkpoint of step 2 is passed over"
    ]
    with pytest.raises(RunFolderError, match=r"step-00000002/optimizer\.safetensors"):
        find_checkpoint(run_path, 2)


def test_when_all_are_damaged_it_says_so(run_path: Path) -> None:
    for step in ("step-00000001", "step-00000002"):
        (run_path / "checkpoints" / step / "manifest.json").unlink()
    said: list[str] = []
    with pytest.raises(RunFolderError) as caught:
        latest_checkpoint(run_path, said.append)
    assert str(caught.value) == (
        f"{run_path}/checkpoints: every checkpoint is damaged\n  Copy the folder again from where "
        "it came from, or train anew with another --out."
    )
    assert len(said) == 2


def test_a_step_saved_again_replaces_the_former(run_path: Path) -> None:
    save_checkpoint(run_path, 2, {"model": {"w": torch.ones(1)}}, {"again": True})
    found = find_checkpoint(run_path, 2)
    assert found.state() == {"again": True}
    assert found.names == ["model"]
    names = sorted(path.name for path in (run_path / "checkpoints").iterdir())
    assert names == ["step-00000001", "step-00000002"]


def test_a_missing_step_is_refused_with_those_that_are_there(run_path: Path) -> None:
    with pytest.raises(RunFolderError) as caught:
        find_checkpoint(run_path, 3)
    assert str(caught.value) == (
        f"{run_path}/checkpoints: there is no checkpoint of step 3; there are: 1, 2"
    )


def test_a_group_that_was_not_saved_is_refused(run_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"ema\.safetensors: the checkpoint has no such file"):
        find_checkpoint(run_path, 2).tensors("ema")


@pytest.mark.parametrize(
    ("last", "also", "kept"),
    [(2, (), [4, 5]), (2, (1,), [1, 4, 5]), (1, (5, 9), [5]), (9, (), [1, 2, 3, 4, 5])],
)
def test_the_last_and_the_best_are_kept(
    tmp_path: Path,
    make_checkpoint: Callable,
    last: int,
    also: tuple[int, ...],
    kept: list[int],
) -> None:
    for step in range(1, 6):
        make_checkpoint(tmp_path, step)
    keep_checkpoints(tmp_path, last, also)
    assert checkpoint_steps(tmp_path) == kept
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(kept)


def test_what_a_kill_left_is_ignored_and_removed_by_the_next_writer(run_path: Path) -> None:
    stale = run_path / "checkpoints" / ".step-00000003.123-abcdef01.partial"
    stale.mkdir()
    (stale / "model.safetensors").write_bytes(b"half")
    (run_path / ".model.safetensors.123-abcdef01.partial").write_bytes(b"half")
    assert checkpoint_steps(run_path) == [1, 2]
    RunFolder.open(run_path)
    assert stale.exists()
    RunFolder.open(run_path, write=True).close()
    assert not [path for path in run_path.rglob("*") if path.name.endswith(".partial")]


def test_a_replacement_that_a_kill_cut_in_two_is_undone(run_path: Path) -> None:
    parent = run_path / "checkpoints"
    (parent / "step-00000002").rename(parent / ".step-00000002.replaced.partial")
    RunFolder.open(run_path, write=True).close()
    found = latest_checkpoint(run_path, quiet)
    assert found
    assert found.step == 2


def test_other_folders_beside_checkpoints_are_left_alone(run_path: Path) -> None:
    mine = run_path / "checkpoints" / "step-best"
    shutil.copytree(run_path / "checkpoints" / "step-00000001", mine)
    keep_checkpoints(run_path, 1)
    RunFolder.open(run_path, write=True).close()
    assert mine.is_dir()
    assert checkpoint_steps(run_path) == [2]
