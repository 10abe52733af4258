"""What is given back to a training must be of its model."""

import pytest
import torch
from torch import nn

from regard.errors import RunFolderError
from regard.training.state import give_tensors, take_tensors


def test_weights_of_another_model_are_refused() -> None:
    theirs, ours = nn.Linear(2, 3), nn.Linear(3, 3, bias=False)
    saved = take_tensors(theirs, torch.optim.Adam(theirs.parameters()), None)
    with pytest.raises(RunFolderError) as caught:
        give_tensors(saved, ours, torch.optim.Adam(ours.parameters()), None)
    assert str(caught.value) == (
        "the checkpoint's bias is (3,), and the model wants nothing\n"
        "  Resume with the model settings that the run was started with."
    )
    del saved["model"]["bias"]
    with pytest.raises(
        RunFolderError, match=r"'s weight is \(3, 2\), and the model wants \(3, 3\)"
    ):
        give_tensors(saved, ours, torch.optim.Adam(ours.parameters()), None)
