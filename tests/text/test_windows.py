from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.text import masking as masking_module
from regard.text import windows as windows_module
from regard.text.arrays import OneSideWriter, TextCorpus
from regard.text.config import MaskingConfig, VocabularyConfig
from regard.text.masking import MaskedBatch, MaskedBatches
from regard.text.spans import packed
from regard.text.tokenizer import Tokenizer
from regard.text.windows import TextBatch, WindowBatches

LENGTHS = [1, 0, 3, 40, 7, 8, 2, 100, 5, 5, 1, 9, 16, 17, 15] * 7
PAD, START, END, MASK = 0, 1, 2, 3


@cache
def vocabulary(mask: bool) -> Tokenizer:
    return Tokenizer.train(iter("abcdefgh"), VocabularyConfig(kind="char", size=400), mask=mask)


def make_corpus(folder: Path, lengths: list[int]) -> TextCorpus:
    """Documents in which no two tokens are alike, as far as ids go."""
    writer = OneSideWriter(folder, "train", 1 << 20)
    number = 4
    for line, length in enumerate(lengths, start=1):
        writer.extend(range(number, number + length))
        writer.end(line)
        number += length
    writer.close()
    return TextCorpus(
        folder, "train", dtype="uint32", files=["f"], file_texts=[len(lengths)], fingerprint=""
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TextCorpus:
    return make_corpus(tmp_path_factory.mktemp("windows"), LENGTHS)


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "POOL_WINDOWS", 50)
    monkeypatch.setattr(masking_module, "POOL_WINDOWS", 50)


def windows(corpus: TextCorpus, **settings: int) -> WindowBatches:
    settings = {"max_tokens": 16, "batch_tokens": 64, "seed": 1, **settings}
    return WindowBatches(corpus, vocabulary(False), **settings)


class BigVocabulary:
    """A vocabulary of as many ids as the corpus has, for an encoder."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(vocabulary(True), name)


def masked(corpus: TextCorpus, **settings: Any) -> MaskedBatches:
    masking = MaskingConfig(**settings.pop("masking", {}))
    settings = {"max_tokens": 16, "batch_tokens": 64, "seed": 1, **settings}
    return MaskedBatches(corpus, BigVocabulary(4 + sum(LENGTHS)), masking, **settings)


def same(one: Any, other: Any) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in type(one).__dataclass_fields__]
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)


def transitions(batches: list[TextBatch]) -> list[tuple[int, int]]:
    """What follows what, over all places of all rows."""
    return [
        pair
        for batch in batches
        for pair in zip(
            batch.ids_in_bt[batch.mask_bt].tolist(),
            batch.ids_out_bt[batch.mask_bt].tolist(),
            strict=True,
        )
    ]


def wanted(lengths: list[int]) -> list[tuple[int, int]]:
    pairs = []
    number = 4
    for length in lengths:
        stream = [START, *range(number, number + length), END]
        pairs += list(pairwise(stream))
        number += length
    return sorted(pairs)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=60).filter(any),
    st.integers(2, 20),
    st.integers(1, 90),
    st.integers(-1, 3),
)
def test_every_token_is_a_target_once_an_epoch(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    max_tokens: int,
    batch_tokens: int,
    epoch: int,
) -> None:
    corpus = make_corpus(tmp_path_factory.mktemp("any"), lengths)
    batches = windows(corpus, max_tokens=max_tokens, batch_tokens=batch_tokens)
    made = list(batches.epoch(epoch))
    assert sorted(transitions(made)) == wanted(lengths)
    assert batches.count(epoch) == len(made)
    assert sum(batch.target_tokens for batch in made) == sum(lengths) + len(lengths)
    for batch in made:
        rows, width = batch.ids_in_bt.shape
        assert width <= max_tokens
        assert rows == 1 or rows * max_tokens <= batch_tokens


def test_documents_are_never_mixed_without_their_numbers(corpus: TextCorpus) -> None:
    document_of = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    packed_rows = 0
    for batch in windows(corpus).epoch(0):
        for row in range(len(batch.pairs_b)):
            inside = batch.mask_bt[row]
            ids = batch.ids_in_bt[row, inside].tolist()
            outs = batch.ids_out_bt[row, inside].tolist()
            numbers = [0] * len(ids)
            if batch.documents_bt is not None:
                numbers = batch.documents_bt[row, inside].tolist()
                assert (batch.documents_bt[row, ~inside] == -1).all()
            for number in range(max(numbers) + 1):
                places = [place for place, other in enumerate(numbers) if other == number]
                assert places == list(range(places[0], places[-1] + 1))
                held = {ids[place] for place in places} | {outs[place] for place in places}
                documents = {int(document_of[token - 4]) for token in held - {START, END}}
                assert len(documents) <= 1
                if number == 0 and documents:
                    assert documents == {int(batch.pairs_b[row])}
                assert START not in [ids[place] for place in places[1:]]
            packed_rows += max(numbers) > 0
            assert (batch.ids_in_bt[row, ~inside] == PAD).all()
    assert packed_rows > 5


def test_rows_are_full_but_for_what_no_document_fits_into(corpus: TextCorpus) -> None:
    batches = list(windows(corpus).epoch(0))
    assert sum(batch.target_tokens for batch in batches) > 0.95 * 16 * sum(
        len(batch.pairs_b) for batch in batches
    )


def test_rows_of_one_document_each_need_no_numbers(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [15] * 20)
    assert all(batch.documents_bt is None for batch in windows(corpus).epoch(0))


@pytest.mark.parametrize("make", [windows, masked])
def test_an_epoch_begun_in_the_middle_goes_on_as_if_never_stopped(
    corpus: TextCorpus, make: Any
) -> None:
    whole = list(make(corpus).epoch(1))
    assert len(whole) > 12
    for start in (0, 1, 7, len(whole) - 1, len(whole)):
        fresh = make(corpus)
        if start == 7:
            fresh.count(1)
        rest = list(fresh.epoch(1, start))
        assert len(rest) == len(whole) - start
        assert all(map(same, rest, whole[start:]))


@pytest.mark.parametrize("make", [windows, masked])
def test_order_and_cuts_differ_from_epoch_to_epoch_and_seed_to_seed(
    corpus: TextCorpus, make: Any
) -> None:
    first = list(make(corpus).epoch(0))
    assert all(map(same, first, make(corpus).epoch(0)))
    assert not all(map(same, first, make(corpus).epoch(1)))
    assert not all(map(same, first, make(corpus, seed=2).epoch(0)))


@pytest.mark.parametrize("make", [windows, masked])
def test_the_largest_batch_has_the_most_places(corpus: TextCorpus, make: Any) -> None:
    def places(batch: TextBatch | MaskedBatch) -> int:
        return (batch.ids_in_bt if isinstance(batch, TextBatch) else batch.ids_bs).numel()

    batches = make(corpus)
    first_pool = list(batches.epoch(0))[: len(batches._plan(0, 0))]
    assert places(batches.largest()) == max(map(places, first_pool))


def test_what_is_measured_on_is_cut_at_full_windows_in_order(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [40])
    [batch] = windows(corpus).fixed()
    lengths = batch.mask_bt.sum(1).tolist()
    assert lengths == [16, 16, 9]
    assert batch.ids_in_bt[:, 0].tolist() == [START, 4 + 15, 4 + 31]
    assert all(map(same, windows(corpus).fixed(), windows(corpus, seed=9).fixed()))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=80))
def test_packing_fills_rows_and_loses_nothing(lengths: list[int]) -> None:
    rows = packed(np.array(lengths), 12)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    sums = [sum(lengths[index] for index in row) for row in rows]
    assert max(sums) <= 12
    # No two rows would fit into one.
    assert sorted(sums)[:2] == sums or sum(sorted(sums)[:2]) > 12 or len(sums) == 1


def restored(batch: MaskedBatch) -> torch.Tensor:
    ids_bs = batch.ids_bs.clone()
    ids_bs.view(-1)[batch.places_n] = batch.targets_n
    return ids_bs


def test_every_token_is_in_one_masked_row_an_epoch(corpus: TextCorpus) -> None:
    for epoch in (-1, 0, 1):
        seen = []
        for batch in masked(corpus).epoch(epoch):
            ids_bs = restored(batch)
            assert ids_bs.numel() <= 64 or len(ids_bs) == 1
            for row, length in enumerate(batch.lengths_b.tolist()):
                ids = ids_bs[row].tolist()
                assert ids[0] == START
                assert ids[length - 1 :] == [END] + [PAD] * (len(ids) - length)
                seen += ids[1 : length - 1]
        assert sorted(seen) == list(range(4, 4 + sum(LENGTHS)))


def test_every_row_has_a_masked_token_and_no_control_token_is_masked(corpus: TextCorpus) -> None:
    for batch in masked(corpus, masking={"rate": 0.01}).epoch(0):
        assert set((batch.places_n // batch.ids_bs.shape[1]).tolist()) == set(
            range(len(batch.ids_bs))
        )
        assert not {PAD, START, END, MASK} & set(batch.targets_n.tolist())
        assert len(set(batch.places_n.tolist())) == batch.target_tokens


def test_the_shares_of_masks_are_those_of_the_config(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [400] * 50)
    vocabulary = BigVocabulary(4 + 400 * 50)
    masking = MaskingConfig(rate=0.2, masked=0.6, random=0.3)
    made = list(
        MaskedBatches(corpus, vocabulary, masking, max_tokens=402, batch_tokens=4020, seed=3).epoch(
            0
        )
    )
    chosen = sum(batch.target_tokens for batch in made)
    assert chosen / 20_000 == pytest.approx(0.2, abs=0.01)
    shown = torch.cat([batch.ids_bs.view(-1)[batch.places_n] for batch in made])
    targets = torch.cat([batch.targets_n for batch in made])
    assert (shown == MASK).float().mean().item() == pytest.approx(0.6, abs=0.03)
    assert (shown == targets).float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert not {PAD, START, END} & set(shown.tolist())


def test_validation_masks_are_always_the_same(corpus: TextCorpus) -> None:
    batches = masked(corpus)
    first = list(batches.fixed())
    list(batches.epoch(3))
    assert all(map(same, first, batches.fixed()))
    assert sum(batch.target_tokens for batch in first) >= len(first)


def test_a_vocabulary_without_a_mask_is_refused(corpus: TextCorpus) -> None:
    with pytest.raises(ModelError) as caught:
        MaskedBatches(
            corpus, vocabulary(False), MaskingConfig(), max_tokens=9, batch_tokens=9, seed=0
        )
    assert str(caught.value) == (
        "the vocabulary has no mask token, which filling in needs\n"
        "  train an encoder's vocabulary, or take an encoder's checkpoint"
    )
    with pytest.raises(ModelError) as caught:
        masked(corpus, max_tokens=2)
    assert str(caught.value) == "max_tokens = 2 leaves no place for text beside 2 control tokens"
