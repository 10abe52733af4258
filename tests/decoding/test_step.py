"""Steps: one model is its whole forward pass, an ensemble the mean of its models."""

import torch
from decoding.tables import TableStep, random_tables
from decoding.tiny import LINES, model, tokenizer

from regard.decoding.padding import padded, token_batches
from regard.decoding.step import EnsembleStep, ModelStep, full_precision
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


def test_a_model_step_is_the_forward_pass_at_the_last_place() -> None:
    device = torch.device("cpu")
    ids = [[*tokenizer().encode(line), EOS_ID] for line in LINES[:4]]
    source, mask = padded(ids, fill=PAD_ID, device=device)
    rows = torch.tensor([2, 0, 0, 3])
    first, second = torch.tensor([BOS_ID] * 4), torch.tensor([9, 8, 7, 6])
    with torch.no_grad():
        step = ModelStep(model(), source, mask, attention=True)
        step.advance(first)
        step.select(rows)
        output = step.advance(second)
        target = torch.stack([first, second], 1)
        logits = model()(source[rows], target, mask[rows])
    torch.testing.assert_close(output.log_probs_rv, logits[:, -1].log_softmax(-1))
    assert output.attention_rs is not None
    assert not output.attention_rs[~mask[rows]].any()
    torch.testing.assert_close(output.attention_rs.sum(1), torch.ones(4, dtype=torch.float64))


def test_an_ensemble_is_the_mean_of_probabilities_and_selects_in_all() -> None:
    tables = [random_tables(3, 2, 5, seed) for seed in (1, 2, 3)]
    attention = torch.rand(3, 2, 5, 4)
    steps = [TableStep(tables[0], attention), TableStep(tables[1]), TableStep(tables[2])]
    ensemble = EnsembleStep(steps)
    ensemble.select(torch.tensor([2, 1]))
    output = ensemble.advance(torch.tensor([0, 4]))
    places = (torch.tensor([2, 1]), 0, torch.tensor([0, 4]))
    mean = torch.stack([table[places].exp() for table in tables]).mean(0)
    torch.testing.assert_close(output.log_probs_rv, mean.log())
    torch.testing.assert_close(output.attention_rs, attention[places])


def test_the_mean_of_certainties_is_no_more_than_certain() -> None:
    certain = torch.tensor([0.0, -40.0, -40.0]).expand(1, 1, 3, 3)
    output = EnsembleStep([TableStep(certain)] * 3).advance(torch.tensor([0]))
    assert output.log_probs_rv.max() <= 0


def test_half_precision_is_widened_and_no_other() -> None:
    for dtype, wide in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert full_precision(torch.zeros(1, dtype=dtype)).dtype == wide


def test_padding_is_on_the_right_and_told_by_the_mask() -> None:
    ids, mask = padded([[5, 6], [], [7]], fill=9, device=torch.device("cpu"))
    assert ids.tolist() == [[5, 6], [9, 9], [7, 9]]
    assert mask.tolist() == [[True, True], [False, False], [True, False]]


def test_batches_hold_every_place_once_and_keep_within_their_bounds() -> None:
    lengths = [3, 9, 1, 9, 2, 40, 3, 1, 1]
    batches = list(token_batches(lengths, batch_tokens=18, batch_rows=3))
    assert batches == [[5], [1, 3], [0, 6, 4], [2, 7, 8]]
