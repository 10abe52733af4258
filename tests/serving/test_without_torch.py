"""The engine's path from a run folder to a translation imports no PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from serving.tiny_families import make_encoder_run
from serving.tiny_runs import TEXT, make_run

import regard
from regard.engine import native
from regard.errors import RunFolderError
from regard.models.build import build_model
from regard.recipes.load import load_recipe
from regard.serving.place import Place
from regard.serving.quantize import quantize
from regard.weights.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not native.available(), reason="the engine is not built")

ASKED = """
import sys
{code}
print("torch" in sys.modules)
"""


def torch_is_imported(code: str) -> bool:
    """Whether torch is there after some code in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED.format(code=code)],
        capture_output=True,
        text=True,
        check=False,
        input="the light\n",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1] == "True"


@pytest.mark.parametrize("options", ["", "dtype='int8'", "engine='native', threads=1"])
def test_the_engine_translates_in_python_without_torch(run_path: Path, options: str) -> None:
    code = f"import regard\ntranslator = regard.load({str(run_path)!r}, device='cpu', {options})\n"
    code += "translator.translate(['the light', 'is on'], beam=2, coverage=0.1)\n"
    code += "translator.translations(['a', 'light'], alignments=True, attention=True)\n"
    code += "translator.score([('light', 'das Licht')])\ntranslator.judge([('light', 'das Licht')])"
    assert not torch_is_imported(code)


@pytest.mark.parametrize("more", [[], ["--engine", "native", "--n-best", "2"], ["--report", "{}"]])
def test_the_command_translates_without_torch(
    run_path: Path, more: list[str], tmp_path: Path
) -> None:
    arguments = ["translate", str(run_path), *(each.format(tmp_path / "r") for each in more)]
    code = f"from regard.cli import main\nassert main({arguments!r}) == 0"
    # Without --engine native the GPU that may be here has to be asked for.
    assert torch_is_imported(code) == (not Place("auto").check().on_cpu and "native" not in more)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An encoder's run, plain and packed."""
    folder = tmp_path_factory.mktemp("encoders")
    made = make_encoder_run(folder / "plain", changes=["model.pooler=true"])
    quantize(made, folder / "packed", "int8")
    return {"plain": made, "packed": folder / "packed"}


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_the_engine_encodes_without_torch(
    encoders: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    run = str(encoders[kind])
    code = f"import regard\nencoder = regard.load_encoder({run!r}, device='cpu')\n"
    code += "encoder.embed(['a', 'light']), encoder.classify('a'), encoder.fill('the [MASK]')"
    assert not torch_is_imported(code)
    for arguments in (
        ["embed", run, "--out", str(tmp_path / f"a{len(kind)}.npy"), "--engine=native"],
        ["embed", run, "--out", str(tmp_path / f"a{len(kind)}.jsonl"), "--engine=native"],
        ["classify", run, "--engine=native"],
        ["fill", run, "the [MASK] is", "--engine=native"],
    ):
        assert not torch_is_imported(
            f"from regard.cli import main\nassert main({arguments!r}) == 0"
        ), arguments
    load = f"import regard\nregard.load_encoder({run!r}, device='cpu'"
    assert kind == "packed" or torch_is_imported(load + ").model")
    assert kind == "packed" or torch_is_imported(load + ", engine='torch').embed('a')")


def test_a_run_is_packed_without_torch(run_path: Path, tmp_path: Path) -> None:
    arguments = ["quantize", str(run_path), "--out", str(tmp_path / "out")]
    assert not torch_is_imported(f"from regard.cli import main\nassert main({arguments!r}) == 0")


def test_what_needs_torch_imports_it(run_path: Path) -> None:
    load = f"import regard\nregard.load({str(run_path)!r}, device='cpu'"
    assert torch_is_imported(load + ").model")
    assert torch_is_imported(load + ", engine='torch')")


def test_every_kind_of_float_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    torch.manual_seed(3)
    made = make_run(tmp_path / "run")
    with RunFolder.open(made, write=True) as run:
        kinds = (torch.float64, torch.bfloat16, torch.float16, torch.float32)
        run.write_model(
            {
                name: tensor.to(kinds[place % len(kinds)])
                for place, (name, tensor) in enumerate(sorted(run.load_weights().items()))
            }
        )
    mine, its = (
        regard.load(made, device="cpu", engine=engine).translations(TEXT)
        for engine in ("native", "torch")
    )
    assert [each.tokens for each in mine] == [each.tokens for each in its]
    assert [each.score for each in mine] == pytest.approx([each.score for each in its], abs=1e-4)


def test_pytorch_takes_no_other_model_than_the_engine_has(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    translator = regard.load(made, device="cpu")
    before = translator.translate(TEXT)
    other = build_model(
        load_recipe(made).model,  # type: ignore[arg-type]
        source_vocabulary=translator.tokenizers.source.size,
        target_vocabulary=translator.tokenizers.target.size,
        seed=2,
    )
    with RunFolder.open(made, write=True) as run:
        run.write_model(other.state_dict())
    assert translator.translate(TEXT) == before
    with pytest.raises(RunFolderError, match="has another model since it was opened"):
        _ = translator.model
