import json
import shutil
from pathlib import Path

import pytest
import torch

from regard.cli import main
from regard.recipes.load import load_recipe
from regard.recipes.run import train
from regard.serving.checkup import check_run
from regard.training.progress import SilentReporter
from regard.weights.run_folder import RunFolder

GOLDEN = Path(__file__).parents[1] / "golden" / "run"


@pytest.fixture(params=["seq2seq", "decoder", "encoder"])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    if request.param == "seq2seq":
        return Path(shutil.copytree(GOLDEN, tmp_path / "run"))
    (tmp_path / "text").write_text("the light is on\nthe door is shut\n" * 9, encoding="utf-8")
    name = "gpt-char" if request.param == "decoder" else "bert"
    small = ["model.d_model=16", "model.num_heads=2", "model.d_ff=16", "model.num_layers=1",
             "vocabulary.size=280", "training.max_steps=2", "training.checkpoint_every=1",
             "training.precision=float32", "training.batch_tokens=64",
             f'data.text=["{tmp_path / "text"}"]']  # fmt: skip
    train(load_recipe(name, small), tmp_path / "run", reporter=SilentReporter())
    return tmp_path / "run"


def test_a_run_as_it_was_written_is_good_in_all_its_parts(run: Path) -> None:
    found = check_run(run)
    assert not found.problems
    assert {"recipe.toml", "model.safetensors", "model"} <= found.looked.keys()
    assert all(line.endswith("good") for line in found.lines())


def test_the_doctor_looks_at_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(run)]) == 0
    assert capsys.readouterr().out == "\n".join(check_run(run).lines()) + "\n"
    assert main(["doctor", str(run), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out).values()) == {None}
    (run / "model.safetensors").write_bytes(b"")
    assert main(["doctor", str(run)]) == 2
    said = capsys.readouterr()
    assert "model.safetensors" in said.out
    assert "parts of the run is not good" in said.err


def test_every_damage_is_named_and_hides_no_other(run: Path) -> None:
    path = run / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    checkpoints = sorted((run / "checkpoints").glob("step-*/model.safetensors"))
    for checkpoint in checkpoints:
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    found = check_run(run)
    assert len(found.problems) == 1 + len(checkpoints)
    assert str(path) in found.looked["model.safetensors"]
    for checkpoint in checkpoints:
        assert any(str(checkpoint) in problem for problem in found.problems)


def test_weights_that_are_no_numbers_or_of_another_shape_are_named(run: Path) -> None:
    with RunFolder.open(run, write=True) as folder:
        weights = folder.load_weights()
        name = next(name for name in weights if name.endswith("self_attention.input.weight"))
        folder.write_model({**weights, name: torch.full_like(weights[name], torch.nan)})
        assert name in check_run(run).looked["model"]
        folder.write_model({**weights, name: weights[name][:-1]})
        assert f"{name} is" in check_run(run).looked["model"]
