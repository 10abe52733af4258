"""What is compared: every kind of layer, and two forms of full attention that are the same."""

from typing import get_args

import pytest
import torch

from regard.compare.layers import NAMES, SUBJECTS, Subject, subjects_named
from regard.errors import RegardError
from regard.nn.mixers.config import MixerKind
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions


def passed(subject: Subject, x: torch.Tensor, *, causal: bool) -> torch.Tensor:
    torch.manual_seed(3)
    layer = subject.build(x.shape[2], 2, x.shape[1], causal=causal).double().eval()
    return layer(x, Span.whole(Positions(), x, causal=causal))


def test_every_kind_of_layer_is_compared() -> None:
    assert {subject.config.kind for subject in SUBJECTS} == set(get_args(MixerKind))
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("causal", [True, False])
def test_plain_and_fused_attention_are_the_same_function(causal: bool) -> None:
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    plain, sdpa = (passed(subject, x, causal=causal) for subject in subjects_named(NAMES[:2]))
    torch.testing.assert_close(plain, sdpa, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("subject", SUBJECTS, ids=NAMES)
@pytest.mark.parametrize("small", [True, False])
def test_each_has_weights_and_theory_and_gives_what_it_takes(subject: Subject, small: bool) -> None:
    layer = subject.build(16, 2, 12, small=small)
    x = torch.randn(1, 12, 16)
    assert layer(x, Span.whole(Positions(), x, causal=subject.causal)).shape == x.shape
    assert subject.theory.time_n.exponent == (2.0 if subject.config.kind == "full" else 1.0)
    assert bool(subject.theory.decode_time) == subject.causal
    assert subject.small_settings.keys() == subject.settings.keys()


def test_layers_are_chosen_by_name_in_the_order_of_the_table() -> None:
    assert subjects_named(()) == SUBJECTS
    assert [subject.name for subject in subjects_named(["rnn", "plain"])] == ["plain", "rnn"]
    with pytest.raises(RegardError, match='no layer is called "rnnn"') as refused:
        subjects_named(["rnnn"])
    assert "plain, sdpa, window" in refused.value.hint
