import math

import pytest

from regard.training.config import (
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    PaperSchedule,
)
from regard.training.schedules import learning_rate


@pytest.mark.parametrize("step", [1, 2, 1000, 3999, 4000, 4001, 100_000])
def test_the_papers_schedule_is_equation_3(step: int) -> None:
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert learning_rate(PaperSchedule(), step, 512, 1) == pytest.approx(expected, rel=1e-14)


def test_the_papers_peak_at_base_is_seven_ten_thousandths() -> None:
    assert learning_rate(PaperSchedule(), 4000, 512, 1) == pytest.approx(6.987712e-4, rel=1e-6)
    assert learning_rate(PaperSchedule(scale=2), 4000, 512, 1) == pytest.approx(1.3975e-3, rel=1e-4)


def test_the_inverse_square_root_rises_to_its_peak_and_halves_at_four_times_the_step() -> None:
    config = InverseSquareRootSchedule(learning_rate=1e-3, warmup_steps=100)
    rates = [learning_rate(config, step, 8, 1) for step in (1, 50, 100, 400)]
    assert rates == pytest.approx([1e-5, 5e-4, 1e-3, 5e-4])
    bare = InverseSquareRootSchedule(learning_rate=1e-3, warmup_steps=0)
    assert [learning_rate(bare, step, 8, 1) for step in (1, 4)] == pytest.approx([1e-3, 5e-4])


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_the_cosine_is_half_way_down_in_the_middle_of_its_fall(final: float) -> None:
    config = CosineSchedule(learning_rate=1.0, warmup_steps=100, final=final)
    rates = [learning_rate(config, step, 8, 300) for step in (1, 50, 100, 150, 200, 300, 999)]
    fall = [1, (1 + math.sqrt(0.5)) / 2, 0.5, 0, 0]
    assert rates == pytest.approx([0.01, 0.5, *(final + (1 - final) * part for part in fall)])


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_the_line_falls_evenly(final: float) -> None:
    config = LinearSchedule(learning_rate=1.0, warmup_steps=100, final=final)
    rates = [learning_rate(config, step, 8, 300) for step in (1, 50, 100, 150, 200, 300, 999)]
    fall = [1, 0.75, 0.5, 0, 0]
    assert rates == pytest.approx([0.01, 0.5, *(final + (1 - final) * part for part in fall)])


@pytest.mark.parametrize("kind", [CosineSchedule, LinearSchedule])
def test_a_run_shorter_than_its_warmup_only_rises(kind: type) -> None:
    config = kind(learning_rate=1.0, warmup_steps=100)
    rates = [learning_rate(config, step, 8, 50) for step in (10, 50)]
    assert rates == pytest.approx([0.1, 0.5])
    assert learning_rate(kind(learning_rate=1.0, warmup_steps=100), 100, 8, 100) == 1.0
