"""`regard import` and `regard export` as typed: what they print, write and refuse."""

import json
from pathlib import Path

import pytest
import transformers
from serving.test_generation_oracle import made, tokenizer
from weights.foreign.test_exchange import (
    BERTS,
    DECODERS,
    MARIAN,
    decoder_run,
    encoder_run,
    seq2seq_run,
)

from regard.cli import main


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    path = tmp_path / "llama"
    made("llama").save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def test_a_checkpoint_comes_in_is_used_and_goes_out_again(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["import", str(llama), "--out", str(run)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"read: LLaMA of {llama}"
    assert printed[1].startswith("now: decoder-only model of ")
    assert printed[2:] == [
        f"run folder: {run}",
        "next:",
        f"  regard generate {run} --prompt 'Once upon a time'",
        f"  regard info {run}",
    ]
    words = ["generate", str(run), "--prompt", "the light", "--max-tokens", "3"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("the light")
    assert main(["export", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: huggingface, from {run}\n"
    assert transformers.AutoModelForCausalLM.from_pretrained(out).config.model_type == "llama"
    assert main(["export", str(run), "--out", str(out)]) == 2
    assert "there is something of that name" in capsys.readouterr().err


def test_a_format_is_named_where_the_folder_does_not_say_it(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads((llama / "config.json").read_text())
    del values["model_type"]
    (llama / "config.json").write_text(json.dumps(values))
    words = ["import", str(llama), "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "Say which it is with --from." in capsys.readouterr().err
    assert main([*words, "--from", "lama"]) == 2
    assert "--from: there is no format 'lama', wanted one of" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*words, "--from", "llama"]) == 0


@pytest.mark.parametrize("family", ["seq2seq", "decoder"])
def test_a_run_goes_to_ctranslate2(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    run, out = tmp_path / "run", tmp_path / "out"
    if family == "seq2seq":
        seq2seq_run(run, MARIAN["as in the paper"])
    else:
        decoder_run(run, DECODERS["llama"])
    assert main(["export", str(run), "--out", str(out), "--format", "ctranslate2"]) == 0
    assert capsys.readouterr().out == f"{out}: ctranslate2, from {run}\n"
    names = {"model.bin", "config.json", "tokenizer.json"}
    assert names < {path.name for path in out.iterdir()}
    opened = ctranslate2.Translator if family == "seq2seq" else ctranslate2.Generator
    opened(str(out))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_encoder_for_ctranslate2_is_told_where_it_can_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder_run(tmp_path / "run", BERTS["masked"])
    words = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    assert main([*words, "--format", "ctranslate2"]) == 2
    assert "and this is an encoder\n  Use --format huggingface." in capsys.readouterr().err
