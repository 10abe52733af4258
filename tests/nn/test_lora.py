import copy

import pytest
import torch

from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.nn.config import LoraConfig
from regard.nn.lora import adapt, merge, merged_weights, saved_name

IDS = torch.tensor([[3, 4, 5, 6]])


def seq2seq() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    config = TransformerConfig(d_model=8, num_heads=2, d_ff=16, encoder_layers=1, decoder_layers=1)
    return build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1), (IDS, IDS)


def decoder() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    config = DecoderConfig(d_model=8, num_heads=2, num_kv_heads=1, d_ff=16, num_layers=2)
    return build_language_model(config, vocabulary=20, seed=1), (IDS,)


def encoder() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    config = EncoderConfig(d_model=8, num_heads=2, d_ff=16, num_layers=2)
    return build_encoder(config, vocabulary=20, seed=1, classes=3), (IDS,)


@pytest.mark.parametrize("make", [seq2seq, decoder, encoder])
@pytest.mark.parametrize("targets", ["attention", "feed_forward", "both"])
def test_adaptation_trains_the_sums_alone_and_merges_to_the_bit(make, targets: str) -> None:  # noqa: ANN001
    model, inputs = make()
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = model(*inputs)
    config = LoraConfig(rank=2, alpha=4.0, targets=targets)
    adapt(model, config, seed=1, trained=("classifier",))
    assert torch.equal(model(*inputs), expected)  # B is zero at first
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(*inputs).pow(2).sum().backward()
        optimizer.step()
    tuned = model(*inputs)
    assert not torch.allclose(tuned, expected)
    named = {saved_name(name): tensor for name, tensor in model.state_dict().items()}
    kept = {name for name in before if torch.equal(named[name], before[name])}
    assert kept == set(before)
    small = {
        saved_name(name): parameter.detach()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    assert {name.rpartition(".")[2] for name in small} <= {"lora_a", "lora_b", "weight", "bias"}
    merged = merged_weights(before, small, config.alpha)
    merge(model)
    assert torch.equal(model(*inputs), tuned)
    state = model.state_dict()
    assert state.keys() == merged.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in merged.items())


def test_the_same_seed_gives_the_same_sums_and_leaves_the_generator_alone() -> None:
    model, _ = decoder()
    other = copy.deepcopy(model)
    state = torch.get_rng_state()
    adapt(model, LoraConfig(rank=2), seed=5)
    torch.manual_seed(9)
    adapt(other, LoraConfig(rank=2), seed=5)
    torch.set_rng_state(state)
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


def test_a_factor_without_its_matrix_or_its_other_half_is_named() -> None:
    base = {"x.weight": torch.zeros(2, 2)}
    with pytest.raises(KeyError, match=r"y\.weight"):
        factors = {"y.weight.lora_a": torch.zeros(1, 2), "y.weight.lora_b": torch.zeros(2, 1)}
        merged_weights(base, factors, 1.0)
    with pytest.raises(KeyError, match=r"x\.weight\.lora_b"):
        merged_weights(base, {"x.weight.lora_a": torch.zeros(1, 2)}, 1.0)
    with pytest.raises(KeyError, match=r"x\.weight\.lora_a"):
        merged_weights(base, {"x.weight.lora_b": torch.zeros(2, 1)}, 1.0)
