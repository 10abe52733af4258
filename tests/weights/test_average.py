"""The average of checkpoints: the mean of each weight, where a user expects to find it."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from regard.errors import RunFolderError
from regard.weights.average import average_checkpoints, average_weights, restore_trained
from regard.weights.checkpoints import find_checkpoint, save_checkpoint
from regard.weights.run_folder import RunFolder


def quiet(words: str) -> None:
    raise AssertionError(words)


def save(folder: Path, step: int, **groups: dict[str, torch.Tensor]) -> None:
    save_checkpoint(folder, step, groups, {})


def test_each_weight_is_the_exact_mean_rounded_once(tmp_path: Path) -> None:
    values = [1e8, 1.0, -1e8, 0.3, 7e-9]  # summed in float32 the small ones would be lost
    for step, value in enumerate(values):
        save(tmp_path, step, model={"w": torch.tensor([value])})
    chosen = [find_checkpoint(tmp_path, step) for step in range(len(values))]
    stored = [Fraction(torch.tensor(value).item()) for value in values]
    exact = torch.tensor(float(sum(stored) / len(stored)))
    assert average_weights(chosen)["w"].item() == exact.item()


def test_types_are_kept_tied_weights_stay_tied_and_whole_numbers_are_the_lasts(
    tmp_path: Path,
) -> None:
    for step in (1, 2):
        shared = torch.full((2,), float(step))
        half = torch.full((2,), float(step)).bfloat16()
        count = torch.tensor(step)
        save(tmp_path, step, model={"a": shared, "b": shared, "half": half, "count": count})
    found = average_weights([find_checkpoint(tmp_path, step) for step in (1, 2)])
    assert found["a"] is found["b"]
    assert found["a"].tolist() == [1.5, 1.5]
    assert found["half"].dtype is torch.bfloat16
    assert found["half"].tolist() == [1.5, 1.5]
    assert found["count"].item() == 2


def test_the_average_of_one_is_itself(run_path: Path, make_weights: Callable) -> None:
    found = average_weights([find_checkpoint(run_path, 1)])
    assert all(torch.equal(found[name], value) for name, value in make_weights(1.0).items())


def test_the_run_translates_with_the_average_and_keeps_what_training_wrote(run_path: Path) -> None:
    with RunFolder.open(run_path, write=True) as run:
        assert average_checkpoints(run, last=2, log=quiet) == [1, 2]
    run = RunFolder.open(run_path)
    assert run.load_weights()["bias"].tolist() == [1.5, -1.5]
    assert run.model_notes() == {"made": "average", "of": "model", "steps": "1 2"}
    assert run.load_weights("model.trained.safetensors")["bias"].tolist() == [2.0, -2.0]


def test_an_average_of_an_average_run_still_keeps_what_training_wrote(run_path: Path) -> None:
    with RunFolder.open(run_path, write=True) as run:
        average_checkpoints(run, last=2, log=quiet)
        average_checkpoints(run, steps=[1], log=quiet)
        assert run.load_weights()["bias"].tolist() == [1.0, -1.0]
        restore_trained(run)
        assert run.load_weights()["bias"].tolist() == [2.0, -2.0]
        assert run.model_notes()["made"] == "last"


def test_a_run_without_an_average_has_none_to_undo(run_path: Path) -> None:
    with RunFolder.open(run_path, write=True) as run, pytest.raises(RunFolderError) as caught:
        restore_trained(run)
    assert str(caught.value) == f"{run_path}: no average took the model's place"


def test_with_out_the_run_stays_as_it_is_and_the_new_one_is_whole(run_path: Path) -> None:
    before = (run_path / "manifest.json").read_bytes()
    out = run_path.parent / "average"
    assert average_checkpoints(RunFolder.open(run_path), last=2, out=out, log=quiet) == [1, 2]
    assert (run_path / "manifest.json").read_bytes() == before
    new = RunFolder.open(out)
    assert new.load_weights()["bias"].tolist() == [1.5, -1.5]
    assert new.recipe_text() == RunFolder.open(run_path).recipe_text()
    assert new.tokenizer_files() == RunFolder.open(run_path).tokenizer_files()


def test_out_keeps_two_vocabularies_two(run_path: Path) -> None:
    with RunFolder.open(run_path, write=True) as run:
        run.write_tokenizers(b"s", b"t")
    out = run_path.parent / "average"
    average_checkpoints(RunFolder.open(run_path), last=1, out=out, log=quiet)
    assert RunFolder.open(out).tokenizer_files() == RunFolder.open(run_path).tokenizer_files()


def test_moving_averages_are_averaged_only_where_every_checkpoint_has_them(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as run:
        run.write_recipe("")
        run.write_tokenizers(b"{}")
        plain, moving = {"w": torch.tensor([1.0])}, {"w": torch.tensor([5.0])}
        save(run.path, 1, model=plain)
        save(run.path, 2, model=plain, ema=moving)
        save(run.path, 3, model=plain, ema=moving)
        average_checkpoints(run, last=2, log=quiet)
        assert run.load_weights()["w"].tolist() == [5.0]
        average_checkpoints(run, last=3, log=quiet)
        assert run.load_weights()["w"].tolist() == [1.0]


def test_a_damaged_model_is_made_again_from_a_checkpoint(run_path: Path) -> None:
    (run_path / "model.safetensors").write_bytes(b"broken")
    with RunFolder.open(run_path, write=True, model=False) as run:
        average_checkpoints(run, last=1, log=quiet)
    assert RunFolder.open(run_path).load_weights()["bias"].tolist() == [2.0, -2.0]


def test_more_checkpoints_than_there_are_is_refused(run_path: Path) -> None:
    run = RunFolder.open(run_path)
    (run_path / "checkpoints" / "step-00000001" / "state.json").unlink()
    said: list[str] = []
    with pytest.raises(RunFolderError) as caught:
        average_checkpoints(run, last=5, log=said.append)
    assert str(caught.value) == (
        f"{run_path}/checkpoints: wanted 5 whole checkpoints, found 1 "
        "(and 1 damaged)\n  Use --last 1."
    )
    assert len(said) == 1
    with pytest.raises(RunFolderError, match="the last 0 checkpoints is no model; use 1 or more"):
        average_checkpoints(run, last=0, log=quiet)


def test_checkpoints_of_two_models_do_not_average(tmp_path: Path) -> None:
    save(tmp_path, 1, model={"w": torch.zeros(2)})
    save(tmp_path, 2, model={"w": torch.zeros(3)})
    save(tmp_path, 3, model={"v": torch.zeros(3)})
    one, two, three = (find_checkpoint(tmp_path, step) for step in (1, 2, 3))
    with pytest.raises(RunFolderError) as caught:
        average_weights([one, two])
    assert str(caught.value) == (
        f"{one.path}: w is (2,), and (3,) at step 2: they are not of one model"
    )
    with pytest.raises(RunFolderError, match=r"v is missing, and \(3,\) at step 3"):
        average_weights([two, three])
