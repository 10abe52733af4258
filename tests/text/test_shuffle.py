import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.text.shuffle import shuffled


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_thing_goes_to_a_place_of_its_own(size: int, key: int) -> None:
    assert sorted(shuffled(np.arange(size), size, key).tolist()) == list(range(size))


@given(st.integers(1, 10**12), st.integers(0, 2**64 - 1), st.data())
def test_one_position_alone_goes_where_it_goes_among_others(
    size: int, key: int, data: st.DataObject
) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9)))
    together = shuffled(positions, size, key)
    assert (together < size).all()
    assert (together >= 0).all()
    assert together[:1].tolist() == shuffled(positions[:1], size, key).tolist()


def test_orders_of_three_are_even_over_the_keys() -> None:
    orders = [tuple(shuffled(np.arange(3), 3, key).tolist()) for key in range(1800)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert 230 < min(counts) <= max(counts) < 370


def test_neighbours_do_not_stay_neighbours() -> None:
    order = shuffled(np.arange(10_000), 10_000, 7)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.05
