"""The vanishing gradient, as the data of a figure."""

import pytest
import torch

from regard.compare.gradients import DISTANCES, gradient_norms
from regard.compare.layers import SUBJECTS, Subject, subjects_named
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions


def of(name: str, **options: object) -> dict[int, float]:
    (subject,) = subjects_named([name])
    found = gradient_norms(subject, seed=1, **options)  # type: ignore[arg-type]
    return dict(zip(found.distances, found.norms, strict=True))


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_layer_has_a_norm_for_every_distance(subject: Subject) -> None:
    found = gradient_norms(subject, seed=1, distances=(0, 1, 7), draws=1)
    assert found.distances == (0, 1, 7)
    assert all(norm >= 0 for norm in found.norms)
    assert found.norms[0] > 0
    assert found == gradient_norms(subject, seed=1, distances=(0, 1, 7), draws=1)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "plain", "convolution"])
def test_the_norm_is_that_of_the_jacobian_written_out(name: str) -> None:
    (subject,) = subjects_named([name])
    found = of(name, distances=(0, 2, 5), d_model=4, num_heads=2, draws=1)
    torch.manual_seed(1)
    layer = subject.build(4, 2, 6).double()
    x = torch.randn(6, 4, dtype=torch.float64)

    def last(x: torch.Tensor) -> torch.Tensor:
        return layer(x[None], Span.whole(Positions(), x[None], causal=True))[0, -1]

    jacobian = torch.autograd.functional.jacobian(last, x)
    for distance, norm in found.items():
        assert norm == pytest.approx(float(jacobian[:, 5 - distance].norm()), rel=1e-9)


def test_over_100_steps_recurrences_lose_what_attention_keeps() -> None:
    recurrent = {name: of(name) for name in ("rnn", "lstm", "gru")}
    plain = of("plain")
    assert plain[100] > 0.1 * plain[1]
    for norms in recurrent.values():
        assert norms[100] < 1e-6 * norms[1]
        assert norms[50] < 1e-2 * norms[10] < norms[1]
    assert tuple(plain) == DISTANCES


def test_torch_s_generator_stays_as_it_was() -> None:
    state = torch.get_rng_state()
    of("gru", distances=(0, 1), draws=1)
    assert torch.equal(torch.get_rng_state(), state)
