"""Toy models for the tests of search: log-probabilities out of a table, and slow searches."""

import itertools
from typing import Any

import torch

from regard.decoding.config import DecodingConfig
from regard.decoding.hypothesis import Hypothesis, length_penalty
from regard.decoding.search import search
from regard.decoding.step import StepOutput
from regard.shapes import Float, Int, Tensor

BOS, EOS = 0, 1


class TableStep:
    """The next token depends on the sentence, the position and the token before.

    There is one table a sentence: position, token before, next token. Past its last position a
    table begins again. Counts its steps and the rows that it was asked about.
    """

    def __init__(
        self,
        tables_btvv: Float[Tensor, "b t v v"],
        attention_btvs: Float[Tensor, "b t v s"] | None = None,
    ) -> None:
        self.tables = tables_btvv
        self.attention = attention_btvs
        self.sentence_r = torch.arange(len(tables_btvv))
        self.rows_at: list[int] = []

    def advance(self, tokens_r: Int[Tensor, " r"]) -> StepOutput:
        place = len(self.rows_at) % self.tables.shape[1]
        self.rows_at.append(len(tokens_r))
        at = (self.sentence_r, place, tokens_r)
        attention_rs = None if self.attention is None else self.attention[at]
        return StepOutput(self.tables[at].clone(), attention_rs)

    def select(self, rows_r: Int[Tensor, " r"]) -> None:
        self.sentence_r = self.sentence_r[rows_r]


def random_tables(
    batch: int, positions: int, vocabulary: int, seed: int, *, scale: float = 1.5
) -> Float[Tensor, "b t v v"]:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, positions, vocabulary, vocabulary)
    return (scale * torch.randn(shape, generator=generator)).log_softmax(-1)


def run(
    tables_btvv: Float[Tensor, "b t v v"],
    max_tokens: int | list[int],
    *,
    step: TableStep | None = None,
    prefix: list[list[int]] | None = None,
    seeds: list[int] | None = None,
    **config: Any,
) -> list[list[Hypothesis]]:
    batch = len(tables_btvv)
    most = [max_tokens] * batch if isinstance(max_tokens, int) else max_tokens
    return search(
        TableStep(tables_btvv) if step is None else step,
        batch=batch,
        bos=BOS,
        eos=EOS,
        max_tokens_b=torch.tensor(most, dtype=torch.int64),
        config=DecodingConfig(**config),
        prefix=prefix,
        seeds=seeds,
    )


def brute_force(
    table_tvv: Float[Tensor, "t v v"], max_tokens: int, alpha: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Every sequence that ends within `max_tokens` tokens, with its score, the best first."""
    table = table_tvv.tolist()
    words = [token for token in range(len(table[0])) if token not in (BOS, EOS)]
    found = []
    for length in range(max_tokens + 1):
        for tokens in itertools.product(words, repeat=length):
            pairs = enumerate(itertools.pairwise((BOS, *tokens, EOS)))
            log_prob = sum(table[place % len(table)][old][new] for place, (old, new) in pairs)
            found.append((log_prob / length_penalty(length + 1, alpha), tokens))
    return sorted(found, reverse=True)


def plain_beam(
    table_tvv: Float[Tensor, "t v v"],
    *,
    beam: int,
    max_tokens: int,
    alpha: float,
    min_tokens: int = 0,
) -> list[tuple[float, tuple[int, ...]]]:
    """Beam search of one sentence that never stops before it must: all that ended, best first."""
    table = table_tvv.tolist()
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, (BOS,))]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for place in range(max_tokens + 1):
        candidates = [
            (total + value, (*tokens, token))
            for total, tokens in running
            for token, value in enumerate(table[place % len(table)][tokens[-1]])
            if token != BOS and not (token == EOS and place < min_tokens)
        ]
        best = sorted(candidates, reverse=True)[: beam - len(ended)]
        running = [(total, tokens) for total, tokens in best if tokens[-1] != EOS]
        ended += [
            (total / length_penalty(len(tokens) - 1, alpha), tokens[1:-1])
            for total, tokens in best
            if tokens[-1] == EOS
        ]
    return sorted(ended, reverse=True)
