"""Translators as transformers has them say the same text in both, on the way in and out."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from weights.foreign.elsewhere import shuffled

import regard
from regard.recipes.bring import export_run, import_checkpoint

spm = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

PAIRS = Path(__file__).parents[2] / "golden" / "pairs.tsv"


def pairs() -> list[list[str]]:
    return [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()[:300]]


def pieces(lines: list[str]) -> bytes:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=120,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture
def opus(tmp_path: Path) -> Path:
    """A folder as those of OPUS-MT are: two models of pieces, one table of ids."""
    folder = tmp_path / "opus"
    folder.mkdir()
    names: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for side, lines in zip(("source", "target"), zip(*pairs(), strict=True), strict=True):
        model = pieces(list(lines))
        (folder / f"{side}.spm").write_bytes(model)
        processor = spm.SentencePieceProcessor(model_proto=model)
        for number in range(3, processor.get_piece_size()):
            names.setdefault(processor.id_to_piece(number), len(names))
    names["<pad>"] = len(names)
    (folder / "vocab.json").write_text(json.dumps(names))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer"})
    )
    pad = names["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(names),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=64,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        scale_embedding=True,
        activation_function="swish",
    )
    model: Any = shuffled(transformers.MarianMTModel(config))
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def theirs(folder: Path, lines: list[str]) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    ids = model.generate(**batch, num_beams=1, do_sample=False, max_new_tokens=20)
    return list(tokenizer.batch_decode(ids, skip_special_tokens=True))


def test_greedy_text_is_that_of_transformers_on_the_way_in_and_out(
    opus: Path, tmp_path: Path
) -> None:
    lines = [source for source, _ in pairs()[:12]]
    run, out = tmp_path / "run", tmp_path / "out"
    import_checkpoint(opus, run)
    translator = regard.load(run)
    found = translator.translate(lines, beam=1, max_tokens=19)  # and the end
    wanted = theirs(opus, lines)
    assert found == wanted
    export_run(run, out, "huggingface")
    assert theirs(out, lines) == wanted


@torch.no_grad()
def test_a_trained_translator_says_the_same_in_transformers(tmp_path: Path) -> None:
    run, out = PAIRS.parent / "run", tmp_path / "out"
    export_run(run, out, "huggingface")
    lines = [source for source, _ in pairs()[:30]]
    found = regard.load(run).translate(lines, beam=1)
    assert theirs(out, lines) == found
