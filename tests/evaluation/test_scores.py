"""BLEU, chrF and perplexity: sacreBLEU's own figures, and refusals of what has no score."""

import math
from collections.abc import Callable

import pytest
import sacrebleu

from regard.errors import DataError
from regard.evaluation.metrics import Score, bleu, chrf, perplexity

SAID = ["Die Entität ist nicht verfügbar.", "Gib den Code ein", "", "ein  Haus ."]
MEANT = ["Die Entität ist nicht da.", "Gib den Code ein, bitte", "Fehler", "Ein Haus."]


def test_the_figures_are_those_of_sacrebleu_with_its_signature() -> None:
    ours = bleu(SAID, MEANT)
    assert ours.value == sacrebleu.corpus_bleu(SAID, [MEANT]).score
    version = sacrebleu.__version__
    assert ours.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    theirs = chrf(SAID, MEANT)
    assert theirs.value == sacrebleu.corpus_chrf(SAID, [MEANT]).score
    assert theirs.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"


def test_a_known_figure() -> None:
    # 4/4 words, 3/3, 2/2 and 1/1 n-grams of 5: only the brevity penalty exp(1 - 5/4) counts.
    assert bleu(["a b c d"], ["a b c d e"]).value == pytest.approx(100 * math.exp(-0.25))


def test_perfect_is_100_and_nothing_is_0() -> None:
    assert bleu(MEANT, MEANT).value == pytest.approx(100)
    assert chrf(MEANT, MEANT).value == pytest.approx(100)
    assert bleu([""], ["a b c d"]).value == 0
    assert chrf([""], ["a b c d"]).value == 0


def test_text_that_looks_tokenised_draws_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    bleu(["a ."] * 200, ["a ."] * 200)
    assert caplog.records == []


@pytest.mark.parametrize("score", [bleu, chrf])
def test_what_does_not_pair_up_has_no_score(score: Callable[[list[str], list[str]], Score]) -> None:
    with pytest.raises(DataError) as caught:
        score(["a"], ["a", "b"])
    assert str(caught.value) == (
        "got 1 translation and 2 references\n  Each line needs the reference that belongs to it."
    )
    with pytest.raises(DataError, match=r"^there are no lines to score$"):
        score([], [])


def test_perplexity_is_the_inverse_geometric_mean_of_the_probabilities() -> None:
    assert perplexity(math.log(0.5) + math.log(0.125), 2) == pytest.approx(4)
    assert perplexity(0.0, 3) == 1
    assert perplexity(-1e9, 1) == math.inf
    assert perplexity(-math.inf, 1) == math.inf
    with pytest.raises(DataError, match="no tokens"):
        perplexity(0.0, 0)
