"""The weights of attention of a pass, for whoever wants to look at them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn

from regard.arguments import items_of, require, shown, whole_number
from regard.errors import ModelError, RegardError
from regard.nn.attention import Heads, MultiHeadAttention
from regard.nn.cache import KeysValues
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.span import Span
from regard.shapes import Tensor

_ALL: Final = "Leave it out for all of them."


@contextmanager
def recorded_attention(
    model: nn.Module, *, layers: Sequence[str] | None = None, heads: Sequence[int] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Let the attention of a model record its weights in the block, by the layers' names.

    Whatever form a layer has, the weights are those of its plain form, computed anew besides the
    pass (`Mixer.weights`): rows that sum to 1 over the places that are seen, `b h q k`, without
    a gradient. Names are those of modules: `encoder_layers.0.self_attention`,
    `decoder_layers.5.cross_attention`, `layers.0.self_attention`. Layers without such weights
    (recurrences, convolutions) have none. A later pass in the block takes the place of an earlier.

    ```python
    model = regard.load("runs/ende").model
    with recorded_attention(model, layers=["decoder_layers.1.cross_attention"], heads=[0]) as found:
        model(source_ids, target_ids)
    found["decoder_layers.1.cross_attention"]  # 1 x 1 x target tokens x source tokens
    ```

    Args:
        model: a model of any family.
        layers: names of the layers that record; None = all that have weights.
        heads: which heads, in the order of the results; None = all.

    Raises:
        RegardError: `model` is no model, `layers` no list of names, or `heads` no list of one whole
            number or more.
        ModelError: a named layer has no weights of attention or does not exist, or has not so
            many heads; or the pass is a step of decoding, whose past has no vectors to look at.
    """
    hint = "Give the model itself: that of a Translator is its .model."
    require(model, nn.Module, "model", "a model", hint=hint)
    if layers is not None:
        layers = items_of(layers, "layers", "a list of names")
    if heads is not None:
        numbers = items_of(heads, "heads", "a list of whole numbers")
        heads = [whole_number(each, f"heads[{at}]") for at, each in enumerate(numbers)]
        if not heads:
            raise RegardError("expected at least one, got none", where="heads", hint=_ALL)
    known = {name: part for name, part in model.named_modules() if isinstance(part, Heads)}
    for name in layers or ():
        if name not in known:
            raise ModelError(
                f"{shown(name)} has no weights of attention; these have: {', '.join(known)}",
                where="layers",
            )
    found: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name in known if layers is None else layers:
            part = known[name]
            part.chosen(heads)
            if isinstance(part, MultiHeadAttention):
                stack.enter_context(_crossing(part, name, heads, found))
            elif isinstance(part, Mixer):
                hook = _before(name, heads, found)
                handle = part.register_forward_pre_hook(hook, with_kwargs=True)
                stack.callback(handle.remove)
        yield found


def _before(
    name: str, heads: Sequence[int] | None, found: dict[str, Tensor]
) -> Callable[[Mixer, tuple[Any, ...], dict[str, Any]], None]:
    """A hook that records what a layer is about to weigh with."""

    def record(layer: Mixer, places: tuple[Any, ...], named: dict[str, Any]) -> None:
        span: Span = named["span"] if "span" in named else places[1]
        if named.get("past") is not None:
            raise ModelError("recorded_attention is for whole passes, and this is a step")
        with torch.no_grad():
            found[name] = layer.weights(places[0], span, heads)

    return record


@contextmanager
def _crossing(
    part: MultiHeadAttention, name: str, heads: Sequence[int] | None, found: dict[str, Tensor]
) -> Iterator[None]:
    """Record the attention to a memory, which is no forward pass that torch would tell of."""
    former = vars(part).get("cross")  # of a block around this one
    plain = part.cross

    def cross(x: Tensor, memory: KeysValues, mask: Tensor | None = None, **named: Any) -> Tensor:  # noqa: ANN401 - passed on
        with torch.no_grad():
            found[name] = part.cross_weights(x, memory, mask, heads)
        return plain(x, memory, mask, **named)

    part.cross = cross  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        if former is None:
            del part.cross
        else:
            part.cross = former  # type: ignore[method-assign]
