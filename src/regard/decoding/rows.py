"""The hypotheses that are running: what they hold so far, and how they become results."""

import torch

from regard.decoding.coverage import coverage_penalty
from regard.decoding.hypothesis import Attention, Hypothesis, length_penalty
from regard.decoding.step import StepOutput
from regard.shapes import Bool, Float, Int, Tensor


class Rows:
    """The state of every running hypothesis, one a row, all of one length.

    `sentence_r` is the sentence of the batch that a row belongs to, `tokens_rt` what it holds,
    `log_prob_r` the sum of its log-probabilities in float64.

    Args:
        sentence_r: the sentences of the first rows.
        source_bs: True at the source's tokens; needed for coverage and attention.
        alpha: exponent of the length penalty.
        coverage: weight of the coverage penalty.
        attention: keep where every token looked.
    """

    def __init__(
        self,
        sentence_r: Int[Tensor, " r"],
        *,
        source_bs: Bool[Tensor, "b s"] | None,
        alpha: float,
        coverage: float,
        attention: bool,
    ) -> None:
        if source_bs is None and (coverage or attention):
            raise ValueError("coverage and attention need source_bs")
        self.sentence_r = sentence_r
        self.tokens_rt = sentence_r.new_empty(len(sentence_r), 0)
        self.log_prob_r = torch.zeros_like(sentence_r, dtype=torch.float64)
        self._source_bs = source_bs
        self._alpha = alpha
        self._coverage = coverage
        self._attention = attention
        self._seen_rs: Tensor | None = None
        self._attention_rts: Tensor | None = None

    @property
    def length(self) -> int:
        """How many tokens every row holds."""
        return self.tokens_rt.shape[1]

    def look(self, output: StepOutput) -> None:
        """Keep where the rows look while they choose their next token."""
        if not (self._coverage or self._attention):
            return
        if output.attention_rs is None:
            raise ValueError("coverage and attention need a step that gives attention")
        if self._coverage:
            new_rs = output.attention_rs.double()
            self._seen_rs = new_rs if self._seen_rs is None else self._seen_rs + new_rs
        if self._attention:
            new_r1s = output.attention_rs[:, None]
            old_rts = new_r1s[:, :0] if self._attention_rts is None else self._attention_rts
            self._attention_rts = torch.cat([old_rts, new_r1s], 1)

    def score(
        self, rows_k: Int[Tensor, " k"], log_prob_k: Float[Tensor, " k"], length: int
    ) -> Float[Tensor, " k"]:
        """Score the rows as they would be with these log-probabilities and this length."""
        score_k = log_prob_k / length_penalty(length, self._alpha)
        if self._coverage and self._seen_rs is not None and self._source_bs is not None:
            source_ks = self._source_bs[self.sentence_r[rows_k]]
            score_k = score_k + self._coverage * coverage_penalty(self._seen_rs[rows_k], source_ks)
        return score_k

    def results(
        self,
        rows_k: Int[Tensor, " k"],
        log_prob_k: Float[Tensor, " k"],
        score_k: Float[Tensor, " k"],
        finished_k: Bool[Tensor, " k"],
    ) -> list[Hypothesis]:
        """Make hypotheses of some rows."""
        tokens = self.tokens_rt[rows_k].tolist()
        columns = zip(
            tokens, score_k.tolist(), log_prob_k.tolist(), finished_k.tolist(), strict=True
        )
        attentions: list[Attention | None] = [None] * len(tokens)
        if self._attention_rts is not None and self._source_bs is not None:
            sentences_k = self.sentence_r[rows_k].tolist()
            attentions = [
                # Without the row with which the end, or the token that was cut, was chosen.
                self._attention_rts[row, : self.length][:, self._source_bs[sentence]].cpu().numpy()
                for row, sentence in zip(rows_k.tolist(), sentences_k, strict=True)
            ]
        return [
            Hypothesis(tuple(ids), score, log_prob, finished, attention_ts)
            for (ids, score, log_prob, finished), attention_ts in zip(
                columns, attentions, strict=True
            )
        ]

    def go_on(
        self,
        parents_r: Int[Tensor, " r"] | None,
        tokens_r: Int[Tensor, " r"],
        log_prob_r: Float[Tensor, " r"],
    ) -> None:
        """Continue some rows (None: all of them) by one token each."""
        if parents_r is not None:
            self.sentence_r = self.sentence_r[parents_r]
            self.tokens_rt = self.tokens_rt[parents_r]
            if self._seen_rs is not None:
                self._seen_rs = self._seen_rs[parents_r]
            if self._attention_rts is not None:
                self._attention_rts = self._attention_rts[parents_r]
        self.tokens_rt = torch.cat([self.tokens_rt, tokens_r[:, None]], 1)
        self.log_prob_r = log_prob_r
