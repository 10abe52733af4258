import pytest
import torch
from mixing import D_MODEL, make

from regard.errors import ModelError
from regard.nn.mixers.linformer import Linformer

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def test_it_is_softmax_attention_to_mixtures_of_keys_and_values() -> None:
    case, x = make("linformer", causal=False), torch.randn(2, 30, D_MODEL).double()
    layer = case.layer
    assert isinstance(layer, Linformer)
    query, seen = layer.project(x)
    key = torch.einsum("rl,bhle->bhre", layer.keys_rl[:, :30], seen.key_bhke)
    value = torch.einsum("rl,bhle->bhre", layer.values_rl[:, :30], seen.value_bhkw)
    key, value = (part.repeat_interleave(2, 1) for part in (key, value))
    scores = torch.einsum("bhqe,bhre->bhqr", query, key) / 2  # d_k is 4
    wanted = layer.join(torch.einsum("bhqr,bhrw->bhqw", scores.softmax(-1), value))
    torch.testing.assert_close(case(x), wanted, **CLOSE)


def test_a_sequence_longer_than_its_mixtures_is_refused() -> None:
    case = make("linformer", causal=False)
    with pytest.raises(ModelError) as caught:
        case(torch.randn(1, 46, D_MODEL).double())
    assert str(caught.value) == (
        "a sequence of 46 tokens is longer than the 45 places of a Linformer\n"
        "  split the text, or train with a larger mixer.length"
    )
