"""Encoders have heads of which a loss uses one; several processes train them all the same."""

from collections.abc import Iterator

import pytest
import torch
from training.digits import settings
from training.processes import together

from regard.models.build import build_encoder
from regard.models.config import EncoderConfig
from regard.text.label_batches import LabelBatch
from regard.text.masking import MaskedBatch
from regard.training.feed import Feed
from regard.training.losses import classification_loss, masked_loss
from regard.training.processes import ALONE, Processes
from regard.training.sharding import gathered
from regard.training.state import Window
from regard.training.step import Stepper
from regard.training.tally import Tally

CPU = torch.device("cpu")
IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 0], [12, 13, 0, 0]])
LENGTHS = torch.tensor([4, 3, 2])


class Again:
    """One batch, again and again: of texts with labels, or of texts with tokens to fill in."""

    def __init__(self, labels: bool) -> None:
        self._labels = labels

    def epoch(self, epoch: int, start: int = 0) -> Iterator[LabelBatch | MaskedBatch]:
        rows_b = torch.arange(3)
        if self._labels:
            yield LabelBatch(IDS, LENGTHS, torch.tensor([0, 2, 1]), rows_b)
        else:
            # The last row has nothing to fill in.
            places_n, targets_n = torch.tensor([1, 2, 5]), torch.tensor([3, 4, 5])
            yield MaskedBatch(
                ids_bs=IDS, lengths_b=LENGTHS, places_n=places_n, targets_n=targets_n,
                pairs_b=rows_b,
            )  # fmt: skip


def trained(
    processes: Processes, *, labels: bool, parallel: str = "replicate"
) -> dict[str, torch.Tensor]:
    """The weights after three steps."""
    config = EncoderConfig(d_model=16, num_heads=2, d_ff=32, num_layers=1, pooler=True, dropout=0.0,
                           attention_dropout=0.0)  # fmt: skip
    # In float64: Adam makes steps of what is only rounding, where a gradient is truly 0.
    model = build_encoder(config, vocabulary=20, seed=1, classes=3).double()
    stepper = Stepper(
        model, settings(parallel=parallel), device=CPU, precision="float32",
        loss=classification_loss if labels else masked_loss, processes=processes,
    )  # fmt: skip
    feed = Feed(Again(labels), epoch=0, start=0, parts=1, device=CPU, rank=processes.rank,
                count=processes.count)  # fmt: skip
    with feed:
        for step, batch in zip(range(1, 4), feed, strict=False):
            tally = Tally(Window())
            stepper.take(batch, step, 1e-3, tally)
            assert tally.look() == [None]
    return {name: gathered(weight.detach()) for name, weight in model.state_dict().items()}


@pytest.mark.parametrize("labels", [True, False], ids=["labels", "masked"])
@pytest.mark.parametrize(("count", "parallel"), [(2, "replicate"), (3, "replicate"), (3, "shard")])
def test_an_encoder_is_trained_by_several_processes_as_by_one(
    count: int, parallel: str, labels: bool
) -> None:
    alone = trained(ALONE, labels=labels)
    for one in together(count, lambda each: trained(each, labels=labels, parallel=parallel)):
        assert isinstance(one, dict), one
        torch.testing.assert_close(one, alone, rtol=0, atol=1e-9)
