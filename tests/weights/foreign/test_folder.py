"""What is damaged, hostile or unknown in a folder from elsewhere is refused, and named."""

import json
import os
from collections.abc import Callable
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


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_with_a_number_that_is_none_is_refused_by_name(value: float, folder: Path) -> None:
    weights = load_file(folder / SAFE)
    weights["transformer.h.1.ln_1.bias"][2] = value
    save_file(weights, folder / SAFE)
    said = "transformer.h.1.ln_1.bias has NaN or infinity among its numbers"
    assert said in refused(folder).problem


def test_a_weight_too_large_for_float32_is_refused_by_name(folder: Path) -> None:
    weights = {name: weight.double() for name, weight in load_file(folder / SAFE).items()}
    weights["transformer.h.0.mlp.c_fc.weight"][1, 1] = -1e39
    save_file(weights, folder / SAFE)
    said = "transformer.h.0.mlp.c_fc.weight has numbers that are too large for float32"
    assert said in refused(folder).problem


def test_sparse_weights_are_refused_by_name(folder: Path) -> None:
    weights = load_file(folder / SAFE)
    weights["transformer.wpe.weight"] = weights["transformer.wpe.weight"].to_sparse()
    error = refused(as_pickle(folder, weights), allow_pickle=True)
    assert "transformer.wpe.weight is sparse" in error.problem


def change(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


KEYS = ["n_embd", "n_layer", "n_head", "n_inner", "n_positions", "vocab_size"]
KEYS += ["resid_pdrop", "embd_pdrop", "attn_pdrop", "layer_norm_epsilon"]
KEYS += ["bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "num_beams"]


@pytest.mark.parametrize("value", [2**70, 10**400, -(2**70)])
@pytest.mark.parametrize("key", KEYS)
def test_a_number_of_absurd_size_is_refused_by_its_key(
    key: str, value: int, tmp_path: Path
) -> None:
    from weights.foreign.test_t5_and_bart import t5

    path = saved(t5() if key in ("num_beams", "decoder_start_token_id") else gpt2(), tmp_path)
    (path / "generation_config.json").unlink(missing_ok=True)
    change(path / "config.json", **{key: value})
    error = refused(path)
    assert error.problem.startswith(f"{key} = ")
    assert error.where == str(path / "config.json")


def test_sizes_that_only_together_are_absurd_are_refused(folder: Path) -> None:
    most = 2**31 - 2
    change(folder / "config.json", n_embd=most, vocab_size=most, n_inner=most, n_positions=most)
    assert refused(folder).problem.startswith("its sizes make no weights: ")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "pad_token_id"])
@pytest.mark.parametrize("value", ["1", 1.0, True, -1, 31, [1, "2"], [1, 31], {"a": 1}])
def test_a_control_id_that_is_none_is_refused_by_key_and_file(
    value: Any, key: str, file: str, folder: Path
) -> None:
    change(folder / file, **{key: value})
    error = refused(folder)
    assert error.problem.startswith(f"{key} = {json.dumps(value)} can't be honoured, wanted an id")
    assert error.where == str(folder / file)


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [pipe, Path.mkdir])
@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", SAFE, "tokenizer.json", "tokenizer_config.json"],
)
def test_what_is_no_file_is_not_opened(
    name: str, make: Callable[[Path], None], folder: Path
) -> None:
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    error = refused(folder)
    assert error.problem == "this is no file (a folder, a pipe or the like)"
    assert error.where == str(folder / name)


@pytest.mark.parametrize("make", [pipe, Path.mkdir])
def test_a_pickle_or_a_shard_that_is_no_file_is_not_opened(
    make: Callable[[Path], None], folder: Path
) -> None:
    as_shards(folder)
    (folder / "b.safetensors").unlink()
    make(folder / "b.safetensors")
    assert refused(folder).where == str(folder / "b.safetensors")
    (folder / f"{SAFE}.index.json").unlink()
    make(folder / "pytorch_model.bin")
    assert refused(folder, allow_pickle=True).where == str(folder / "pytorch_model.bin")


def test_a_table_of_other_things_than_names_is_refused(folder: Path) -> None:
    weights = load_file(folder / SAFE)
    as_pickle(folder, {**weights, 3: torch.zeros(2)})
    assert refused(folder, allow_pickle=True).problem == "wanted names of weights, found 3"
    torch.save({"state_dict": {("a", 1): torch.zeros(2)}}, folder / "pytorch_model.bin")
    assert "found ('a', 1)" in refused(folder, allow_pickle=True).problem


def test_an_error_without_words_has_some_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    as_pickle(folder, load_file(folder / SAFE))
    for kind in (pickle.UnpicklingError, EOFError):

        def fail(*_: Any, kind: type[Exception] = kind, **__: Any) -> None:
            raise kind

        monkeypatch.setattr(torch, "load", fail)
        problem = refused(folder, allow_pickle=True).problem
        assert "(it says no more)" in problem or "(EOFError)" in problem


def test_a_mark_of_the_encoding_is_passed_over(folder: Path) -> None:
    wanted = read(folder).config
    text = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + text)
    assert read(folder).config == wanted


@pytest.mark.parametrize("depth", [150, 900, 100_000])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_tables_nested_too_deep_are_refused(name: str, depth: int, folder: Path) -> None:
    (folder / name).write_text(
        '{"model_type": "gpt2", "model": {}, "deep": ' + "[" * depth + "]" * depth + "}"
    )
    error = refused(folder)
    assert "nested too deep" in error.problem or "recursion" in error.problem
    assert error.where == str(folder / name)


def test_what_changes_a_text_and_is_not_taken_over_is_told(folder: Path) -> None:
    path = folder / "generation_config.json"
    silent = {"temperature": 0.5, "bad_words_ids": [[0]], "forced_eos_token_id": 1, "min_length": 0}
    change(path, eos_token_id=1, pad_token_id=0, **silent)
    assert read(folder).notes == ()
    change(path, bad_words_ids=[[0], [5, 6]], suppress_tokens=[7], forced_bos_token_id=3)
    change(path, forced_eos_token_id=4, do_sample=True, top_p=0.9)
    assert read(folder).notes == (
        "forced_bos_token_id = 3 is not forced here: start a search with it by id",
        "left out of how it is generated from: bad_words_ids = [[0], [5, 6]], "
        "forced_eos_token_id = 4, suppress_tokens = [7], temperature = 0.5, top_p = 0.9",
    )
