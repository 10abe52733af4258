from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import batches as batches_module
from regard.text.batches import Batch, Batches, cut, length_order
from regard.text.config import DataConfig, VocabularyConfig
from regard.text.corpus import PreparedData, Tokenizers, prepare_corpus
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer

WORDS = ["light", "door", "lamp", "switch", "sensor", "window", "heater"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """300 pairs in two files (200 and 100), and lengths of all kinds."""
    folder = tmp_path_factory.mktemp("batches")
    random = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        length = int(random.geometric(0.12))
        source = " ".join(random.choice(WORDS, length))
        lines.append(f"{source}\t{source.upper()} {'x' * int(random.integers(1, 4))}\n")
    (folder / "1.tsv").write_text("".join(lines[:200]))
    (folder / "2.tsv").write_text("".join(lines[200:]))
    config = DataConfig(
        tsv=(str(folder / "1.tsv"), str(folder / "2.tsv")), valid_tsv=str(folder / "1.tsv")
    )
    return prepare_corpus(config, VocabularyConfig(size=290), folder, log=lambda _: None)


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "POOL_PAIRS", 64)


def make(data: PreparedData, **settings: object) -> Batches:
    settings = {"batch_tokens": 300, "seed": 1, **settings}
    return Batches(data.train, data.tokenizers, **settings)  # type: ignore[arg-type]


def pairs_of(batches: list[Batch]) -> list[list[int]]:
    return [batch.pairs_b.tolist() for batch in batches]


def flat(batches: list[Batch]) -> list[int]:
    return [pair for batch in batches for pair in batch.pairs_b.tolist()]


def same(one: Batch, other: Batch) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in Batch.__dataclass_fields__
    )


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_every_pair_is_seen_once_an_epoch(data: PreparedData, dropout: float) -> None:
    batches = make(data, bpe_dropout=dropout)
    for epoch in range(2):
        assert sorted(flat(list(batches.epoch(epoch)))) == list(range(300))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("batch_tokens", [1, 70, 300, 100_000])
def test_no_batch_is_larger_than_asked_unless_one_pair_alone_is(
    data: PreparedData, batch_tokens: int, dropout: float
) -> None:
    for batch in make(data, batch_tokens=batch_tokens, bpe_dropout=dropout).epoch(0):
        largest = max(batch.source_bs.numel(), batch.target_in_bt.numel())
        assert largest <= batch_tokens or len(batch.pairs_b) == 1


def test_a_batch_holds_its_pairs_with_control_tokens_and_padding(data: PreparedData) -> None:
    for batch in make(data).epoch(0):
        for row, pair in enumerate(batch.pairs_b.tolist()):
            source, target = data.train.source.ids(pair), data.train.target.ids(pair)
            size = len(source) + 1
            assert batch.source_bs[row].tolist() == [
                *source, EOS_ID, *[PAD_ID] * (batch.source_bs.shape[1] - size)
            ]  # fmt: skip
            assert batch.source_lengths_b[row] == size
            padding = [PAD_ID] * (batch.target_in_bt.shape[1] - len(target) - 1)
            assert batch.target_in_bt[row].tolist() == [BOS_ID, *target, *padding]
            assert batch.target_out_bt[row].tolist() == [*target, EOS_ID, *padding]
            assert batch.target_lengths_b[row] == len(target) + 1
        assert batch.target_tokens == int((batch.target_out_bt != PAD_ID).sum())
        assert batch.source_bs.shape[1] == int(batch.source_lengths_b.max())
        assert batch.target_in_bt.shape[1] == int(batch.target_lengths_b.max())


@pytest.mark.parametrize(
    "more", [{}, {"bpe_dropout": 0.2}, {"weights": (1.0, 5.0)}], ids=["plain", "dropout", "weights"]
)
def test_an_epoch_begun_in_the_middle_goes_on_as_if_never_stopped(
    data: PreparedData, more: dict[str, object]
) -> None:
    whole = list(make(data, **more).epoch(3))
    assert make(data, **more).count(3) == len(whole)
    for start in (0, 1, 7, len(whole) - 1, len(whole)):
        fresh = make(data, **more)
        if start % 2:
            fresh.count(3)
        rest = list(fresh.epoch(3, start))
        assert len(rest) == len(whole) - start
        assert all(map(same, rest, whole[start:]))


def test_other_epochs_and_seeds_have_other_orders(data: PreparedData) -> None:
    first = pairs_of(list(make(data).epoch(0)))
    assert pairs_of(list(make(data).epoch(1))) != first
    assert pairs_of(list(make(data, seed=2).epoch(0))) != first
    lengths = [len(batch) for batch in first]
    assert lengths != sorted(lengths) and lengths != sorted(lengths, reverse=True)


def test_batches_do_not_follow_the_order_of_the_corpus(data: PreparedData) -> None:
    order = flat(list(make(data).epoch(0)))
    assert abs(np.corrcoef(order, np.arange(300))[0, 1]) < 0.2


def test_one_pair_makes_a_batch_of_any_size(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("one\teins\n")
    config = DataConfig(tsv=(str(tmp_path / "one.tsv"),))
    data = prepare_corpus(config, VocabularyConfig(size=270), tmp_path / "d", log=lambda _: None)
    for more in ({}, {"bpe_dropout": 0.1}, {"weights": (2.0,)}):
        batches = make(data, batch_tokens=64, **more)
        assert [flat(list(batches.epoch(epoch))) for epoch in range(2)] == [[0], [0]]


def test_weights_of_one_show_every_pair_once(data: PreparedData) -> None:
    for epoch in range(3):
        assert sorted(flat(list(make(data, weights=(2.0, 2.0)).epoch(epoch)))) == list(range(300))


def test_weights_decide_the_share_of_each_file(data: PreparedData) -> None:
    batches = make(data, weights=(1.0, 6.0))
    seen = np.zeros(300, dtype=int)
    for epoch in range(4):
        pairs = flat(list(batches.epoch(epoch)))
        assert len(pairs) == 300
        assert sum(pair < 200 for pair in pairs) == 75
        np.add.at(seen, pairs, 1)
    # 4 epochs of 75 draws from 200 pairs, and of 225 from 100: all equally often, save one.
    assert set(seen[:200].tolist()) == {1, 2}
    assert set(seen[200:].tolist()) == {9}


def test_dropout_cuts_anew_each_epoch_and_keeps_the_text(data: PreparedData) -> None:
    batches = make(data, bpe_dropout=0.3)
    cuts: list[dict[int, list[int]]] = []
    for epoch in range(2):
        cuts.append({})
        for batch in batches.epoch(epoch):
            for row, pair in enumerate(batch.pairs_b.tolist()):
                ids = batch.source_bs[row, : batch.source_lengths_b[row] - 1].tolist()
                cuts[epoch][pair] = ids
                tokenizer = data.tokenizers.source
                assert tokenizer.decode(ids) == tokenizer.decode(
                    data.train.source.ids(pair).tolist()
                )
    changed = sum(cuts[0][pair] != cuts[1][pair] for pair in range(300))
    assert changed > 200
    longest = int(data.train.source.lengths(np.arange(300)).max())
    assert max(len(ids) for ids in cuts[0].values()) <= longest


def test_padding_is_little_where_there_are_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    source = random.gamma(2, 12, 20_000).astype(np.int64) + 1
    target = np.maximum(1, (source * random.normal(1.1, 0.15, 20_000)).astype(np.int64))
    order = length_order(source, target)
    bounds = cut(np.maximum(source, target)[order].tolist(), 4000)
    padded = sum(
        (int(source[order[low:high]].max()) + int(target[order[low:high]].max())) * (high - low)
        for low, high in pairwise(bounds)
    )
    assert padded < 1.08 * (source.sum() + target.sum())


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200))
@settings(deadline=None)
def test_cuts_are_full_and_cover_everything(longest: list[int], batch_tokens: int) -> None:
    bounds = cut(longest, batch_tokens)
    assert bounds[0] == 0
    assert bounds[-1] == len(longest)
    assert bounds == sorted(set(bounds))
    for low, high in pairwise(bounds):
        assert max(longest[low:high]) * (high - low) <= batch_tokens or high - low == 1
        if high < len(longest):
            assert max(longest[low : high + 1]) * (high + 1 - low) > batch_tokens


def test_only_a_few_batches_are_planned_ahead(
    data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = make(data)
    planned = []
    plan = batches._plan
    monkeypatch.setattr(
        batches, "_plan", lambda epoch, pool: planned.append(pool) or plan(epoch, pool)
    )
    list(islice(batches.epoch(0), 2))
    assert planned == [0]


def test_the_largest_batch_is_one_of_the_epoch_and_none_has_more_places(
    data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "POOL_PAIRS", 1000)
    batches = make(data)
    largest = batches.largest()
    places = [batch.source_bs.numel() + batch.target_out_bt.numel() for batch in batches.epoch(0)]
    assert largest.source_bs.numel() + largest.target_out_bt.numel() == max(places)
    assert any(same(largest, batch) for batch in batches.epoch(0))


def test_a_source_is_between_what_its_vocabulary_says(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{word}\t{word} x\n" for word in WORDS))
    vocabulary = Tokenizer.train(iter(WORDS), VocabularyConfig(size=280), mask=True)
    data = prepare_corpus(
        DataConfig(tsv=(str(path),), valid_tsv=str(path)),
        VocabularyConfig(),
        tmp_path,
        tokenizers=Tokenizers(vocabulary, vocabulary),
        log=lambda _: None,
    )
    seen = 0
    for batch in make(data, batch_tokens=20).epoch(0):
        assert batch.source_bs.numel() <= 20
        for row, pair in enumerate(batch.pairs_b.tolist()):
            source = data.train.source.ids(pair).tolist()
            assert batch.source_bs[row, : len(source) + 2].tolist() == [BOS_ID, *source, EOS_ID]
            assert batch.source_lengths_b[row] == len(source) + 2
            assert batch.target_in_bt[row, 0] == BOS_ID
            seen += 1
    assert seen == len(WORDS)
