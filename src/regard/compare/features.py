"""How near random features come to softmax attention, by how many there are."""

from typing import Final

import torch

from regard.nn.attention import HeadShape
from regard.nn.mixers.config import PerformerConfig
from regard.nn.mixers.full import FullAttention
from regard.nn.mixers.linear import PerformerAttention
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

FEATURES: Final = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def feature_errors(
    *,
    size: float,
    seed: int = 0,
    features: tuple[int, ...] = FEATURES,
    length: int = 128,
    draws: int = 8,
) -> dict[int, float]:
    """For each number of features, how far a Performer's weights are from those of softmax.

    The norm of the difference over that of the softmax weights, of one head of width 64 over
    Gaussian vectors, its root mean square over some draws of the features. It falls with their
    root once there are enough; how many are enough grows as the exponential of what the queries
    and keys measure.

    Args:
        size: the standard deviation of the vectors; scores have a standard deviation of its square.
        seed: of vectors and projections; the features' seeds follow from it.
        features: how many.
        length: of the sequence.
        draws: of features.

    Source: Choromanski et al. 2020, arXiv:2009.14794, theorem 3 and figure 4.
    """
    shape = HeadShape(d_model=64, num_heads=1, d_k=64, d_v=64, num_kv_heads=1)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        softmax = FullAttention(shape).double()
        x = size * torch.randn(1, length, 64, dtype=torch.float64)
        span = Span.whole(Positions(), x, causal=False)
        wanted = softmax.weights(x, span)
        errors = {}
        for count in features:
            config = PerformerConfig(features=count)
            layer = PerformerAttention(config, shape, causal=False).double()
            layer.load_state_dict({**softmax.state_dict(), "directions_fe": layer.directions_fe})
            squares = []
            for draw in range(draws):
                layer.redraw(torch.Generator().manual_seed(seed + draw))
                squares.append((layer.weights(x, span) - wanted).square().sum())
            total = torch.stack(squares).mean() / wanted.square().sum()
            errors[count] = float(total.sqrt())
    return errors
