import math

import pytest
import torch

from regard.errors import ModelError
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

TINY = TransformerConfig(d_model=8, num_heads=2, d_ff=16, encoder_layers=2, decoder_layers=1)


def build(config: TransformerConfig = TINY, seed: int = 1) -> Transformer:
    return build_model(config, source_vocabulary=20, target_vocabulary=20, seed=seed)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    first, second, other = build().state_dict(), build().state_dict(), build(seed=2).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    name = "encoder_layers.0.self_attention.input.weight"
    assert not torch.equal(first[name], other[name])


def test_building_leaves_the_global_generator_as_it_was() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    build()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("tying", "tables"),
    [
        ("three_way", {"source_embedding.weight"}),
        ("two_way", {"source_embedding.weight", "target_embedding.weight"}),
        ("none", {"source_embedding.weight", "target_embedding.weight", "projection.weight"}),
    ],
)
def test_what_is_tied_is_one_tensor_saved_once(tying: str, tables: set[str]) -> None:
    model = build(TINY.model_copy(update={"tying": tying}))
    state = model.state_dict()
    assert {name for name in state if state[name].shape == (20, 8)} == tables
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    assert (model.output_weight is model.target_table) == (tying != "none")
    assert (model.target_table is model.source_embedding.weight) == (tying == "three_way")


def test_first_weights_are_the_documented_draws() -> None:
    config = TransformerConfig(d_model=64, num_heads=2, d_ff=256, tying="none")
    model = build_model(config, source_vocabulary=500, target_vocabulary=400, seed=3)
    for name, tensor in model.named_parameters():
        if name.endswith("bias"):
            assert (tensor == 0).all(), name
        elif "norm" in name:
            assert (tensor == 1).all(), name
        elif "embedding" in name or "projection" in name:
            assert tensor.std().item() == pytest.approx(64**-0.5, rel=0.05), name
        else:
            for matrix in tensor.split(64) if name.endswith("attention.input.weight") else [tensor]:
                bound = math.sqrt(6 / sum(matrix.shape))
                assert matrix.abs().max().item() == pytest.approx(bound, rel=0.05), name


def test_vocabularies_that_differ_are_refused_with_three_way_tying() -> None:
    with pytest.raises(ModelError, match="the vocabularies differ: 20 source ids, 21 target ids"):
        build_model(TINY, source_vocabulary=20, target_vocabulary=21, seed=1)


def test_a_model_built_on_the_meta_device_takes_saved_weights() -> None:
    model = build().eval()
    with torch.device("meta"):
        empty = Transformer(TINY, source_vocabulary=20, target_vocabulary=20)
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 6]])
    assert torch.equal(empty.eval()(source, target), model(source, target))
