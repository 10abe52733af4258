"""Beam search with length and coverage penalties, and an exact rule for when to stop."""

from dataclasses import dataclass

import torch

from regard.decoding.constraints import Constraints, check_finite
from regard.decoding.hypothesis import Hypothesis, length_penalty
from regard.decoding.rows import Rows
from regard.decoding.step import Step
from regard.shapes import Bool, Float, Int, Tensor


@dataclass
class _Sentences:
    """What is known of the sentences that still run, one an entry.

    `number_a` is the sentence's place in the batch, `places_a` how many hypotheses may still
    run, `best_an` the scores of the best that ended, `longest_penalty_a` the length penalty of
    the longest hypothesis that can end.
    """

    number_a: Int[Tensor, " a"]
    max_tokens_a: Int[Tensor, " a"]
    places_a: Int[Tensor, " a"]
    best_an: Float[Tensor, "a n"]
    longest_penalty_a: Float[Tensor, " a"]

    def keep(self, kept_a: Bool[Tensor, " a"]) -> None:
        self.number_a = self.number_a[kept_a]
        self.max_tokens_a = self.max_tokens_a[kept_a]
        self.places_a = self.places_a[kept_a]
        self.best_an = self.best_an[kept_a]
        self.longest_penalty_a = self.longest_penalty_a[kept_a]


def beam_search(
    step: Step,
    rows: Rows,
    *,
    beam: int,
    n_best: int,
    alpha: float,
    bos: int,
    eos: int,
    max_tokens_b: Int[Tensor, " b"],
    min_tokens: int,
    constraints: Constraints,
) -> list[list[Hypothesis]]:
    """Search with `beam` hypotheses a sentence; the `n_best` of each, the best first.

    At every step the best `beam` continuations live on, by log-probability. One that ends keeps
    its place in the beam, which so grows narrower; the search of a sentence is over when no
    place is left, or when no running hypothesis can still come before the `n_best`th that
    ended: log-probabilities only fall, the length penalty is bounded by the lengths that can
    still be reached, and the coverage penalty is at most 0. So what is found is what would be
    found without stopping early.

    Hypotheses that were cut (see `Hypothesis.finished`) come after all that ended.

    Args:
        rows: one row a sentence.
        min_tokens: the least tokens of a hypothesis, which `constraints` sees to.

    Raises:
        ModelError: a log-probability is NaN.
    """
    device = max_tokens_b.device
    batch = len(max_tokens_b)
    found: list[list[Hypothesis]] = [[] for _ in range(batch)]
    sentences = _Sentences(
        number_a=torch.arange(batch, device=device),
        max_tokens_a=max_tokens_b,
        places_a=torch.full((batch,), beam, device=device),
        best_an=torch.full((batch, n_best), -torch.inf, dtype=torch.float64, device=device),
        longest_penalty_a=torch.tensor(
            [length_penalty(most + 1, alpha) for most in max_tokens_b.tolist()],
            dtype=torch.float64,
            device=device,
        ),
    )
    # The running sentence of a row, as a place in `sentences`; rows of a sentence are adjacent.
    place_r = sentences.number_a
    last_r = torch.full((batch,), bos, device=device)
    while len(place_r):
        length = rows.length
        output = step.advance(last_r)
        rows.look(output)
        constraints.apply(output.log_probs_rv, rows.tokens_rt, rows.sentence_r)
        values_rk, ids_rk = output.log_probs_rv.topk(min(beam, output.log_probs_rv.shape[1]))
        check_finite(values_rk[:, 0])

        total_ac, row_ac, token_ac = _candidates(rows, values_rk, ids_rk, place_r, sentences, beam)
        alive_ac = total_ac > -torch.inf
        ended_ac = alive_ac & (token_ac == eos)
        at_most_a1 = (sentences.max_tokens_a > length)[:, None]
        running_ac = alive_ac & ~ended_ac & at_most_a1
        stopped_r = (values_rk[:, 0] == -torch.inf) | (sentences.max_tokens_a <= length)[place_r]

        if bool(ended_ac.any()):
            _end(found, rows, sentences, ended_ac, total_ac, row_ac)
            stopped_r[row_ac[ended_ac]] = False
        if bool(stopped_r.any()):
            _cut(found, rows, stopped_r)

        best_running_a = torch.where(running_ac, total_ac, -torch.inf).amax(-1)
        if alpha > 0:
            bound_a = best_running_a / sentences.longest_penalty_a
        else:
            # The penalty falls with the length: the next end is the best that can come.
            bound_a = best_running_a / length_penalty(max(length + 1, min_tokens) + 1, alpha)
        over_a = ~running_ac.any(-1) | (sentences.best_an[:, -1] >= bound_a)
        running_ac &= ~over_a[:, None]
        parents_r = row_ac[running_ac]
        last_r = token_ac[running_ac]
        place_r = running_ac.nonzero()[:, 0]
        if bool(over_a.any()):
            place_r = ((~over_a).cumsum(0) - 1)[place_r]
            sentences.keep(~over_a)
        if len(parents_r):
            step.select(parents_r)
        rows.go_on(parents_r, last_r, total_ac[running_ac])
    for hypotheses in found:
        hypotheses.sort(key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))
    return [hypotheses[:n_best] for hypotheses in found]


def _candidates(
    rows: Rows,
    values_rk: Float[Tensor, "r k"],
    ids_rk: Int[Tensor, "r k"],
    place_r: Int[Tensor, " r"],
    sentences: _Sentences,
    beam: int,
) -> tuple[Float[Tensor, "a c"], Int[Tensor, "a c"], Int[Tensor, "a c"]]:
    """The best continuations of every running sentence: log-probability, parent row, token.

    Those beyond the places of their sentence have the log-probability -inf.
    """
    size = values_rk.shape[1]
    rows_a = torch.bincount(place_r, minlength=len(sentences.number_a))
    first_a = rows_a.cumsum(0) - rows_a
    slot_r = torch.arange(len(place_r), device=place_r.device) - first_a[place_r]
    width = int(rows_a.max())
    grid_awk = values_rk.new_full((len(rows_a), width, size), -torch.inf, dtype=torch.float64)
    grid_awk[place_r, slot_r] = rows.log_prob_r[:, None] + values_rk
    # A stable sort, so that equal candidates come in the same order in any batch.
    total_ac, flat_ac = grid_awk.flatten(1).sort(dim=-1, descending=True, stable=True)
    total_ac, flat_ac = total_ac[:, :beam], flat_ac[:, :beam]
    rank_c = torch.arange(total_ac.shape[1], device=place_r.device)
    total_ac = total_ac.masked_fill(rank_c >= sentences.places_a[:, None], -torch.inf)
    # Places without a row hold -inf; their parent must still be a row, any row.
    row_ac = (first_a[:, None] + flat_ac // size).clamp(max=len(place_r) - 1)
    return total_ac, row_ac, ids_rk[row_ac, flat_ac % size]


def _end(
    found: list[list[Hypothesis]],
    rows: Rows,
    sentences: _Sentences,
    ended_ac: Bool[Tensor, "a c"],
    total_ac: Float[Tensor, "a c"],
    row_ac: Int[Tensor, "a c"],
) -> None:
    """Record what ended, and take its places out of the beam."""
    rows_k, log_prob_k = row_ac[ended_ac], total_ac[ended_ac]
    score_k = rows.score(rows_k, log_prob_k, rows.length + 1)
    results = rows.results(rows_k, log_prob_k, score_k, torch.ones_like(rows_k, dtype=torch.bool))
    for sentence, hypothesis in zip(rows.sentence_r[rows_k].tolist(), results, strict=True):
        found[sentence].append(hypothesis)
    score_ac = torch.full_like(total_ac, -torch.inf)
    score_ac[ended_ac] = score_k
    n_best = sentences.best_an.shape[1]
    sentences.best_an = torch.cat([sentences.best_an, score_ac], 1).topk(n_best).values
    sentences.places_a = sentences.places_a - ended_ac.sum(-1)


def _cut(found: list[list[Hypothesis]], rows: Rows, stopped_r: Bool[Tensor, " r"]) -> None:
    """Record the rows that can't go on and did not end."""
    rows_k = stopped_r.nonzero()[:, 0]
    log_prob_k = rows.log_prob_r[rows_k]
    score_k = rows.score(rows_k, log_prob_k, max(rows.length, 1))
    results = rows.results(rows_k, log_prob_k, score_k, torch.zeros_like(stopped_r)[rows_k])
    for sentence, hypothesis in zip(rows.sentence_r[rows_k].tolist(), results, strict=True):
        found[sentence].append(hypothesis)
