"""An encoder in Python: vectors, labels, filled masks, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from serving.tiny_families import LABELS, LEARNED, ROTARY, make_encoder_run
from serving.tiny_runs import TEXT

import regard
from regard.decoding.encode import mask_shares
from regard.errors import DataError, ModelError, RecipeError, RegardError
from regard.serving.encoder import Encoder
from regard.text.tokenizer import BOS_ID, EOS_ID

LINES = ["the light", "", "das Licht ist an", " ", "Küche 🙂", "<mask> </s> [MASK]"]


@pytest.fixture(scope="module")
def encoder_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder_run(tmp_path_factory.mktemp("runs") / "bert")


@pytest.fixture(scope="module")
def encoder(encoder_run: Path) -> Encoder:
    return regard.load_encoder(encoder_run, device="cpu")


def hidden_of(encoder: Encoder, line: str) -> torch.Tensor:
    ids = [BOS_ID, *encoder.vocabulary.encode(line), EOS_ID]
    with torch.no_grad():
        return encoder.model(torch.tensor([ids]))


def test_vectors_are_the_models_mean_at_length_1(encoder: Encoder) -> None:
    vectors = encoder.embed(LINES)
    assert (vectors.shape, vectors.dtype) == ((len(LINES), 16), np.float32)
    for line, vector in zip(LINES, vectors, strict=True):
        mean = hidden_of(encoder, line)[0].mean(0)
        np.testing.assert_allclose(vector, (mean / mean.norm()).numpy(), atol=1e-5)
        np.testing.assert_allclose(encoder.embed(line), vector, atol=1e-5)
    first = encoder.embed(LINES, pooling="cls", normalize=False)
    np.testing.assert_allclose(first[0], hidden_of(encoder, LINES[0])[0, 0].numpy(), rtol=1e-4)
    assert encoder.embed([]).shape == (0, 16)


def test_the_recipe_says_how_to_embed(tmp_path: Path, encoder: Encoder) -> None:
    changes = ["embedding.pooling=cls", "embedding.normalize=false"]
    run = make_encoder_run(tmp_path / "run", changes=changes)
    found = regard.load_encoder(run, device="cpu").embed(LINES)
    np.testing.assert_array_equal(found, encoder.embed(LINES, pooling="cls", normalize=False))


def test_labels_are_the_likeliest_of_the_models_classes(encoder: Encoder) -> None:
    found = encoder.classify(LINES)
    assert encoder.labels == LABELS
    for line, label in zip(LINES, found, strict=True):
        with torch.no_grad():
            shares = encoder.model.classify(hidden_of(encoder, line))[0].double().softmax(-1)
        assert list(label.probabilities) == list(LABELS)
        assert list(label.probabilities.values()) == pytest.approx(shares.tolist(), abs=1e-5)
        assert label.name == LABELS[int(shares.argmax())]
        assert label.probability == label.probabilities[label.name]
    assert encoder.classify(LINES[0]).name == found[0].name


def test_a_mask_is_filled_as_one_token_of_the_text(encoder: Encoder) -> None:
    words = encoder.vocabulary.encode("the light is on")
    tokens = encoder.vocabulary.pieces(words)
    (place,) = [place for place, piece in enumerate(tokens) if piece == b" light"]
    assert encoder.vocabulary.mask_id is not None
    row = [BOS_ID, *words, EOS_ID]
    row[1 + place] = encoder.vocabulary.mask_id
    with torch.no_grad():
        logits = encoder.model.predict(encoder.model(torch.tensor([row])))[0, 1 + place]
    shares = logits.double().softmax(-1)
    shares[list(encoder.vocabulary.control_ids)] = 0.0
    [found] = encoder.fill("the [MASK] is on", top=7)
    assert [each.token for each in found] == shares.topk(7).indices.tolist()
    assert [each.probability for each in found] == pytest.approx(
        shares.topk(7).values.tolist(), rel=1e-4
    )


def test_every_filling_has_a_text_to_read(encoder: Encoder) -> None:
    [found] = encoder.fill("the [MASK]", top=10_000)
    texts = {each.token: each.text for each in found}
    assert len(texts) == encoder.vocabulary.size - 4
    [word] = encoder.vocabulary.encode("light")[-1:]
    assert texts[word] == encoder.vocabulary.decode([word])
    [space] = [token for token in texts if encoder.vocabulary.pieces([token]) == [b" "]]
    [half] = [token for token in texts if encoder.vocabulary.pieces([token]) == [b"\xe2"]]
    assert (texts[space], texts[half]) == ("▁", "\\xe2")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("[MASK] is on", [b"", b" is", b" on"]),
        ("is [MASK]", [b" is", b""]),
        ("is [MASK] [MASK] on.", [b" is", b"", b"", b" on", b"."]),
        ("is[MASK]on", [b" is", b"", b"on"]),
        ("[MASK]", [b""]),
    ],
)
def test_text_around_masks_is_cut_as_it_would_be_without(
    encoder_run: Path, monkeypatch: pytest.MonkeyPatch, text: str, pieces: list[bytes]
) -> None:
    encoder = regard.load_encoder(encoder_run, engine="torch", device="cpu")
    rows: list[list[int]] = []
    forward = encoder.model.forward
    monkeypatch.setattr(
        encoder.model, "forward", lambda ids: (rows.append(ids[0].tolist()), forward(ids))[1]
    )
    found = encoder.fill(text)
    assert len(found) == text.count("[MASK]")
    found_pieces = b"".join(encoder.vocabulary.pieces(rows[0]))
    assert found_pieces == b"".join(pieces)
    marks = [token for token in rows[0] if token == encoder.vocabulary.mask_id]
    assert len(marks) == len(found)


@pytest.mark.parametrize(
    "positions", [LEARNED, LEARNED.replace("24", "99"), ROTARY], ids=["as many", "more", "endless"]
)
def test_a_text_longer_than_in_training_is_cut_with_a_warning(
    tmp_path: Path, positions: str
) -> None:
    run = make_encoder_run(tmp_path / "run", positions=positions)
    encoder = regard.load_encoder(run, device="cpu")
    long, said = TEXT[3] * 2, list[str]()
    whole = encoder.vocabulary.encode(long)
    vectors = encoder.embed([long, "a"], first_line=5, warn=said.append)
    told = (
        f"{len(whole) + 2} tokens is more than the 24 of data.max_tokens; "
        f"the last {len(whole) - 22} are left out"
    )
    assert said == [f"line 5: {told}"]
    row = [BOS_ID, *whole[:22], EOS_ID]
    with torch.no_grad():
        hidden = encoder.model(torch.tensor([row]))
        shares = encoder.model.classify(hidden)[0].double().softmax(-1)
    mean = hidden[0].mean(0)
    np.testing.assert_allclose(vectors[0], (mean / mean.norm()).numpy(), atol=1e-5)
    label = encoder.classify(long, warn=said.append)
    assert list(label.probabilities.values()) == pytest.approx(shares.tolist(), abs=1e-5)
    assert encoder.vocabulary.mask_id is not None
    [filled] = encoder.fill(f"[MASK]{long}", warn=said.append)
    row[1:-1] = [encoder.vocabulary.mask_id, *encoder.vocabulary.encode_more(long)[:21]]
    [expected] = mask_shares(encoder.model, row, encoder.vocabulary.mask_id)
    assert filled[0].probability == pytest.approx(float(expected[filled[0].token]), abs=1e-6)
    assert said[1] == f"line 1: {told}"
    assert said[2].startswith("the text: ")
    assert said[2].partition(" is more than ")[2].startswith("the 24 of data.max_tokens; the last ")
    assert len(said) == 3


def refusal(error: type[RegardError], call: object, *given: object, **options: object) -> str:
    assert callable(call)
    with pytest.raises(error) as caught:
        call(*given, **options)
    return str(caught.value)


def test_refuses_what_a_run_cannot_do(tmp_path: Path, run_path: Path) -> None:
    changes = ["model.prediction_head=false"]
    run = make_encoder_run(tmp_path / "plain", changes=changes, labels=())
    plain = regard.load_encoder(run, device="cpu")
    assert refusal(ModelError, plain.classify, "a") == (
        f"{run}: the run tells no labels apart\n"
        f"  Make a classifier of it: regard finetune {run} --labels train.tsv"
    )
    assert refusal(ModelError, plain.fill, "a [MASK]") == (
        f"{run}: the model has no prediction head, so it cannot fill masks"
    )
    assert refusal(RecipeError, regard.load_encoder, run_path, device="cpu").startswith(
        f'{run_path}: this is of the family "seq2seq", and one of "encoder" is wanted\n'
    )
    assert refusal(RecipeError, regard.load_language_model, run).endswith(
        "regard.load_encoder in Python."
    )


def test_refuses_what_makes_no_sense(encoder: Encoder) -> None:
    assert refusal(DataError, encoder.fill, "the light") == (
        'text: there is no [MASK] in it\n  As in "The [MASK] is on."'
    )
    assert refusal(RegardError, encoder.fill, "[MASK]", top=0) == (
        "top: expected a whole number of at least 1, got 0"
    )
    assert refusal(ModelError, encoder.fill, f"{'x' * 60} [MASK]") == (
        "text: a [MASK] is behind the 24 tokens that data.max_tokens has room for\n"
        "  Leave out what is far from it."
    )
    assert refusal(DataError, encoder.embed, ["a", "\ud83d"]).startswith("lines[1]: character 0")
