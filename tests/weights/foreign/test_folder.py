"""What is damaged, hostile or unknown in a folder from elsewhere is refused, and named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from weights.foreign.elsewhere import saved
from weights.foreign.test_gpt2 import gpt2

from regard.errors import CheckpointError
from regard.weights.foreign.families import read
from regard.weights.tensors import read_tensors, tensor_chunks

SAFE = "model.safetensors"
Weights = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(gpt2(), tmp_path / "gpt2")


def refused(folder: Path, **options: Any) -> CheckpointError:
    with pytest.raises(CheckpointError) as found:
        read(folder, **options)
    return found.value


def as_pickle(folder: Path, values: Any) -> Path:
    torch.save(values, folder / "pytorch_model.bin")
    (folder / SAFE).unlink()
    return folder


def as_shards(folder: Path, names: tuple[str, str] = ("a.safetensors", "b.safetensors")) -> Weights:
    weights = load_file(folder / SAFE)
    (folder / SAFE).unlink()
    table = {name: names[number % 2] for number, name in enumerate(weights)}
    for file in set(names):
        if Path(file).name == file:
            save_file({n: w for n, w in weights.items() if table[n] == file}, folder / file)
    (folder / f"{SAFE}.index.json").write_text(json.dumps({"weight_map": table}))
    return weights


def test_every_weight_that_is_unknown_missing_or_misshapen_is_named_at_once(folder: Path) -> None:
    weights = load_file(folder / SAFE)
    del weights["transformer.h.1.ln_1.bias"], weights["transformer.wpe.weight"]
    weights["transformer.h.0.mlp.c_fc.weight"] = torch.zeros(8, 31)
    weights["transformer.h.0.ln_2.weight"] = torch.zeros(8, dtype=torch.int8)
    weights["transformer.h.7.extra"] = torch.zeros(2)
    save_file(weights, folder / SAFE)
    problem = refused(folder).problem
    for said in (
        "transformer.h.7.extra is unknown",
        "transformer.h.1.ln_1.bias (8,) is missing",
        "transformer.wpe.weight (32, 8) is missing",
        "transformer.h.0.mlp.c_fc.weight is (8, 31), wanted (8, 32)",
        "transformer.h.0.ln_2.weight is of int8, wanted floats",
    ):
        assert said in problem


def test_a_truncated_file_is_refused(folder: Path) -> None:
    data = (folder / SAFE).read_bytes()
    for size in (0, 7, 100, len(data) - 1):
        (folder / SAFE).write_bytes(data[:size])
        assert "not a whole safetensors file" in refused(folder).problem


def test_a_pickle_is_opened_only_when_allowed(folder: Path) -> None:
    wanted = read(folder).weights
    as_pickle(folder, load_file(folder / SAFE))
    error = refused(folder)
    assert error.problem == "this file is a pickle"
    assert "--allow-pickle" in error.hint
    found = read(folder, allow_pickle=True).weights
    assert all(torch.equal(found[name], weight) for name, weight in wanted.items())


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_a_pickle_that_would_run_code_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_pickle(folder, {"x": Evil()})
    assert "weights-only loader refuses it" in refused(folder, allow_pickle=True).problem
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("values", [[1], {"a": 1}, {}, {"epoch": 3, "x": torch.zeros(1)}])
def test_a_pickle_of_other_things_is_refused(folder: Path, values: Any) -> None:
    as_pickle(folder, values)
    assert "wanted a table of tensors, found" in refused(folder, allow_pickle=True).problem


def test_shards_are_put_together(folder: Path) -> None:
    wanted = read(folder).weights
    as_shards(folder)
    found = read(folder).weights
    assert all(torch.equal(found[name], weight) for name, weight in wanted.items())
    (folder / "b.safetensors").unlink()
    error = refused(folder)
    assert (error.problem, error.where) == ("the file is missing", str(folder / "b.safetensors"))


def test_no_shard_is_looked_for_elsewhere(folder: Path) -> None:
    as_shards(folder, ("../a.safetensors", "b.safetensors"))
    assert "'../a.safetensors' is no name of a weights file" in refused(folder).problem


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_come_in_as_float32_with_a_word(folder: Path, dtype: torch.dtype) -> None:
    weights = {name: weight.to(dtype) for name, weight in load_file(folder / SAFE).items()}
    save_file(weights, folder / SAFE)
    found = read(folder)
    assert {weight.dtype for weight in found.weights.values()} == {torch.float32}
    assert found.notes == (f"its {str(dtype)[6:]} weights are float32 here",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("[1]", "wanted a table, found list"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "config.json has no model_type, wanted one of bart, bert,"),
    ],
)
def test_a_bad_config_is_refused(folder: Path, text: str, said: str) -> None:
    (folder / "config.json").write_text(text)
    assert said in refused(folder).problem


def test_what_is_not_there_is_said(tmp_path: Path, folder: Path) -> None:
    assert refused(tmp_path / "nowhere").problem == "there is no such folder"
    (folder / SAFE).unlink()
    assert refused(folder).problem.startswith("the folder has no weights: wanted model.safetensors")
    (folder / "config.json").unlink()
    assert refused(folder).problem == "the folder has no config.json"


def test_names_of_a_compiled_model_are_read_and_never_written(folder: Path, tmp_path: Path) -> None:
    wanted = read(folder).weights
    weights = {f"_orig_mod.{name}": weight for name, weight in load_file(folder / SAFE).items()}
    save_file(weights, folder / SAFE)
    found = read(folder).weights
    assert all(torch.equal(found[name], weight) for name, weight in wanted.items())
    inner = torch.compile(nn.Linear(2, 3))
    model = torch.compile(nn.Sequential(inner))  # type: ignore[arg-type]
    path = tmp_path / "saved.safetensors"
    path.write_bytes(b"".join(tensor_chunks(model.state_dict())))  # type: ignore[union-attr]
    assert {*read_tensors(path)} == {"0.weight", "0.bias"}
