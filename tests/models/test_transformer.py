import pytest
import torch

from regard.errors import ModelError
from regard.kernels import attention as kernel
from regard.kernels import native
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import LearnedConfig
from regard.nn.dropout import Dropout

SHAPE = {"d_model": 8, "num_heads": 2, "d_ff": 16, "encoder_layers": 2, "decoder_layers": 3}
SOURCE = torch.tensor([[3, 4, 5], [6, 7, 0]])
SOURCE_MASK = SOURCE != 0
TARGET = torch.tensor([[1, 8], [1, 9]])


def build(**settings: object) -> Transformer:
    config = TransformerConfig.model_validate({**SHAPE, **settings})
    return build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1)


@pytest.mark.parametrize("ask", ["encode", "decode", "step"])
def test_a_text_longer_than_the_learned_positions_is_refused_before_anything_is_computed(
    ask: str,
) -> None:
    model = build(positions=LearnedConfig(max_positions=4)).eval()
    long = torch.full((1, 5), 3)
    memory = model.encode(long[:, :4])
    cache = model.start(memory)
    model.step(long[:, :4], cache)
    wrong = ModelError, "a sequence of 5 tokens is longer than the 4 learned positions of the model"
    with pytest.raises(wrong[0], match=wrong[1]):
        if ask == "encode":
            model.encode(long)
        elif ask == "decode":
            model.decode(long, memory)
        else:
            model.step(long[:, :1], cache)
    assert cache.length == 4


def test_padding_does_not_count_against_the_learned_positions() -> None:
    model = build(positions=LearnedConfig(max_positions=3)).eval()
    padded = torch.tensor([[0, 0, 3, 4, 5]])
    expected = model.encode(padded[:, 2:])
    torch.testing.assert_close(model.encode(padded, padded != 0)[:, 2:], expected)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("feed_forward", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("tying", ["three_way", "two_way", "none"])
def test_every_parameter_gets_a_gradient(norm_position: str, feed_forward: str, tying: str) -> None:
    model = build(norm_position=norm_position, feed_forward=feed_forward, tying=tying)
    model(SOURCE, TARGET, SOURCE_MASK).square().sum().backward()
    missing = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    # A bias of keys adds the same to every score of a query, which the softmax takes out; its
    # part of `input.bias` is 0 up to rounding, the rest is not.
    assert missing == set()


def test_each_dropout_acts_where_it_should() -> None:
    seen: list[tuple[float, tuple[int, ...]]] = []
    model = build(dropout=0.25, activation_dropout=0.5)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(
                lambda dropout, _, out: seen.append((dropout.probability, tuple(out.shape)))
            )
    model(SOURCE, TARGET, SOURCE_MASK)
    encoder_layer = [(0.25, (2, 3, 8)), (0.5, (2, 3, 16)), (0.25, (2, 3, 8))]
    decoder_layer = [(0.25, (2, 2, 8)), (0.25, (2, 2, 8)), (0.5, (2, 2, 16)), (0.25, (2, 2, 8))]
    expected = [(0.25, (2, 3, 8)), *encoder_layer * 2, (0.25, (2, 2, 8)), *decoder_layer * 3]
    assert seen == expected


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_alone_makes_training_random(name: str) -> None:
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    torch.manual_seed(0)
    model = build(**quiet)
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model = build(**{**quiet, name: 0.5})
    assert not torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_bfloat16_autocast_is_near_float32_also_step_by_step(norm_position: str) -> None:
    model = build(norm_position=norm_position).eval()
    expected = model(SOURCE, TARGET, SOURCE_MASK)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(SOURCE, TARGET, SOURCE_MASK)
        cache = model.start(model.encode(SOURCE, SOURCE_MASK), SOURCE_MASK)
        hidden = [model.step(TARGET[:, i : i + 1], cache)[0] for i in range(2)]
        stepped = model.project(torch.cat(hidden, 1))
    torch.testing.assert_close(logits.float(), expected, rtol=0.1, atol=0.1)
    torch.testing.assert_close(stepped.float(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("padding", ["none", "right", "left", "between"])
def test_the_attention_kernel_changes_neither_hidden_states_nor_gradients(
    padding: str, norm_position: str, used: list[bool]
) -> None:
    source = torch.arange(60).view(2, 30) % 17 + 3
    target = torch.arange(54).view(2, 27) % 15 + 3
    mask: torch.Tensor | None = torch.ones(2, 30, dtype=torch.bool)
    places = {"right": slice(23, 30), "left": slice(0, 7), "between": slice(9, 11)}
    if padding == "none":
        mask = None
    else:
        mask[1, places[padding]] = False

    def run(model: Transformer) -> list[torch.Tensor]:
        made = model.decode(target, model.encode(source, mask), mask)
        parts = [each for name, each in model.named_parameters() if "decoder_layers" in name]
        return [made, *torch.autograd.grad(made.square().mean(), parts)]

    model = build(norm_position=norm_position, dropout=0.0)
    mine = run(model)
    # Two layers of the encoder; in each of three of the decoder one to itself, one to the memory.
    assert used == [True] * (3 if padding == "between" else 8)
    exact = run(model.double())
    for got, wanted in zip(mine, exact, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)


def test_a_step_attends_to_the_memory_as_a_whole_pass_does_with_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "_fast", lambda: not native.absence())
    model = build().eval()
    target = torch.arange(54).view(2, 27) % 15 + 3
    source = torch.arange(60).view(2, 30) % 17 + 3
    mask = torch.arange(30) < torch.tensor([[30], [11]])
    memory = model.encode(source, mask)
    cache = model.start(memory, mask)
    stepped = torch.cat([model.step(target[:, i : i + 1], cache)[0] for i in range(27)], 1)
    torch.testing.assert_close(stepped, model.decode(target, memory, mask), rtol=1e-5, atol=1e-5)
