"""An encoder with more rows than its vocabulary has tokens: the rest is no text anywhere."""

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers
from weights.foreign.elsewhere import saved
from weights.foreign.test_bert import bert

import regard
from regard.recipes.bring import import_checkpoint
from regard.text.arrays import OneSideWriter, TextCorpus
from regard.text.config import MaskingConfig
from regard.text.masking import MaskedBatches

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "door", "is", "open"]
ROWS = 31


@pytest.fixture
def encoder(tmp_path: Path) -> regard.Encoder:
    path = saved(bert("ForMaskedLM", vocab_size=ROWS), tmp_path / "bert")
    pieces = {word: number for number, word in enumerate(WORDS)}
    library = tokenizers.Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    document = json.loads(library.to_str())
    (path / "tokenizer.json").write_text(json.dumps(document))
    import_checkpoint(path, tmp_path / "run")
    return regard.load_encoder(tmp_path / "run", device="cpu")


def test_what_is_shown_for_a_mask_is_a_token(encoder: regard.Encoder) -> None:
    assert encoder.vocabulary.size == ROWS
    (fillings,) = encoder.fill("the [MASK] is open", top=ROWS)
    assert {filling.token for filling in fillings} == {1, 5, 6, 7, 8}


def test_what_is_put_in_at_random_is_a_token(encoder: regard.Encoder, tmp_path: Path) -> None:
    writer = OneSideWriter(tmp_path, "train", 1 << 20)
    writer.extend([5] * 2000)
    writer.end(1)
    writer.close()
    corpus = TextCorpus(
        tmp_path, "train", dtype="uint32", files=["f"], file_texts=[1], fingerprint=""
    )
    masking = MaskingConfig(rate=0.5, masked=0.0, random=1.0)
    batches = MaskedBatches(
        corpus, encoder.vocabulary, masking, max_tokens=16, batch_tokens=256, seed=1
    )
    shown = torch.cat([batch.ids_bs.view(-1)[batch.places_n] for batch in batches.epoch(0)])
    assert {*shown.tolist()} == {1, 5, 6, 7, 8}
