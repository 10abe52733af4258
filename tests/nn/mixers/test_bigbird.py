import pytest
import torch
from mixing import D_MODEL, HEADS, SCHEMES, Case, make

from regard.nn.attention import HeadShape, attend
from regard.nn.mixers.bigbird import BigBirdAttention
from regard.nn.mixers.config import BigBirdConfig
from regard.nn.positions import build_positions

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
CONFIGS = [
    BigBirdConfig(block=4),
    BigBirdConfig(block=16, window=1, global_blocks=0, random_blocks=1),
    BigBirdConfig(block=5, window=4, global_blocks=2, random_blocks=0, seed=9),
    BigBirdConfig(block=64),
    BigBirdConfig(block=500),
    BigBirdConfig(block=2**20, global_blocks=2**20, random_blocks=2**20),
]


def layer(config: BigBirdConfig, scheme: str = "none", *, causal: bool) -> Case:
    shape = HeadShape(d_model=D_MODEL, num_heads=HEADS, d_k=4, d_v=3, num_kv_heads=2)
    torch.manual_seed(1)
    positions = build_positions(
        SCHEMES[scheme], d_model=D_MODEL, num_heads=HEADS, head_dim=4, bidirectional=not causal
    )
    made = BigBirdAttention(config, shape, causal=causal).double()
    return Case("bigbird", made, positions.double(), causal)


def pattern(case: Case, length: int) -> torch.Tensor:
    assert isinstance(case.layer, BigBirdAttention)
    return case.layer.pattern(length)


def plain(case: Case, x: torch.Tensor) -> torch.Tensor:
    """The plain form with the pattern as a mask."""
    bird, places = case.layer, torch.arange(x.shape[1])[None]
    assert isinstance(bird, BigBirdAttention)
    query, seen = bird.project(x, case.scheme.rotation(places))
    key, value = (part.repeat_interleave(2, 1) for part in (seen.key_bhke, seen.value_bhkw))
    mask = bird.pattern(x.shape[1])[None, None]
    return bird.join(attend(query, key, value, mask, bias=case.scheme.bias(places, places)))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_the_plain_form_with_its_pattern_as_mask_and_so_are_its_gradients(
    config: BigBirdConfig, scheme: str, causal: bool
) -> None:
    case = layer(config, scheme, causal=causal)
    x = torch.randn(2, 203, D_MODEL).double().requires_grad_()
    wanted, got = plain(case, x), case(x)
    torch.testing.assert_close(got, wanted, **CLOSE)
    direction = torch.randn_like(got)
    (mine,) = torch.autograd.grad(got, x, direction)
    (theirs,) = torch.autograd.grad(wanted, x, direction)
    torch.testing.assert_close(mine, theirs, **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
def test_a_block_far_from_the_ends_sees_window_global_and_random_blocks(causal: bool) -> None:
    config = BigBirdConfig(block=1, window=3, global_blocks=2, random_blocks=4)
    seen = pattern(layer(config, causal=causal), 60)
    assert seen[30].sum() == 3 + 2 + 4
    assert seen[30, :2].all()
    assert seen[30, 28:31].all() if causal else seen[30, 29:32].all()


def test_the_seed_and_nothing_else_decides_which_blocks_are_random() -> None:
    first = pattern(layer(BigBirdConfig(block=1, seed=1), causal=False), 80)
    torch.manual_seed(99)
    assert torch.equal(first, pattern(layer(BigBirdConfig(block=1, seed=1), causal=False), 80))
    assert not torch.equal(first, pattern(layer(BigBirdConfig(block=1, seed=2), causal=False), 80))


def test_a_short_input_changes_nothing_of_what_comes_after_it() -> None:
    """In transformers one short input turns a BigBird into full attention from then on."""
    case = layer(BigBirdConfig(block=4), causal=False)
    x = torch.randn(1, 150, D_MODEL).double()
    before = case(x)
    case(x[:, :3])
    assert torch.equal(case(x), before)


def test_a_causal_pattern_of_a_long_sequence_begins_as_that_of_a_short_one() -> None:
    case = layer(BigBirdConfig(block=2), causal=True)
    assert torch.equal(pattern(case, 90)[:50, :50], pattern(case, 50))


def test_random_blocks_are_spread_over_all_that_may_be_chosen() -> None:
    config = BigBirdConfig(block=1, window=1, global_blocks=0, random_blocks=3)
    seen = pattern(layer(config, causal=False), 400).float()
    times = seen.sum(0) - 1  # how many blocks choose each, 3 in the mean
    assert 0.8 < float(times.var()) / 3 < 1.2
    assert times.max() < 12


def test_its_state_is_as_large_as_documented() -> None:
    case = make("bigbird", causal=True)
    cache = case.start(2)
    case.step(torch.randn(2, 30, D_MODEL).double(), cache)
    assert sum(tensor.numel() for tensor in cache.pasts[0].tensors) == 2 * 30 * 2 * (4 + 3)
