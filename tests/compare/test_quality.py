"""The tasks ask for what they say, and all layers learn under the same conditions."""

import math

import pytest
import torch

from regard.compare import quality, tasks
from regard.compare.layers import NAMES, SUBJECTS, Subject, subjects_named
from regard.compare.quality import Learner, learn, measure_quality
from regard.compare.tasks import TASKS, Examples, Task, are_held_out, draw, shape_of

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


@pytest.mark.parametrize("task", TASKS)
def test_no_example_that_a_model_is_tried_on_was_ever_one_of_training(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[bool, list[torch.Tensor]] = {False: [], True: []}

    def watched(
        task: Task, number: int, generator: torch.Generator, *, held_out: bool = False
    ) -> Examples:
        made = draw(task, number, generator, held_out=held_out)
        seen[held_out].append(made.tokens_bn)
        return made

    monkeypatch.setattr(quality, "draw", watched)
    (layer,) = subjects_named(["ssru"])
    learn(layer, task, seed=1, steps=40)
    trained, tried = (torch.cat(seen[held_out]) for held_out in (False, True))
    assert len(trained) == 40 * 32
    assert len(tried) == 512
    assert not are_held_out(trained).any()
    assert are_held_out(tried).all()
    assert not set(map(tuple, trained.tolist())) & set(map(tuple, tried.tolist()))


@pytest.mark.parametrize("task", TASKS)
def test_one_example_in_eight_is_held_out_whatever_it_asks(task: Task) -> None:
    tokens, answers = quality_examples(task)
    held = are_held_out(tokens)
    assert held.float().mean().item() == pytest.approx(1 / 8, abs=0.02)
    asked = answers[:, -1]
    for answer in asked.unique():
        share = held[asked == answer].float().mean().item()
        assert share == pytest.approx(1 / 8, abs=0.06)


def quality_examples(task: Task) -> Examples:
    """Held-out ones among others, as they come."""
    return tasks._draw(task, 8000, torch.Generator().manual_seed(1))


def test_a_run_that_the_clock_ended_is_repeated_exactly_by_its_steps_and_seed() -> None:
    (plain,) = subjects_named(["plain"])
    timed = learn(plain, "recall", seed=4, seconds=0.4)
    assert timed.steps > 0
    again, other = (learn(plain, "recall", seed=seed, steps=timed.steps) for seed in (4, 5))
    assert again.steps == other.steps == timed.steps
    assert again.accuracy == timed.accuracy
    assert again.accuracy != other.accuracy


def test_so_many_steps_are_made_by_all_however_little_time_there_is() -> None:
    (layer,) = subjects_named(["ssru"])
    found = measure_quality([layer], seconds=0.0, seed=4, progress=lambda *_: None, steps=3)
    for each in found["ssru"]:
        assert each.steps == (3, 3, 3)
        task = next(task for task in TASKS if task == each.task)
        for seed, accuracy in zip(each.seeds, each.accuracies, strict=True):
            alone = learn(layer, task, seed=seed, steps=3)
            assert accuracy == round(alone.accuracy, 4)


def test_every_layer_is_tried_on_every_task_with_every_seed_and_twins_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quality, "_SHORTEST", -math.inf)  # on a busy machine, too
    told: list[float] = []
    subjects = subjects_named(["plain", "sdpa", "rnn"])
    found = measure_quality(
        subjects, seconds=6.0, seed=4, progress=lambda _, share: told.append(share)
    )
    assert found.keys() == {"plain", "sdpa", "rnn"}
    for one, same in zip(found["plain"], found["sdpa"], strict=True):
        assert same == one.model_copy(update={"same_as": "plain"})
    for each in found.values():
        assert [quality.task for quality in each] == list(TASKS)
        for one in each:
            assert one.seeds == (4, 5, 6)
            assert len(one.accuracies) == len(one.steps) == 3
            assert all(0 <= accuracy <= 1 for accuracy in one.accuracies)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == 2 * 3 * quality.SEEDS


def test_with_too_little_time_nothing_is_trained() -> None:
    assert measure_quality(SUBJECTS, seconds=2.0, seed=1, progress=lambda *_: None) == {}
