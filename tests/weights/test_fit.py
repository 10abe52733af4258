"""Weights compared with those that are wanted."""

import torch

from regard.weights.fit import Misfit, misfits


def test_all_that_differs_is_said_by_name_and_nothing_else() -> None:
    weights = {"same": torch.ones(2), "wide": torch.ones(2, 3), "extra": torch.ones(())}
    wanted = {"wide": torch.zeros(3, 2), "same": torch.zeros(2), "absent": torch.zeros(4)}
    assert misfits(weights, wanted) == [
        Misfit("absent", "missing", "(4,)"),
        Misfit("extra", "()", "nothing"),
        Misfit("wide", "(2, 3)", "(3, 2)"),
    ]
    assert misfits(weights, weights) == []
