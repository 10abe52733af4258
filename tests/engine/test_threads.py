"""Whatever threads do at once, answers are those of one: what `.ci/sanitize` watches for races.

Nothing here imports torch, which brings threads of its own.
"""

import gc
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from regard.engine import native
from regard.engine.engine import Dtype, Engine, Sampling
from regard.engine.language_model import LanguageModelEngine
from regard.engine.text_encoder import TextEncoderEngine
from regard.errors import ModelError
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig

VOCABULARY = 200
SIZES: dict[str, Any] = {"d_model": 128, "num_heads": 2, "d_ff": 192}
SEARCH: dict[str, Any] = {"bos": 1, "eos": 2, "never": [0, 1], "beam": 2}
kernels: Any = native.module().kernels


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    kernels.share("quicker")
    signal.signal(signal.SIGINT, former)


NONE = {"none": np.zeros(1, np.float32)}


def weights_of(make: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Random weights for what asks for each by its name and its shape in turn."""
    weights: dict[str, Any] = {}
    dice = np.random.default_rng(1)
    missing = re.compile(r"(?:there is no )?weight (\S+)(?: is .*, not ([0-9x ]+))?")
    while True:
        with pytest.raises(ModelError) as caught:
            make(weights | NONE)
        if str(caught.value) == "weight none is unknown":
            return weights
        told = missing.fullmatch(str(caught.value))
        assert told is not None, caught.value
        shape = [int(size) for size in told[2].split(" x ")] if told[2] else [1]
        weights[told[1]] = dice.normal(0.5 if "norm" in told[1] else 0, 0.3, shape).astype("f4")


def translator(threads: int, dtype: Dtype = "float32", *, damage: int | None = None) -> Engine:
    """With `damage`, one whose output for sources with this token is NaN."""
    config = TransformerConfig(**SIZES, encoder_layers=1, decoder_layers=1, tying="none")

    def make(weights: dict[str, Any]) -> Engine:
        sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY}
        return Engine(config, weights, **sizes, dtype=dtype, threads=threads)

    weights = weights_of(make)
    if damage is not None:
        weights["source_embedding.weight"][damage] = np.nan
    return make(weights)


def language_model(threads: int, dtype: Dtype = "int8") -> LanguageModelEngine:
    config = DecoderConfig(**SIZES, num_layers=1)

    def make(weights: dict[str, Any]) -> LanguageModelEngine:
        return LanguageModelEngine(
            config, weights, vocabulary=VOCABULARY, dtype=dtype, threads=threads
        )

    return make(weights_of(make))


def encoder(threads: int, dtype: Dtype = "float32") -> TextEncoderEngine:
    config = EncoderConfig(**SIZES, num_layers=1)

    def make(weights: dict[str, Any]) -> TextEncoderEngine:
        return TextEncoderEngine(
            config, weights, vocabulary=VOCABULARY, classes=3, dtype=dtype, threads=threads
        )

    return make(weights_of(make))


def texts(count: int, seed: int = 0, longest: int = 12) -> list[list[int]]:
    dice = np.random.default_rng(seed)
    return [dice.integers(3, VOCABULARY, dice.integers(1, longest)).tolist() for _ in range(count)]


def translations(engine: Engine, sources: list[list[int]], **more: Any) -> Any:
    asked: dict[str, Any] = {**SEARCH, "batch_tokens": 60, **more}
    return engine.translate(sources, max_tokens=[6] * len(sources), **asked)


def at_once(*work: Callable[[], None]) -> None:
    """Do all of these, each in a thread of Python's, and say what one of them raised."""
    raised: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            raised.append(error)

    workers = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_two_threads_answer_as_one_however_they_share(dtype: Dtype) -> None:
    sources, one, two = texts(9), translator(1, dtype), translator(2, dtype)
    sampling = Sampling(seeds=range(9))
    drawn = {"sampling": sampling, "beam": 1, "n_best": 2}
    alone = translations(one, sources), translations(one, sources, **drawn)
    targets = texts(9, seed=1)
    scored = one.score(sources, targets, bos=1, best=True, attention=True)
    for what in ("layers", "sentences", "quicker"):
        kernels.share(what)
        assert (translations(two, sources), translations(two, sources, **drawn)) == alone
        assert translations(two, sources, batch_tokens=4096) == alone[0]
        assert two.score(sources, targets, bos=1, best=True, attention=True) == scored


def test_threads_of_python_may_use_one_engine_at_once() -> None:
    engine, sources, targets = translator(2), texts(5), texts(5, seed=2)
    alone = translations(engine, sources)
    scored = engine.score(sources, targets, bos=1)

    def search() -> None:
        for _ in range(3):
            assert translations(engine, sources) == alone

    def score() -> None:
        for _ in range(3):
            assert engine.score(sources, targets, bos=1) == scored
            assert engine.bytes > engine.threads

    def longer() -> None:
        """What was prepared for short texts grows, while others use it."""
        for length in (40, 90):
            engine.score([[5] * length], [[6] * length], bos=1)

    at_once(search, score, search, longer)


def test_threads_of_python_may_read_with_one_language_model_at_once() -> None:
    engine = language_model(2)
    prompts = texts(3, seed=3)

    def read() -> bytes:
        begun, logits = engine.read(prompts)
        begun.select([0, 0, 2])
        told = [logits.tobytes()]
        for token in (5, 6, 7):
            told.append(begun.advance([0, 1, 2], [[token], [token + 1], [token]]).tobytes())
        return b"".join(told)

    alone = read()

    def check() -> None:
        for _ in range(3):
            assert read() == alone

    at_once(check, check, check)


def test_two_threads_of_python_may_even_go_on_with_the_same_texts() -> None:
    begun, _ = language_model(2).read(texts(4, seed=4))

    def go_on() -> None:
        for _ in range(5):
            begun.advance([0, 1], [[5], [6]])

    def choose() -> None:
        for _ in range(5):
            begun.select([0, 1, 1])

    at_once(go_on, choose, go_on)


def test_threads_of_python_may_use_one_encoder_at_once() -> None:
    engine, many = encoder(2), texts(150, seed=5)
    alone = engine.pool(many, "mean").tobytes(), engine.classify(many).tobytes()
    predicted = engine.predict(many[0], [0]).tobytes()

    def pool() -> None:
        assert engine.pool(many, "mean").tobytes() == alone[0]
        assert engine.pool([[7] * 200], "cls").shape == (1, 128)

    def classify() -> None:
        assert engine.classify(many).tobytes() == alone[1]
        assert engine.predict(many[0], [0]).tobytes() == predicted

    at_once(pool, classify, pool)


def test_engines_come_and_go_while_others_work() -> None:
    engine, sources = translator(2), texts(4)
    alone = translations(engine, sources)

    def use() -> None:
        for _ in range(4):
            assert translations(engine, sources) == alone

    def make() -> None:
        for _ in range(2):
            assert translations(translator(3), sources) == alone
            gc.collect()

    at_once(use, make)


@pytest.mark.parametrize("what", ["layers", "sentences"])
def test_what_one_thread_meets_is_raised_and_all_work_again(what: str) -> None:
    kernels.share(what)
    engine = translator(2, damage=7)
    good = [[8, 9], [10], [11, 12, 13]]
    before = translations(engine, good)
    for _ in range(3):
        with pytest.raises(ModelError, match="not a number"):
            translations(engine, [*good, [7], *good])
        assert translations(engine, good) == before


@pytest.mark.parametrize("what", ["layers", "sentences"])
def test_ctrl_c_stops_all_threads_and_they_work_again(what: str) -> None:
    kernels.share(what)
    engine = translator(2)
    before = translations(engine, texts(4))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        # Some minutes of work.
        engine.translate([[4] * 60] * 2000, max_tokens=[400] * 2000, min_tokens=400, **SEARCH)
    timer.join()
    assert translations(engine, texts(4)) == before


def forked(work: Callable[[], bool]) -> int:
    """How a forked process ends that does this: 0 if the answer is yes."""
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1]


def test_a_forked_process_does_the_work_of_threads_that_it_has_not() -> None:
    engine, prompts = language_model(2), texts(5)
    before = engine.read(prompts)[1].tobytes()
    held = [engine]

    def use_and_drop() -> bool:
        begun, logits = held[0].read(prompts)
        begun.advance([0, 1], [[5], [6]])
        del begun
        held.clear()
        gc.collect()
        return logits.tobytes() == before

    del engine
    assert forked(use_and_drop) == 0
    assert held[0].read(prompts)[1].tobytes() == before


@pytest.mark.skipif(
    hasattr(kernels, "loosen"), reason="a forked process that is watched can't start threads"
)
def test_a_forked_process_translates_and_drops_the_engine_and_so_does_its_parent() -> None:
    held, sources = [translator(2)], texts(5)
    before = translations(held[0], sources)

    def use_and_drop() -> bool:
        same = bool(translations(held[0], sources) == before)
        held.clear()
        gc.collect()
        return same

    assert forked(use_and_drop) == 0
    assert translations(held[0], sources) == before
