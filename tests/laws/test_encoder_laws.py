"""What must hold for encoder-only models: padding, batch, documents, order, heads."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import padded

from regard.models.build import build_encoder
from regard.models.config import EncoderConfig
from regard.models.encoder import TextEncoder
from regard.nn.config import NoPositionsConfig

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
few = settings(max_examples=5)  # of each kind of model
texts = st.lists(st.lists(st.integers(3, 19), min_size=1, max_size=8), min_size=1, max_size=4)


@few
@given(texts=texts, side=st.sampled_from(["left", "right"]), extra=st.integers(0, 2))
def test_a_text_alone_is_the_same_in_a_batch_padded_on_either_side(
    encoder: TextEncoder, texts: list[list[int]], side: str, extra: int
) -> None:
    ids, mask = padded(texts, side, extra)
    hidden = encoder(ids, mask)
    for row, text in enumerate(texts):
        expected = encoder(torch.tensor([text]))
        torch.testing.assert_close(hidden[row][mask[row]], expected[0], **CLOSE)
        for pooling in ("mean", "cls"):
            pooled = encoder.pool(hidden, mask, pooling)[row]
            torch.testing.assert_close(pooled, encoder.pool(expected, None, pooling)[0], **CLOSE)
        labels = encoder.classify(hidden, mask)[row]
        torch.testing.assert_close(labels, encoder.classify(expected)[0], **CLOSE)
        logits = encoder.predict(hidden)[row][mask[row]]
        torch.testing.assert_close(logits, encoder.predict(expected)[0], **CLOSE)


@few
@given(texts=texts)
def test_documents_packed_into_a_row_are_as_alone(
    encoder: TextEncoder, texts: list[list[int]]
) -> None:
    row = torch.tensor([[token for text in texts for token in text]])
    numbers = torch.tensor([[number for number, text in enumerate(texts) for _ in text]])
    expected = torch.cat([encoder(torch.tensor([text]))[0] for text in texts])
    torch.testing.assert_close(encoder(row, documents_bs=numbers)[0], expected, **CLOSE)


def test_every_token_sees_every_other(encoder: TextEncoder) -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    for place in range(4):
        hidden = encoder(ids)
        (gradient,) = torch.autograd.grad(hidden[0, place].pow(3).sum(), encoder.embedding.weight)
        assert (gradient[ids[0]] != 0).any(-1).all()


def test_without_positions_the_order_of_tokens_makes_no_difference() -> None:
    config = EncoderConfig(
        d_model=8, num_heads=2, d_ff=16, num_layers=2, positions=NoPositionsConfig()
    )
    model = build_encoder(config, vocabulary=20, seed=1).double().eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(ids[:, order]), model(ids)[:, order], **CLOSE)


def test_with_positions_it_does(encoder: TextEncoder) -> None:
    if isinstance(encoder.config.positions, NoPositionsConfig):
        return
    ids = torch.tensor([[5, 6, 7, 8]])
    order = torch.tensor([2, 0, 3, 1])
    assert not torch.allclose(encoder(ids[:, order]), encoder(ids)[:, order])


def test_in_eval_mode_nothing_is_random_and_in_training_dropout_is() -> None:
    config = EncoderConfig(d_model=8, num_heads=2, d_ff=16, num_layers=1, dropout=0.5)
    model = build_encoder(config, vocabulary=20, seed=1)
    ids = torch.tensor([[3, 4, 5]])
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))
