"""Batches for an encoder that learns to fill in: some tokens of each row hidden, anew each time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch

from regard.counts import counted
from regard.errors import ModelError
from regard.shapes import Int, Tensor
from regard.text.arrays import Indices, TextCorpus
from regard.text.batches import cut, right_padded
from regard.text.config import MaskingConfig
from regard.text.pools import FIXED, PooledBatches, key_of, pool_positions
from regard.text.shuffle import shuffled
from regard.text.spans import Spans, Windows, ids_at
from regard.text.vocabulary import Vocabulary

POOL_WINDOWS = 1 << 16


@dataclass(frozen=True)
class MaskedBatch:
    """Some rows of text of similar length, padded on the right, with tokens to fill in.

    Each row is a window of a document between the prefix and the suffix of the vocabulary.
    `places_n` says where in `ids_bs`, counted through all rows, a token was chosen, and
    `targets_n` which. The lengths count the real positions of a row. `pairs_b` are indices into
    the corpus: the document of each row.
    """

    ids_bs: Int[Tensor, "b s"]
    lengths_b: Int[Tensor, " b"]
    places_n: Int[Tensor, " n"]
    targets_n: Int[Tensor, " n"]
    pairs_b: Int[Tensor, " b"]

    @property
    def target_tokens(self) -> int:
        """The number of tokens to fill in."""
        return len(self.targets_n)


class MaskedBatches(PooledBatches[Spans, MaskedBatch]):
    """The batches of each epoch of a corpus of documents, each token in one row an epoch.

    The windows are shuffled, taken in pools of about 65,000, sorted by length in the pool, cut
    into batches, and the batches shuffled. Order and masks are a pure function of seed, epoch
    and position.

    Args:
        corpus: the documents.
        vocabulary: of its ids.
        masking: which tokens to choose, and what to put in their place.
        max_tokens: the most tokens of a row, prefix and suffix counted.
        batch_tokens: the most tokens of a batch, padding counted, but at least a row.
        seed: of order, cuts and masks.

    Raises:
        ModelError: the vocabulary has no mask token, or a row has no place for text.
    """

    def __init__(
        self,
        corpus: TextCorpus,
        vocabulary: Vocabulary,
        masking: MaskingConfig,
        *,
        max_tokens: int,
        batch_tokens: int,
        seed: int,
    ) -> None:
        if vocabulary.mask_id is None:
            raise ModelError(
                "the vocabulary has no mask token, which filling in needs",
                hint="train an encoder's vocabulary, or take an encoder's checkpoint",
            )
        self._framing = len(vocabulary.prefix) + len(vocabulary.suffix)
        if max_tokens <= self._framing:
            raise ModelError(
                f"max_tokens = {max_tokens} leaves no place for text beside "
                f"{counted(self._framing, 'control token')}"
            )
        self._windows = Windows(corpus, max_tokens - self._framing, more=0, seed=seed)
        super().__init__(-(-len(self._windows) // POOL_WINDOWS))
        self._corpus = corpus
        self._vocabulary = vocabulary
        self._mask = vocabulary.mask_id
        self._masking = masking
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._is_text = np.ones(vocabulary.size, dtype=np.bool_)
        self._is_text[list(vocabulary.control_ids)] = False
        self._text_ids = np.flatnonzero(self._is_text)

    def fixed(self) -> Iterator[MaskedBatch]:
        """Yield batches to measure on: each window once, cut and masked the same every time."""
        return self.epoch(FIXED)

    def _plan(self, epoch: int, pool: int) -> list[Spans]:
        size = len(self._windows)
        slots = np.arange(*pool_positions(pool, self._pools, size))
        if epoch != FIXED:
            slots = shuffled(slots, size, key_of(self._seed, "windows", epoch))
        spans = self._windows.spans(slots, epoch)
        spans = spans.take(np.argsort(spans.lengths, kind="stable"))
        bounds = cut((spans.lengths + self._framing).tolist(), self._batch_tokens)
        turn = np.arange(len(bounds) - 1)
        if epoch != FIXED:
            turn = shuffled(turn, len(turn), key_of(self._seed, "turn", epoch, pool))
        return [spans.take(np.arange(bounds[at], bounds[at + 1])) for at in turn.tolist()]

    def _places(self, plan: Spans) -> int:
        return len(plan) * (int(plan.lengths.max()) + self._framing)

    def _release(self) -> None:
        self._corpus.release()

    def _batch(self, plan: Spans, epoch: int, position: int) -> MaskedBatch:
        generator = np.random.default_rng(key_of(self._seed, "masks", epoch, position))
        vocabulary = self._vocabulary
        row, place = plan.flat()
        ids = ids_at(self._corpus, plan.documents[row], place)
        chosen = np.flatnonzero(self._choose(ids, plan.lengths, generator))
        prefix, suffix = vocabulary.prefix, vocabulary.suffix
        hidden = ids.copy()
        hidden[chosen] = self._hide(ids[chosen], generator)
        rows = right_padded(hidden, plan.lengths, vocabulary.pad_id, prefix, suffix)
        first = np.cumsum(plan.lengths) - plan.lengths
        column = len(prefix) + np.arange(len(ids)) - first[row]
        return MaskedBatch(
            ids_bs=torch.from_numpy(rows),
            lengths_b=torch.from_numpy(plan.lengths + self._framing),
            places_n=torch.from_numpy(row[chosen] * rows.shape[1] + column[chosen]),
            targets_n=torch.from_numpy(ids[chosen]),
            pairs_b=torch.from_numpy(plan.documents),
        )

    def _choose(
        self, ids: Indices, lengths: Indices, generator: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Choose tokens by chance; of a row by which none would be, the one next to it."""
        chance = np.where(self._is_text[ids], generator.random(len(ids)), 2.0)
        least = np.minimum.reduceat(chance, np.cumsum(lengths) - lengths)
        closest = chance == np.repeat(least, lengths)
        return cast(npt.NDArray[np.bool_], (chance < self._masking.rate) | closest & (chance < 1))

    def _hide(self, ids: Indices, generator: np.random.Generator) -> Indices:
        """Return what stands in the place of chosen tokens."""
        lot = generator.random(len(ids))
        random = self._text_ids[generator.integers(len(self._text_ids), size=len(ids))]
        masked, drawn = self._masking.masked, self._masking.masked + self._masking.random
        return np.where(lot < masked, self._mask, np.where(lot < drawn, random, ids))
