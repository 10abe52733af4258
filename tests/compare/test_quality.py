"""The tasks ask for what they say, and all layers learn under the same conditions."""

import pytest
import torch

from regard.compare import quality
from regard.compare.layers import NAMES, SUBJECTS, Subject, subjects_named
from regard.compare.quality import Learner, learn, measure_quality
from regard.compare.tasks import TASKS, Task, draw, shape_of

DIGITS, MAX, MIN, SUM, CLOSE, BLANK, ASK = 10, 10, 11, 12, 13, 14, 15


def value_of(tokens: list[int]) -> int:
    """What an expression comes to, read from left to right."""
    stack: list[list[int]] = [[]]
    for token in tokens:
        if token == BLANK:
            continue
        if token == CLOSE:
            kind, a, b = stack.pop()
            stack[-1].append({MAX: max(a, b), MIN: min(a, b), SUM: (a + b) % DIGITS}[kind])
        elif token >= DIGITS:
            stack.append([token])
        else:
            stack[-1].append(token)
    ((value,),) = stack
    return value


@pytest.mark.parametrize("task", TASKS)
def test_examples_have_the_sizes_that_the_task_says_and_follow_the_seed(task: Task) -> None:
    one, same, other = (draw(task, 50, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    sizes = shape_of(task)
    assert one.tokens_bn.shape == one.answers_bn.shape == (50, sizes.length)
    assert one.tokens_bn.min() >= 0
    assert one.tokens_bn.max() < sizes.tokens
    assert one.answers_bn.max() < sizes.answers
    assert torch.equal(one.tokens_bn, same.tokens_bn)
    assert not torch.equal(one.tokens_bn, other.tokens_bn)


def test_copying_asks_for_the_symbol_as_far_back_at_places_that_do_not_show_it() -> None:
    tokens, answers = draw("copying", 20, torch.Generator().manual_seed(1))
    assert torch.equal(answers[:, -6:], tokens[:, :6])
    assert (answers[:, :-6] == -1).all()
    assert (tokens[:, -6:] == 9).all()


def test_recall_asks_for_the_value_of_a_key_that_was_told() -> None:
    tokens, answers = draw("recall", 20, torch.Generator().manual_seed(1))
    for row, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        told = dict(zip(row[0:12:2], row[1:12:2], strict=True))
        assert len(told) == 6
        assert [told[key] - 12 for key in row[12:]] == wanted[12:]


def test_nesting_asks_for_what_the_expression_comes_to() -> None:
    tokens, answers = draw("nesting", 200, torch.Generator().manual_seed(1))
    for row, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        assert row[-1] == ASK
        assert value_of(row[:-1]) == wanted[-1]
    assert (tokens[:, 0] >= DIGITS).all()


@pytest.mark.parametrize("task", TASKS)
def test_all_models_of_a_task_have_as_many_parameters_within_a_hundredth(task: Task) -> None:
    sizes = [
        sum(parameter.numel() for parameter in Learner(subject, task).parameters())
        for subject in SUBJECTS
    ]
    assert max(sizes) <= 1.01 * min(sizes)


@pytest.mark.parametrize("subject", SUBJECTS, ids=NAMES)
def test_every_layer_but_the_window_reaches_the_symbol_that_copying_asks_for(
    subject: Subject,
) -> None:
    tokens, answers = draw("copying", 1, torch.Generator().manual_seed(1))
    model = Learner(quality._fitted(subject), "copying").double().eval()
    logits = model(tokens)
    assert logits.shape == (*answers.shape, 8)
    other = tokens.clone()
    other[0, 5] = (tokens[0, 5] + 1) % 8
    reached = not torch.equal(model(other)[0, -1], logits[0, -1])
    assert reached == (subject.name not in {"window", "convolution"})


def test_a_model_without_time_to_train_guesses() -> None:
    (plain,) = subjects_named(["plain"])
    guessed = learn(plain, "copying", seed=1, seconds=1e-9)
    assert guessed.steps == 0
    assert guessed.accuracy < 0.3
    assert 0.1 < guessed.chance < 0.2


def test_every_layer_is_tried_on_every_task_with_every_seed_and_twins_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quality, "_SHORTEST", 0.01)
    monkeypatch.setattr(quality, "_BESIDE", 0.0)
    told: list[float] = []
    subjects = subjects_named(["plain", "sdpa", "rnn"])
    found = measure_quality(
        subjects, seconds=3.0, seed=4, progress=lambda _, share: told.append(share)
    )
    assert found.keys() == {"plain", "sdpa", "rnn"}
    assert found["plain"] == found["sdpa"]
    for each in found.values():
        assert [quality.task for quality in each] == list(TASKS)
        for one in each:
            assert one.seeds == (4, 5, 6)
            assert len(one.accuracies) == len(one.steps) == 3
            assert all(0 <= accuracy <= 1 for accuracy in one.accuracies)
            assert one.seconds == found["rnn"][0].seconds
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == 2 * 3 * quality.SEEDS


def test_with_too_little_time_nothing_is_trained() -> None:
    assert measure_quality(SUBJECTS, seconds=2.0, seed=1, progress=lambda *_: None) == {}
