"""Batches by tokens in an order that seed, epoch and position alone decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from regard.errors import ModelError
from regard.shapes import Int, Tensor
from regard.text.arrays import Corpus, Indices, Integers, Side
from regard.text.corpus import Tokenizers
from regard.text.pools import PooledBatches, key_of, pool_positions
from regard.text.shuffle import shuffled
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary

POOL_PAIRS = 1 << 18


@dataclass(frozen=True)
class Batch:
    """Some pairs of similar length, padded on the right with the padding id.

    `source_bs` has each source between the prefix and the suffix of its vocabulary (for one made
    here nothing and the end token). `target_in_bt` begins each target with the start token,
    `target_out_bt` ends it with the end token, so that one is the other moved by one. The lengths
    count the real positions of a row. `pairs_b` are indices into the corpus.
    """

    source_bs: Int[Tensor, "b s"]
    source_lengths_b: Int[Tensor, " b"]
    target_in_bt: Int[Tensor, "b t"]
    target_out_bt: Int[Tensor, "b t"]
    target_lengths_b: Int[Tensor, " b"]
    pairs_b: Int[Tensor, " b"]

    @property
    def target_tokens(self) -> int:
        """The number of target tokens to predict, end tokens counted, padding not."""
        return int(self.target_lengths_b.sum())


class Batches(PooledBatches[Indices, Batch]):
    """The batches of each epoch of a corpus.

    The pairs are shuffled (without a table of them all), taken in pools of about 260,000, sorted
    by length in the pool, cut so that neither side of a batch has more than `batch_tokens` tokens
    with its padding, and the batches of the pool shuffled. So the order is a pure function of
    seed, epoch and position, a run can go on in the middle of an epoch, and the memory it takes
    is that of a pool. A pair that is longer than `batch_tokens` is a batch of its own.

    Without weights every pair is seen once an epoch. With them an epoch is as many pairs as the
    corpus has, of each file a share in proportion to its weight times its size; a file is read
    through in shuffled passes that go on from one epoch to the next, so that all of its pairs
    are seen equally often, give or take one.

    With BPE-dropout the pairs are cut anew in each epoch. A batch is then planned for sentences
    that are longer by what nine in ten grow; a sentence that would not fit its batch, or is
    longer than the longest of the corpus, keeps its plain tokens.

    Args:
        corpus: the tokenised pairs.
        tokenizers: of the two sides: their control ids, and with BPE-dropout how they cut.
        batch_tokens: the most tokens on either side of a batch, padding and control ids counted.
        seed: of the order and of the dropout.
        bpe_dropout: the chance that a merge is skipped.
        weights: how often the pairs of each file are seen, relative to one another.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizers: Tokenizers,
        *,
        batch_tokens: int,
        seed: int,
        bpe_dropout: float = 0.0,
        weights: Sequence[float] = (),
    ) -> None:
        super().__init__(-(-len(corpus) // POOL_PAIRS))
        self._corpus = corpus
        self._vocabularies = tokenizers
        self._framing = (len(tokenizers.source.prefix) + len(tokenizers.source.suffix), 1)
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._dropout = bpe_dropout
        self._bounds, self._shares = _shares(corpus.file_bounds, weights)
        self._sides = (
            _DroppedSide(corpus.source, tokenizers.source, bpe_dropout) if bpe_dropout else None,
            _DroppedSide(corpus.target, tokenizers.target, bpe_dropout) if bpe_dropout else None,
        )

    def _places(self, plan: Indices) -> int:
        sides = zip((self._corpus.source, self._corpus.target), self._framing, strict=True)
        return len(plan) * sum(int(side.lengths(plan).max()) + more for side, more in sides)

    def _release(self) -> None:
        self._corpus.release()

    def _plan(self, epoch: int, pool: int) -> list[Indices]:
        """Return the pairs of each batch of a pool, in order."""
        size = len(self._corpus)
        positions = np.arange(*pool_positions(pool, self._pools, size))
        pairs = self._draw(epoch, positions)
        source, target = (
            _planned(data, dropped, pairs) + more
            for data, dropped, more in zip(
                (self._corpus.source, self._corpus.target), self._sides, self._framing, strict=True
            )
        )
        order = length_order(source, target)
        longest = np.maximum(source, target)[order]
        bounds = cut(longest.tolist(), self._batch_tokens)
        batches = np.split(pairs[order], bounds[1:-1])
        turn = shuffled(
            np.arange(len(batches)), len(batches), key_of(self._seed, "turn", epoch, pool)
        )
        return [batches[index] for index in turn.tolist()]

    def _draw(self, epoch: int, positions: Indices) -> Indices:
        """Return the pairs at these positions of an epoch."""
        total = len(self._corpus)
        slots = shuffled(positions, total, key_of(self._seed, "slots", epoch))
        pairs = np.empty_like(slots)
        starts = np.cumsum(self._shares) - self._shares
        group_of = np.searchsorted(starts + self._shares, slots, side="right")
        for group in np.unique(group_of).tolist():
            here = np.flatnonzero(group_of == group)
            low, high = self._bounds[group], self._bounds[group + 1]
            draws = slots[here] - starts[group] + epoch * self._shares[group]
            rounds, places = np.divmod(draws, high - low)
            for turn in np.unique(rounds).tolist():
                now = here[rounds == turn]
                key = key_of(self._seed, "pass", group, turn)
                pairs[now] = low + shuffled(places[rounds == turn], high - low, key)
        return pairs

    def _batch(self, plan: Indices, epoch: int, position: int) -> Batch:
        pairs = plan
        source_side, target_side = self._sides
        if source_side is None or target_side is None:
            source_ids, source_lengths = self._corpus.source.gather(pairs)
            target_ids, target_lengths = self._corpus.target.gather(pairs)
        else:
            generator = np.random.default_rng([self._seed, epoch, position])
            limit = self._batch_tokens // len(pairs)
            more = self._framing
            source_ids, source_lengths = source_side.gather(pairs, limit - more[0], generator)
            target_ids, target_lengths = target_side.gather(pairs, limit - more[1], generator)
        source, target = self._vocabularies.source, self._vocabularies.target
        source_bs = right_padded(
            source_ids, source_lengths, source.pad_id, source.prefix, source.suffix
        )
        # A row of the input is that of the output moved right by one, without its end token.
        target_in_bt = right_padded(
            target_ids, target_lengths, target.pad_id, (target.start_id,), ()
        )
        target_out_bt = right_padded(
            target_ids, target_lengths, target.pad_id, (), (target.eos_id,)
        )
        return Batch(
            source_bs=torch.from_numpy(source_bs),
            source_lengths_b=torch.from_numpy(source_lengths + self._framing[0]),
            target_in_bt=torch.from_numpy(target_in_bt),
            target_out_bt=torch.from_numpy(target_out_bt),
            target_lengths_b=torch.from_numpy(target_lengths + self._framing[1]),
            pairs_b=torch.from_numpy(pairs),
        )


def _shares(bounds: Sequence[int], weights: Sequence[float]) -> tuple[list[int], Indices]:
    """Return the bounds of the groups to draw from, and how many pairs an epoch draws of each."""
    total = bounds[-1]
    if not weights:
        return [0, total], np.array([total], dtype=np.int64)
    sizes = np.diff(bounds)
    parts = np.asarray(weights) * sizes
    parts = parts / parts.sum() * total
    shares = np.floor(parts).astype(np.int64)
    # The pairs that rounding lost go to the largest remainders.
    behind = np.argsort(shares - parts, kind="stable")[: total - int(shares.sum())]
    shares[behind] += 1
    return list(bounds), shares


def length_order(source: Indices, target: Indices) -> Indices:
    """Return an order of pairs in which neighbours are of similar length on both sides.

    The longer side decides, as it is what fills a batch; among equals, how much longer one side
    is than the other, up and down by turns, so that there is no jump from one length to the
    next. Pairs of equal lengths keep their order.
    """
    longer, difference = np.maximum(source, target), source - target
    return np.lexsort((np.where(longer % 2 == 0, difference, -difference), longer))


def cut(longest: Sequence[int], batch_tokens: int) -> list[int]:
    """Return the bounds of batches in a row of pairs, given the longer side of each pair."""
    bounds = [0]
    most = 0
    for index, length in enumerate(longest):
        most = max(most, length)
        if most * (index + 1 - bounds[-1]) > batch_tokens and index > bounds[-1]:
            bounds.append(index)
            most = length
    return [*bounds, len(longest)]


def _planned(side: Side, dropped: "_DroppedSide | None", pairs: Indices) -> Indices:
    """Return the length to plan for, without control ids."""
    lengths = side.lengths(pairs)
    return lengths if dropped is None else dropped.expected(lengths)


def right_padded(
    ids: Integers, lengths: Indices, pad: int, prefix: Sequence[int], suffix: Sequence[int]
) -> Indices:
    """Return rows of ids, each between the prefix and the suffix, padded on the right."""
    first, last = len(prefix), len(suffix)
    longest = int(lengths.max(initial=0))
    rows = np.full((len(lengths), first + longest + last), pad, dtype=np.int64)
    rows[:, :first] = prefix
    rows[:, first : first + longest][np.arange(longest) < lengths[:, None]] = ids
    ends = (first + lengths)[:, None] + np.arange(last)
    rows[np.arange(len(lengths))[:, None], ends] = suffix
    return rows


class _DroppedSide:
    """One side of the corpus, cut anew with BPE-dropout."""

    SAMPLE = 256

    def __init__(self, side: Side, tokenizer: Vocabulary, dropout: float) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise ModelError("BPE-dropout needs a BPE vocabulary made by regard")
        self._side = side
        self._tokenizer = tokenizer
        self._dropout = dropout
        count = len(side.offsets.array) - 1
        self._longest = max(
            int(side.lengths(np.arange(low, min(low + POOL_PAIRS, count))).max())
            for low in range(0, count, POOL_PAIRS)
        )
        sample = np.unique(np.linspace(0, count - 1, self.SAMPLE).astype(np.int64))
        generator = np.random.default_rng(0)
        plain = side.lengths(sample)
        grown = [len(self._cut(index, generator)) for index in sample.tolist()]
        self._growth = float(np.quantile(np.array(grown) / np.maximum(plain, 1), 0.9))

    def expected(self, lengths: Indices) -> Indices:
        """Return the length to plan for."""
        grown = np.ceil(lengths * self._growth).astype(np.int64)
        return cast(Indices, np.maximum(lengths, np.minimum(grown, self._longest)))

    def gather(
        self, pairs: Indices, limit: int, generator: np.random.Generator
    ) -> tuple[Integers, Indices]:
        """Return the ids of these sentences end to end, and the length of each.

        A sentence that would have more than `limit` ids is not dropped.
        """
        most = min(limit, self._longest)
        rows: list[Integers] = []
        for index in pairs.tolist():
            ids = self._cut(index, generator)
            rows.append(
                np.array(ids, dtype=np.int64) if len(ids) <= most else self._side.ids(index)
            )
        return np.concatenate(rows), np.array([len(row) for row in rows], dtype=np.int64)

    def _cut(self, index: int, generator: np.random.Generator) -> list[int]:
        text = self._tokenizer.decode(self._side.ids(index).tolist())
        return self._tokenizer.encode_with_dropout(text, self._dropout, generator)
