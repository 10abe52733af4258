"""Where nothing was made, nothing is left: no folder, no lock, no list of no files."""

from pathlib import Path
from typing import NoReturn

import pytest
from serving.tiny_families import make_language_run

from regard.cli import main
from regard.errors import RunFolderError
from regard.weights.checkpoints import save_checkpoint
from regard.weights.run_folder import RunFolder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("folder").mkdir()


TRAININGS = {
    "a decoder": ["train", "gpt-char", "--text"],
    "an encoder": ["train", "bert-mini", "--text"],
    "a translator": ["train", "tiny", "--tsv"],
    "a classifier": ["finetune", "bert-mini", "--labels"],
}


@pytest.mark.parametrize("text", ["none", "empty", "folder"])
@pytest.mark.parametrize("line", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("out", ["runs/deep/x", "there"])
def test_a_training_whose_text_is_refused_leaves_nothing(
    line: list[str], text: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there").mkdir()
    before = sorted(Path().rglob("*"))
    assert main([*line, text, "--out", out, "--set=training.device=cpu"]) == 2
    assert text in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


def test_what_an_earlier_start_prepared_stays() -> None:
    RunFolder.create("run").close()
    Path("run/data").mkdir()
    Path("run/data/kept").touch()
    assert main(["train", "gpt-char", "--text=none", "--out=run"]) == 2
    assert Path("run/data/kept").exists()
    assert Path("run/manifest.json").exists()


def fail(*_arguments: object, **_options: object) -> NoReturn:
    raise RunFolderError("cannot be written: No space left on device", where="model")


@pytest.mark.parametrize("out", ["runs/deep/x", "there"])
@pytest.mark.parametrize("command", ["import", "average"])
def test_a_model_that_cannot_be_written_leaves_nothing(
    command: str, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there").mkdir()
    run = make_language_run(Path("gpt"))
    if command == "import":
        assert main(["export", "gpt", "--out=elsewhere"]) == 0
        line = ["import", "elsewhere"]
    else:
        with RunFolder.open(run, write=True) as folder:
            save_checkpoint(folder.path, 1, {"model": folder.load_weights()}, {})
        line = ["average", "gpt", "--last=1"]
    before = sorted(Path().rglob("*"))
    monkeypatch.setattr(RunFolder, "write_model", fail)
    assert main([*line, "--out", out]) == 2
    assert "model: cannot be written: No space left on device" in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


def test_a_block_that_fails_takes_back_only_what_is_of_no_use() -> None:
    for whole in (False, True):
        with pytest.raises(ValueError, match="x"), RunFolder.create("run", whole=whole) as run:
            run.write_recipe("family")
            raise ValueError("x")
        assert Path("run/recipe.toml").exists() != whole
        if not whole:
            assert main(["doctor", "run"]) == 2
            for path in Path("run").iterdir():
                path.unlink()
            Path("run").rmdir()
    assert not Path("run").exists()
