"""The run folder: what is written is read back, and whatever is wrong is named."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import RunFolderError
from regard.weights.layout import is_run_folder
from regard.weights.run_folder import RunFolder


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(RunFolderError) as caught:
        call()
    return str(caught.value)


def test_what_is_written_is_read_back(run_path: Path, make_weights: Callable) -> None:
    run = RunFolder.open(run_path)
    assert run.recipe_text() == 'description = "x"\n'
    files = run.tokenizer_files()
    assert files.joint
    assert files.source == files.target == b'{"version": "1.0"}'
    found = run.load_weights()
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in make_weights(2.0).items()
    }
    assert found["embedding"] is found["projection"]
    assert run.model_notes() == {"made": "last", "step": "2"}
    assert run.files == ["model.safetensors", "recipe.toml", "tokenizer.json"]


def test_a_run_lists_only_its_own_files_and_leaves_nothing_half_written(run_path: Path) -> None:
    assert sorted(path.name for path in run_path.iterdir()) == [
        ".lock",
        "checkpoints",
        "manifest.json",
        "model.safetensors",
        "recipe.toml",
        "tokenizer.json",
    ]


def test_two_vocabularies_replace_a_joint_one(run_path: Path) -> None:
    with RunFolder.open(run_path, write=True) as run:
        run.write_tokenizers(b"source", b"target")
    files = RunFolder.open(run_path).tokenizer_files()
    assert (files.source, files.target, files.joint) == (b"source", b"target", False)
    assert not (run_path / "tokenizer.json").exists()


def test_a_folder_with_a_run_in_it_is_not_overwritten(run_path: Path) -> None:
    assert refusal(lambda: RunFolder.create(run_path)) == (
        f"{run_path}: the folder holds a run already\n"
        f"  Go on with it: regard train {run_path} --resume\n  Or use another folder."
    )
    RunFolder.open(run_path)


def test_a_folder_whose_only_run_is_a_checkpoint_is_not_overwritten(
    tmp_path: Path, make_checkpoint: Callable
) -> None:
    with RunFolder.create(tmp_path / "run"):
        make_checkpoint(tmp_path / "run", 1)
    assert "holds a run already" in refusal(lambda: RunFolder.create(tmp_path / "run"))


def test_a_start_that_came_to_nothing_is_started_over_with_its_data_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunFolder.create(path) as run:
        run.write_recipe("old")
        run.metrics_path.write_text("{}\n")
        (path / "data").mkdir()
    with RunFolder.create(path) as run:
        assert run.files == []
        assert not run.metrics_path.exists()
        assert (path / "data").is_dir()


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert refusal(lambda: RunFolder.create(tmp_path)) == (
        f"{tmp_path}: the folder is not empty and holds no run\n"
        "  Use another folder, or empty this one."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refusal(lambda: RunFolder.create(tmp_path / "file")).startswith(
        f"{tmp_path}/file: the folder cannot be made: File exists"
    )
    assert refusal(lambda: RunFolder.create(tmp_path / "file" / "run")).startswith(
        f"{tmp_path}/file/run: the folder cannot be made: Not a directory"
    )


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in (tmp_path / "link", tmp_path / "link" / "run"):
        assert refusal(lambda path=path: RunFolder.create(path)) == (  # type: ignore[misc]
            f"{tmp_path}/link: this link leads nowhere: {tmp_path}/gone is not there\n"
            "  Make the folder that it names, remove the link, or use another folder."
        )
    assert not (tmp_path / "gone").exists()


def test_a_read_only_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)  # the superuser may write anywhere
    assert refusal(lambda: RunFolder.create(tmp_path)) == (
        f"{tmp_path}/.lock: cannot be written: Permission denied\n"
        "  Check the folder's permissions, or use another folder."
    )


def test_what_is_no_run_folder_is_said_to_be_none(tmp_path: Path) -> None:
    assert refusal(lambda: RunFolder.open(tmp_path / "no")) == (
        f"{tmp_path}/no: there is no such run folder"
    )
    assert refusal(lambda: RunFolder.open(tmp_path)) == (
        f"{tmp_path}: this is not a run folder: it has no manifest.json\n"
        "  A run folder is what regard train wrote with --out."
    )
    assert not is_run_folder(tmp_path)
    (tmp_path / "file").write_text("")
    assert refusal(lambda: RunFolder.open(tmp_path / "file")) == (
        f"{tmp_path}/file: this is a file, not a run folder"
    )


def test_opening_to_read_writes_nothing(run_path: Path) -> None:
    (run_path / ".lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in run_path.rglob("*")}
    RunFolder.open(run_path).load_weights()
    assert {path: path.stat().st_mtime_ns for path in run_path.rglob("*")} == before


def test_a_missing_file_is_named_with_what_to_do(run_path: Path) -> None:
    (run_path / "tokenizer.json").unlink()
    assert refusal(lambda: RunFolder.open(run_path)) == (
        f"{run_path}/tokenizer.json: the file is missing\n"
        "  Copy it again from where the folder came from."
    )


def test_a_missing_manifest_is_named(run_path: Path) -> None:
    (run_path / "manifest.json").unlink()
    assert is_run_folder(run_path)
    assert refusal(lambda: RunFolder.open(run_path)) == (
        f"{run_path}/manifest.json: the file is missing\n"
        "  Copy the folder again from where it came from, whole."
    )


def test_a_damaged_model_is_named_and_can_be_made_again_from_checkpoints(run_path: Path) -> None:
    model = run_path / "model.safetensors"
    size = model.stat().st_size
    model.write_bytes(model.read_bytes()[:-1])
    assert refusal(lambda: RunFolder.open(run_path)) == (
        f"{model}: the file is damaged: it has {size - 1:,} bytes and should have {size:,}\n"
        f"  Make it again from the checkpoints: regard average {run_path} --last 1"
    )
    RunFolder.open(run_path, model=False)


def test_a_hand_edited_recipe_is_refused_with_what_to_do_instead(run_path: Path) -> None:
    (run_path / "recipe.toml").write_text('description = "y"\n')
    assert refusal(lambda: RunFolder.open(run_path)) == (
        f"{run_path}/recipe.toml: the file is damaged: its bytes are not those that were written "
        "(SHA-256)\n  Copy it again from where the folder came from. "
        "Settings are changed with --set, not in this file."
    )


def test_a_run_without_a_model_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunFolder.create(path) as run:
        run.write_recipe("")
        run.write_tokenizers(b"{}")
        assert not run.has_model
    assert refusal(lambda: RunFolder.open(path)) == (
        f"{path}: the run has no model yet: its training was stopped before one was saved\n"
        f"  Go on with it: regard train {path} --resume"
    )
    RunFolder.open(path, model=False)


def test_a_folder_of_a_later_format_asks_for_an_update(run_path: Path) -> None:
    manifest = run_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    assert refusal(lambda: RunFolder.open(run_path)) == (
        f"{manifest}: the folder has format 2; this version of regard reads up to 1\n"
        "  Update regard: python -m pip install --upgrade regard"
    )


def test_writing_without_the_lock_is_a_bug(run_path: Path) -> None:
    run = RunFolder.open(run_path)
    with pytest.raises(ValueError, match="was not opened for writing"):
        run.write_recipe("")


def test_a_reader_whose_file_is_replaced_meanwhile_goes_on(
    run_path: Path, make_weights: Callable
) -> None:
    reader = RunFolder.open(run_path)
    with RunFolder.open(run_path, write=True) as run:
        run.write_model(make_weights(9.0))
    assert reader.load_weights()["bias"].tolist() == [9.0, -9.0]


def test_files_follow_the_users_umask(run_path: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((run_path / "model.safetensors").stat().st_mode) == 0o666 & ~umask


def test_loaded_weights_are_not_the_file(run_path: Path) -> None:
    found = RunFolder.open(run_path).load_weights()
    with torch.no_grad():
        found["bias"].zero_()
    RunFolder.open(run_path)
