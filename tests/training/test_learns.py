from collections.abc import Callable

import pytest
from training.conftest import Trained
from training.digits import VOCABULARY, DigitBatches

from regard.decoding.config import DecodingConfig
from regard.decoding.search import search
from regard.decoding.step import ModelStep
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.nn.masks import padding_mask
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.training.config import CosineSchedule

CONFIG = TransformerConfig(
    d_model=32,
    num_heads=4,
    d_ff=64,
    encoder_layers=1,
    decoder_layers=1,
    dropout=0.0,
    norm_position="pre",
)


def reversed_digits(digits: list[int]) -> list[int]:
    return digits[::-1]


@pytest.mark.parametrize(("make", "steps"), [(list, 400), (reversed_digits, 800)])
def test_digits_are_copied_and_reversed_without_a_single_mistake(
    train: Callable[..., Trained], make: Callable[[list[int]], list[int]], steps: int
) -> None:
    model = build_model(CONFIG, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, seed=1)
    train(
        "run",
        model=model,
        batches=DigitBatches(rows=64, per_epoch=steps, longest=8, make=make),
        max_steps=steps,
        schedule=CosineSchedule(learning_rate=0.01, warmup_steps=steps // 10),
        label_smoothing=0.0,
        checkpoint_every=steps,
        log_every=steps,
    )
    unseen = DigitBatches(rows=200, longest=8, make=make).batch(epoch=1, position=0)
    model.eval()
    found = search(
        ModelStep(
            model,
            unseen.source_bs,
            padding_mask(unseen.source_lengths_b, unseen.source_bs.shape[1]),
        ),
        batch=200,
        bos=BOS_ID,
        eos=EOS_ID,
        max_tokens_b=unseen.source_lengths_b + 5,
        config=DecodingConfig(beam=1),
    )
    wanted = [
        tuple(row[: length - 1])
        for row, length in zip(
            unseen.target_out_bt.tolist(), unseen.target_lengths_b.tolist(), strict=True
        )
    ]
    assert [hypotheses[0].tokens for hypotheses in found] == wanted
