"""How many layers lie between any two positions, from which position reaches which in one."""

from collections.abc import Sequence

import torch

from regard.compare.layers import Subject
from regard.compare.results import Counted
from regard.compare.scaling import counted
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions
from regard.shapes import Bool, Tensor

LENGTHS = (16, 32, 64, 128, 256)
_D_MODEL, _HEADS = 8, 2
_ROWS = 32


def connectivity(subject: Subject, length: int, *, seed: int) -> Bool[Tensor, "q k"]:
    """Which output of one layer depends on which input: where the gradient is not 0.

    By autograd through the layer with its small settings and random weights, on random vectors
    in float64; a row of a batch for each output.
    """
    torch.manual_seed(seed)
    layer = subject.build(_D_MODEL, _HEADS, length, small=True).double().eval()
    vectors = torch.randn(length, _D_MODEL, dtype=torch.float64)
    mixture = torch.randn(_D_MODEL, dtype=torch.float64)
    found = []
    for first in range(0, length, _ROWS):
        place = torch.arange(first, min(first + _ROWS, length))
        x = vectors.expand(len(place), -1, -1).clone().requires_grad_()
        y = layer(x, Span.whole(Positions(), x, causal=subject.causal))
        picked = y[torch.arange(len(place)), place] @ mixture
        (gradient,) = torch.autograd.grad(picked.sum(), x)
        found.append((gradient != 0).any(2))
    return torch.cat(found)


def layers_needed(links: Bool[Tensor, "q k"], *, causal: bool) -> int | None:
    """The layers until every position reaches every other, or every later one if causal.

    Breadth first from all positions at once. None if some are never reached. A layer stands in
    a model with a residual connection around it, so that what has arrived stays.

    Args:
        links: which position takes something from which in one layer.
        causal: whether only later positions must be reached.
    """
    size = len(links)
    own = torch.eye(size, dtype=torch.bool)
    step = (links | own).float()
    wanted = torch.ones(size, size, dtype=torch.bool)
    if causal:
        wanted = wanted.tril()
    reached, layers = own, 0
    while not bool((reached | ~wanted).all()):
        further = (step @ reached.float()) > 0
        if torch.equal(further, reached):
            return None
        reached, layers = further, layers + 1
    return layers


def path_lengths(subject: Subject, *, seed: int, lengths: Sequence[int] = LENGTHS) -> Counted:
    """The layers that a layer needs by length; see `layers_needed`."""
    points, unreached = [], ""
    for length in lengths:
        links = connectivity(subject, length, seed=seed)
        needed = layers_needed(links, causal=subject.causal)
        if needed is None:
            unreached = unreached or f"some positions of {length} never reach each other"
        else:
            points.append((length, needed))
    return counted(points, subject.small_settings, unreached)
