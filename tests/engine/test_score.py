"""Given targets score as PyTorch scores them, all places at once, with the bits of a search."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import (
    BOS,
    EOS,
    MOST,
    PAD,
    UNUSED,
    any_of_all,
    any_search,
    engine_of,
    engine_search,
    make_model,
    one_by_one,
)

from regard.engine import native
from regard.engine.engine import Engine, Scored
from regard.errors import ModelError
from regard.models.transformer import Transformer

NEVER = [PAD, BOS, UNUSED]


@dataclass(frozen=True)
class Pairs:
    """What is asked to be scored; each target ends with the end token."""

    sources: list[list[int]]
    targets: list[list[int]]

    def only(self, places: list[int]) -> "Pairs":
        return Pairs([self.sources[i] for i in places], [self.targets[i] for i in places])


def any_pairs(model: Transformer, seed: int, *, count: int = 7, longest: int = MOST) -> Pairs:
    draw = random.Random(seed)
    most = min(model.source_vocabulary, model.target_vocabulary)

    def ids(size: int) -> list[int]:
        return [*(draw.randrange(4, most) for _ in range(size - 1)), EOS]

    sizes = [size for size in (1, 2, 5, 9, 17, 30, longest) if size <= longest]
    return Pairs(
        [ids(draw.choice(sizes)) for _ in range(count)],
        [ids(draw.choice(sizes)) for _ in range(count)],
    )


def score(engine: Engine, pairs: Pairs, **options: Any) -> list[Scored]:
    return engine.score(pairs.sources, pairs.targets, bos=BOS, never=NEVER, **options)


@torch.inference_mode()
def by_torch(model: Transformer, source: list[int], target: list[int]) -> tuple[Any, Any]:
    """The log-probabilities of all tokens at every place, and where each place looked."""
    cache = model.start(model.encode(torch.tensor([source])))
    read = torch.tensor([[BOS, *target[:-1]]])
    hidden_1td, weights_1ts = model.step(read, cache, attention=True)
    assert weights_1ts is not None
    return model.project(hidden_1td)[0].log_softmax(-1), weights_1ts[0]


def assert_same(model: Transformer, pairs: Pairs, *, threads: int = 1) -> None:
    found = score(engine_of(model, threads=threads), pairs, best=True, attention=True)
    for mine, source, target in zip(found, pairs.sources, pairs.targets, strict=True):
        log_probs_tv, weights_ts = by_torch(model, source, target)
        wanted_t = log_probs_tv.gather(1, torch.tensor(target)[:, None])[:, 0]
        assert mine.log_probs == pytest.approx(wanted_t.tolist(), abs=1e-4)
        assert mine.log_prob == pytest.approx(float(wanted_t.sum()), abs=1e-4)
        allowed_tv = log_probs_tv.index_fill(1, torch.tensor(NEVER), -torch.inf)
        assert mine.best == tuple(allowed_tv.argmax(-1).tolist())
        np.testing.assert_allclose(mine.attention_ts, weights_ts, atol=1e-5)


@pytest.mark.parametrize("changes", one_by_one(), ids=str)
def test_every_part_of_a_model(changes: dict[str, Any]) -> None:
    model = make_model(changes)
    assert_same(model, any_pairs(model, 1))


@pytest.mark.parametrize("seed", range(20))
def test_any_parts_together(seed: int) -> None:
    model = make_model(any_of_all(seed), seed=seed)
    assert_same(model, any_pairs(model, seed, count=12), threads=1 + seed % 3)


def test_a_target_of_more_places_than_go_through_the_decoder_at_once() -> None:
    model = make_model({})
    assert_same(model, any_pairs(model, 5, count=3, longest=700), threads=2)


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_pair_has_the_same_bits_in_any_company(isa: str, dtype: Any) -> None:
    kernels = native.module().kernels
    before = kernels.active()
    kernels.use(isa)
    try:
        model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
        pairs = any_pairs(model, 3, count=64, longest=300)
        engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
        ask: dict[str, Any] = {"best": True, "attention": True}
        alone = [score(engine, pairs.only([place]), **ask)[0] for place in range(64)]
        assert alone == [score(wide, pairs.only([place]), **ask)[0] for place in range(64)]
        for seed in range(2):
            order = random.Random(seed).sample(range(64), 64 if seed else 20)
            for each in (engine, wide):
                found = score(each, pairs.only(order), **ask)
                assert found == [alone[place] for place in order]
                for mine, place in zip(found, order, strict=True):
                    assert np.array_equal(mine.attention_ts, alone[place].attention_ts)
    finally:
        kernels.use(before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("beam", [1, 4])
def test_what_a_search_found_scores_what_it_said_to_the_bit(dtype: Any, beam: int) -> None:
    model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
    asked = any_search(model, 2, sentences=40, beam=beam, n_best=beam)
    engine = engine_of(model, dtype=dtype)
    pairs = [
        (source, one)
        for source, some in zip(asked.sources, engine_search(engine, asked), strict=True)
        for one in some
    ]
    given = Pairs(
        [source for source, _ in pairs],
        [[*one.tokens, *([EOS] if one.finished else [])] for _, one in pairs],
    )
    assert [each.log_prob for each in score(engine, given)] == [one.log_prob for _, one in pairs]


def test_greedy_search_takes_the_likeliest_token_at_each_place() -> None:
    model = make_model({})
    asked = any_search(model, 4, sentences=30, beam=1)
    engine = engine_of(model)
    found = [some[0] for some in engine_search(engine, asked)]
    given = Pairs(asked.sources, [[*one.tokens, EOS] for one in found])
    for one, prefix, told in zip(
        found, asked.prefixes, score(engine, given, best=True), strict=True
    ):
        start, end = len(prefix), len(one.tokens) + one.finished
        assert told.best[start:end] == (*one.tokens, EOS)[start:end]


def test_nothing_has_no_score() -> None:
    engine = engine_of(make_model({}))
    assert engine.score([], [], bos=BOS) == []
    assert engine.score([[EOS]], [[]], bos=BOS, best=True) == [Scored(0.0, ())]
    assert engine.score([[]], [[5, EOS]], bos=BOS, attention=True)[0].log_prob < 0


@pytest.mark.parametrize(
    "changes",
    [{"sources": [[61]]}, {"targets": [[68]]}, {"targets": [[-1]]}, {"targets": []}, {"bos": 68}],
    ids=str,
)
def test_bad_requests_are_refused(changes: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"sources": [[4, 2]], "targets": [[5, 2]], "bos": BOS}
    engine = engine_of(make_model({}))
    assert engine.score(**asked)
    with pytest.raises(ModelError):
        engine.score(**(asked | changes))


def test_a_side_longer_than_the_positions_is_refused() -> None:
    engine = engine_of(make_model({"positions": {"kind": "learned", "max_positions": 8}}))
    assert engine.score([[4] * 8], [[4] * 8], bos=BOS)
    for source, target in ((9, 8), (8, 9)):
        with pytest.raises(ModelError, match="longer than the 8 learned positions"):
            engine.score([[4] * source], [[4] * target], bos=BOS)


def test_weights_that_are_no_numbers_are_told_from_a_score() -> None:
    model = make_model({})
    with torch.no_grad():
        model.decoder_layers[0].feed_forward_norm.weight[3] = torch.nan
    for threads, count in ((1, 1), (2, 200)):
        engine = engine_of(model, threads=threads)
        with pytest.raises(ModelError, match="not a number"):
            score(engine, any_pairs(model, 1, count=count))
