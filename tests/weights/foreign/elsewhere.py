"""Models of transformers, made at random, saved as it saves them, and carried over."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.weights.foreign.families import read
from regard.weights.foreign.model import ForeignModel

CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.float64: {"rtol": 0, "atol": 1e-10}}

# An end token that no model writes.
NEVER = 9999


def wide(model: Any) -> Any:
    """The same in float64 throughout: transformers' RMS norms fall back to float32."""
    for module in model.modules():
        if type(module).__name__.endswith(("RMSNorm", "T5LayerNorm")):
            eps = module.variance_epsilon
            module.forward = partial(_rms_norm, module.weight, eps)
    return model.double()


def _rms_norm(weight: torch.Tensor, eps: float, x: torch.Tensor) -> torch.Tensor:
    return weight.double() * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def shuffled(model: Any, std: float = 0.2) -> Any:
    """All weights random, norms and biases too, lest a swapped pair go unseen."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:  # sinusoids are no weights
            nn.init.normal_(parameter, std=std)
    if hasattr(model, "final_logits_bias"):
        nn.init.normal_(model.final_logits_bias)
    model.tie_weights()
    return model.eval()


def saved(model: Any, path: Path) -> Path:
    model.save_pretrained(path)
    return path


def ours(found: ForeignModel) -> Any:
    """A model of ours with those weights, all of which must fit."""
    config, size = found.config, next(iter(found.weights.values())).shape
    match config:
        case TransformerConfig():
            source = len(found.weights["source_embedding.weight"])
            target = len(found.weights.get("target_embedding.weight", torch.empty(source)))
            model: Any = build_model(
                config, source_vocabulary=source, target_vocabulary=target, seed=1
            )
        case DecoderConfig():
            size = len(found.weights["embedding.weight"])
            model = build_language_model(config, vocabulary=size, seed=1)
        case EncoderConfig():
            size = len(found.weights["embedding.weight"])
            model = build_encoder(config, vocabulary=size, seed=1, classes=len(found.labels))
    model.load_state_dict(dict(found.weights), strict=True)
    return model.eval()


def carried(model: Any, path: Path) -> tuple[ForeignModel, Any]:
    found = read(saved(model, path))
    return found, ours(found)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, **CLOSE[theirs.dtype])


def greedy_matches(theirs: Any, model: Any, ids: torch.Tensor, tokens: int = 12) -> None:
    """A language model goes on token by token as transformers' own search does, unstopped."""
    wanted = theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=NEVER,
        pad_token_id=0,
    )[:, ids.shape[1] :]
    cache, found = model.start(len(ids)), []
    hidden = model.step(ids, cache)
    for _ in range(tokens):
        found.append(model.project(hidden[:, -1]).argmax(-1, keepdim=True))
        hidden = model.step(found[-1], cache)
    assert torch.equal(torch.cat(found, 1), wanted)


def greedy_translations_match(theirs: Any, model: Any, ids: Any, mask: Any, start: int) -> None:
    """An encoder-decoder writes token by token what transformers' own search does."""
    tokens = 12
    wanted = theirs.generate(
        ids,
        attention_mask=mask.long(),
        max_new_tokens=tokens,
        num_beams=1,
        do_sample=False,
        forced_eos_token_id=None,
        eos_token_id=NEVER,
    )
    cache = model.start(model.encode(ids, mask), mask)
    found = [torch.full((len(ids), 1), start)]
    for _ in range(tokens):
        hidden, _ = model.step(found[-1], cache)
        found.append(model.project(hidden[:, -1]).argmax(-1, keepdim=True))
    assert torch.equal(torch.cat(found, 1), wanted)
