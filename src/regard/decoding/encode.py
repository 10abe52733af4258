"""What an encoder makes of texts: a vector, the label, or the tokens at masked places."""

from collections.abc import Iterator, Sequence

import torch

from regard.decoding.padding import padded, token_batches
from regard.decoding.step import evaluating, full_precision
from regard.errors import NotFiniteError
from regard.models.encoder import Pooling, TextEncoder
from regard.shapes import Bool, Float, Tensor

_BATCH_TOKENS = 8192

Rows = Sequence[Sequence[int]]


@torch.inference_mode()
def embed(
    model: TextEncoder,
    rows: Rows,
    *,
    pooling: Pooling,
    normalize: bool,
    batch_tokens: int = _BATCH_TOKENS,
) -> Float[Tensor, "n d"]:
    """One vector for each row of ids, in order, on the CPU in float32 or better.

    Args:
        pooling: the mean over the tokens, those around the text counted, or the first token's.
        normalize: bring each to length 1; one of zeros stays.
        batch_tokens: bounds the padded tokens of a batch.

    Raises:
        ModelError: the model's output is NaN or infinite.
    """
    vectors_nd = torch.zeros(len(rows), model.config.d_model)
    for places, hidden_bsd, mask_bs in _batches(model, rows, batch_tokens):
        vector_bd = full_precision(model.pool(hidden_bsd, mask_bs, pooling))
        if normalize:
            vector_bd = torch.nn.functional.normalize(vector_bd, dim=-1)
        vectors_nd = vectors_nd.to(vector_bd.dtype)
        vectors_nd[places] = _finite(vector_bd).cpu()
    return vectors_nd


@torch.inference_mode()
def label_shares(
    model: TextEncoder, rows: Rows, *, batch_tokens: int = _BATCH_TOKENS
) -> Float[Tensor, "n c"]:
    """The probability of each label for each row of ids, in order, on the CPU.

    Raises:
        ModelError: the model's output is NaN or infinite.
    """
    shares_nc = torch.zeros(len(rows), model.classes, dtype=torch.float64)
    for places, hidden_bsd, mask_bs in _batches(model, rows, batch_tokens):
        logits_bc = full_precision(model.classify(hidden_bsd, mask_bs))
        shares_nc[places] = _finite(logits_bc).double().softmax(-1).cpu()
    return shares_nc


@torch.inference_mode()
def mask_shares(model: TextEncoder, row: Sequence[int], mask_id: int) -> Float[Tensor, "n v"]:
    """The probability of each token at each masked place of one row of ids, on the CPU.

    Raises:
        ModelError: the model's output is NaN or infinite.
    """
    ids_1s = torch.tensor([list(row)], device=model.output_weight.device)
    with evaluating(model):
        hidden_nd = model(ids_1s)[ids_1s == mask_id]
        logits_nv = full_precision(model.predict(hidden_nd))
    return _finite(logits_nv).double().softmax(-1).cpu()


def _batches(
    model: TextEncoder, rows: Rows, batch_tokens: int
) -> Iterator[tuple[list[int], Float[Tensor, "b s d"], Bool[Tensor, "b s"]]]:
    """Batches of rows of like length: their places, hidden states and where they are tokens."""
    device = model.output_weight.device
    with evaluating(model):
        for places in token_batches(
            [len(row) for row in rows], batch_tokens=batch_tokens, batch_rows=len(rows)
        ):
            ids_bs, mask_bs = padded([rows[place] for place in places], fill=0, device=device)
            yield places, model(ids_bs, mask_bs), mask_bs


def _finite(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    if not bool(x.isfinite().all()):
        raise NotFiniteError(infinite=True)
    return x
