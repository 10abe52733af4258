"""Force decoding: log-probabilities by the line, the same in any batch."""

import pytest
import torch
from decoding.tiny import LINES, model, tokenizer

from regard.decoding import given
from regard.decoding.score import score_pairs
from regard.text.tokenizer import BOS_ID, EOS_ID

PAIRS = [*zip(LINES, LINES[::-1], strict=True), ("", "a"), ("a", ""), ("", "")]


def _one_by_one(seed: int) -> list[torch.Tensor]:
    """The log-probability of each token, from the whole model and without any padding."""
    made = model(seed)
    found = []
    with torch.no_grad():
        for source, target in PAIRS:
            ids = tokenizer().encode(target)
            logits = made(
                torch.tensor([[*tokenizer().encode(source), EOS_ID]]),
                torch.tensor([[BOS_ID, *ids]]),
            )
            wanted = torch.tensor([*ids, EOS_ID])
            found.append(logits.log_softmax(-1)[0].gather(1, wanted[:, None])[:, 0])
    return found


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
def test_a_pair_scores_the_sum_of_its_tokens_in_any_batch(
    batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "_LOGITS", 7 * tokenizer().size)
    scores = score_pairs([model()], [tokenizer()], tokenizer(), PAIRS, batch_tokens=batch_tokens)
    for score, each in zip(scores, _one_by_one(67), strict=True):
        assert score.log_prob == pytest.approx(float(each.sum()), rel=1e-10)
        assert score.tokens == len(each)


def test_an_ensemble_scores_with_the_mean_of_the_probabilities() -> None:
    scores = score_pairs([model(), model(56)], [tokenizer()] * 2, tokenizer(), PAIRS)
    for score, one, two in zip(scores, _one_by_one(67), _one_by_one(56), strict=True):
        mean = (one.exp() + two.exp()) / 2
        assert score.log_prob == pytest.approx(float(mean.log().sum()), rel=1e-10)


def test_no_pairs_give_no_scores() -> None:
    assert score_pairs([model()], [tokenizer()], tokenizer(), []) == []
