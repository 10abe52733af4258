"""What an encoder makes of texts: the same alone and in any batch, and as its own forward pass."""

from functools import cache
from typing import Any

import pytest
import torch
from decoding.tiny import LINES

from regard.decoding.encode import embed, label_shares, mask_shares
from regard.decoding.framing import framed_rows
from regard.errors import ModelError
from regard.models.config import EncoderConfig
from regard.models.encoder import TextEncoder
from regard.nn.config import LearnedConfig
from regard.text.config import VocabularyConfig
from regard.text.tokenizer import BOS_ID, EOS_ID, Tokenizer

TEXTS = [*LINES, "", " ", "Licht é 🙂"]


@cache
def vocabulary() -> Tokenizer:
    return Tokenizer.train(iter(LINES * 3), VocabularyConfig(size=330), mask=True)


@cache
def encoder(**config: Any) -> TextEncoder:
    torch.manual_seed(5)
    settings = EncoderConfig(
        d_model=16, num_heads=2, d_ff=32, num_layers=2, positions=LearnedConfig(max_positions=80),
        **config,
    )  # fmt: skip
    model = TextEncoder(settings, vocabulary=vocabulary().size, classes=3).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def rows(texts: list[str] = TEXTS, **options: Any) -> list[list[int]]:
    return framed_rows(vocabulary(), texts, longest=options.pop("longest", 80), **options)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_vector_is_that_of_the_text_alone(pooling: Any, normalize: bool) -> None:
    model = encoder()
    found = embed(model, rows(), pooling=pooling, normalize=normalize)
    for row, vector in zip(rows(), found, strict=True):
        with torch.no_grad():
            hidden = model(torch.tensor([row]))[0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[0]
        if normalize:
            expected = expected / expected.norm()
        torch.testing.assert_close(vector, expected, rtol=1e-10, atol=1e-12)
    for size in (1, 40):
        again = embed(model, rows()[::-1], pooling=pooling, normalize=normalize, batch_tokens=size)
        torch.testing.assert_close(again.flip(0), found, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("pooler", [True, False])
def test_shares_of_labels_are_those_of_the_text_alone(pooler: bool) -> None:
    model = encoder(pooler=pooler)
    found = label_shares(model, rows())
    assert len(found.argmax(1).unique()) > 1
    for row, shares in zip(rows(), found, strict=True):
        with torch.no_grad():
            expected = model.classify(model(torch.tensor([row])))[0].softmax(-1)
        torch.testing.assert_close(shares, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(label_shares(model, rows()[::-1], batch_tokens=9).flip(0), found)


def test_shares_at_masks_are_those_of_the_forward_pass() -> None:
    mask = vocabulary().mask_id
    assert mask is not None
    row = rows(["the door is open"])[0]
    row[2] = row[4] = mask
    found = mask_shares(encoder(), row, mask)
    with torch.no_grad():
        logits = encoder().predict(encoder()(torch.tensor([row])))[0, [2, 4]]
    torch.testing.assert_close(found, logits.softmax(-1), rtol=1e-9, atol=1e-12)


def test_nothing_gives_nothing() -> None:
    assert embed(encoder(), [], pooling="mean", normalize=True).shape == (0, 16)
    assert label_shares(encoder(), []).shape == (0, 3)


def test_a_text_is_framed_and_cut_at_its_end_and_the_line_is_named() -> None:
    said: list[str] = []
    whole = vocabulary().encode(LINES[6])
    found = rows(["a", LINES[6], ""], longest=7, first_line=11, warn=said.append)
    assert found[1] == [BOS_ID, *whole[:5], EOS_ID]
    assert found[2] == [BOS_ID, EOS_ID]
    assert said == [
        f"line 12: {len(whole) + 2} tokens is more than the 7 of data.max_tokens; the last "
        f"{len(whole) - 5} are left out"
    ]
    assert rows([LINES[6]], longest=len(whole) + 2) == [[BOS_ID, *whole, EOS_ID]]


def test_a_model_whose_output_is_not_a_number_is_refused() -> None:
    model = TextEncoder(encoder().config, vocabulary=vocabulary().size)
    with torch.no_grad():
        model.embedding.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not a number"):
        embed(model, rows(), pooling="mean", normalize=True)
