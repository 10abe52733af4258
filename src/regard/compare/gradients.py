"""How much of a gradient a layer hands back over a distance: what vanishes, and what does not."""

from typing import Final

import torch

from regard.compare.layers import Subject
from regard.compare.results import Gradients
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

DISTANCES: Final = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def gradient_norms(
    subject: Subject,
    *,
    seed: int,
    distances: tuple[int, ...] = DISTANCES,
    d_model: int = 32,
    num_heads: int = 4,
    draws: int = 3,
) -> Gradients:
    """The norm of `d y_T / d x_(T - t)` for each distance t, of an untrained layer.

    y_T is the last output over a sequence of Gaussian vectors that is as long as the farthest
    distance needs, and the norm that of Frobenius, over all pairs of dimensions; its mean is
    taken over some draws of weights and inputs. In float64, so that what is small is no 0. Of
    full attention the norm falls with the length of the sequence only, as its weights do; of a
    recurrence it falls with each step between the two places.

    Args:
        subject: the layer.
        seed: of weights and inputs; torch's generator stays as it was.
        distances: in places, from 0 on.
        d_model: the width.
        num_heads: heads, where the layer has some.
        draws: how many layers the mean is of.

    Source: Hochreiter 1991; Bengio et al. 1994, "Learning long-term dependencies with gradient
    descent is difficult", section III.
    """
    length = max(distances) + 1
    total_t = torch.zeros(length, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        for draw in range(draws):
            torch.manual_seed(seed + draw)
            layer = subject.build(d_model, num_heads, length).double().eval()
            # A row for each dimension of the output: one backward pass gives the whole Jacobian.
            x_td = torch.randn(length, d_model, dtype=torch.float64)
            x_dtd = x_td.expand(d_model, -1, -1).clone().requires_grad_()
            y_dtd = layer(x_dtd, Span.whole(Positions(), x_dtd, causal=subject.causal))
            (slope_dtd,) = torch.autograd.grad(y_dtd[:, -1].diagonal().sum(), x_dtd)
            total_t += slope_dtd.square().sum((0, 2)).sqrt() / draws
    norms = total_t.flip(0)
    return Gradients(distances=distances, norms=tuple(float(norms[t]) for t in distances))
