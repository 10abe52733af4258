"""The sequence layers of other libraries, with the weights of ours carried over.

Each function takes one of our layers and gives a function of the same x that calls the other
library's own module, with its parameters in it for a backward pass.
"""

import torch
from torch import nn
from torch.nn import functional

from regard.nn.attention import Heads
from regard.nn.mixers.bigbird import BigBirdAttention
from regard.nn.mixers.linear import PerformerAttention
from regard.nn.mixers.recurrent import Recurrence
from regard.nn.mixers.window import WindowAttention


class Peer(nn.Module):
    """Another library's module before, where it has none itself, a last projection."""

    def __init__(self, inner: nn.Module, output: nn.Linear | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.output = None if output is None else copy_of(output)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        y = y[0] if isinstance(y, tuple) else y
        return y if self.output is None else self.output(y)


def copy_of(linear: nn.Linear) -> nn.Linear:
    """Another with the same weights."""
    made = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    made.load_state_dict(linear.state_dict())
    return made.to(linear.weight.dtype)


@torch.no_grad()
def carry(ours: Heads, *theirs: nn.Linear) -> None:
    """Copy the projections of queries, keys and values."""
    for part, linear in enumerate(theirs):
        linear.weight.copy_(torch.split(ours.input.weight, ours.widths)[part])
        if ours.input.bias is not None:
            linear.bias.copy_(torch.split(ours.input.bias, ours.widths)[part])


class ByTorch(nn.Module):
    """Attention as anyone writes it with torch's fused product."""

    def __init__(self, ours: Heads, *, causal: bool) -> None:
        super().__init__()
        self.input, self.output = copy_of(ours.input), copy_of(ours.output)
        self.heads, self.causal = ours.num_heads, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        query, key, value = self.input(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(y.transpose(1, 2).flatten(2))


def torch_multihead(ours: Heads) -> Peer:
    """`torch.nn.MultiheadAttention`, seeing all."""

    class SelfAttention(nn.MultiheadAttention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x, x, x, need_weights=False)[0]

    theirs = SelfAttention(ours.input.in_features, ours.num_heads, batch_first=True)
    theirs.in_proj_weight.data.copy_(ours.input.weight)
    theirs.in_proj_bias.data.copy_(ours.input.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return Peer(theirs)


def x_transformers(ours: Heads, *, causal: bool) -> Peer:
    """x-transformers' attention, by its fused form; it has no biases."""
    from x_transformers.x_transformers import Attention

    theirs = Attention(
        ours.input.in_features, dim_head=ours.d_k, heads=ours.num_heads, causal=causal, flash=True
    )
    carry(ours, theirs.to_q, theirs.to_k, theirs.to_v)
    theirs.to_out.load_state_dict(ours.output.state_dict())
    return Peer(theirs)


def local_attention(ours: WindowAttention) -> Peer:
    """The local attention that x-transformers' author has as a library; it has no biases."""
    from local_attention import LocalMHA

    theirs = LocalMHA(
        dim=ours.input.in_features,
        window_size=ours.back,
        dim_head=ours.d_k,
        heads=ours.num_heads,
        causal=ours.causal,
        use_rotary_pos_emb=False,
    )
    theirs.to_qkv.load_state_dict(ours.input.state_dict())
    theirs.to_out.load_state_dict(ours.output.state_dict())
    return Peer(theirs)


@torch.no_grad()
def performer(ours: PerformerAttention) -> Peer:
    """performer-pytorch's attention with the same random features; it has no biases."""
    from performer_pytorch import SelfAttention

    theirs = SelfAttention(
        ours.input.in_features,
        causal=ours.causal,
        heads=ours.num_heads,
        dim_head=ours.d_k,
        nb_features=len(ours.directions_fe),
        attn_out_bias=False,
    )
    carry(ours, theirs.to_q, theirs.to_k, theirs.to_v)
    theirs.to_out.load_state_dict(ours.output.state_dict())
    theirs.fast_attention.projection_matrix.copy_(ours.directions_fe)
    return Peer(theirs)


def longformer(ours: WindowAttention, length: int) -> Peer:
    """transformers' Longformer attention; its projections for global tokens are the others."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    class Longformer(LongformerSelfAttention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            is_global = (torch.arange(length) < ours.global_tokens).expand(len(x), -1)
            return super().forward(
                x,
                attention_mask=torch.where(is_global, 10000.0, 0.0).to(x.dtype),
                is_index_masked=torch.zeros_like(is_global),
                is_index_global_attn=is_global,
                is_global_attn=ours.global_tokens > 0,
            )

    theirs = Longformer(
        LongformerConfig(
            hidden_size=ours.input.in_features,
            num_attention_heads=ours.num_heads,
            attention_window=[2 * ours.back],
            attention_probs_dropout_prob=0.0,
        ),
        0,
    )
    carry(ours, theirs.query, theirs.key, theirs.value)
    carry(ours, theirs.query_global, theirs.key_global, theirs.value_global)
    return Peer(theirs, ours.output)


def bigbird(ours: BigBirdAttention, length: int, plan: list[list[int]] | None = None) -> Peer:
    """transformers' BigBird attention; `plan` has the random blocks of all but the outer blocks.

    It keeps two blocks global, the first and the last; ours keeps the first ones.
    """
    import numpy as np
    from transformers import BigBirdConfig, BigBirdModel
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

    class BigBird(BigBirdBlockSparseAttention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ones = torch.ones(x.shape[:2], dtype=x.dtype)
            masks = BigBirdModel.create_masks_for_block_sparse_attn(ones, ours.block)
            blocked, band, from_mask, to_mask = masks
            return super().forward(
                x,
                band_mask=band,
                from_mask=from_mask,
                to_mask=to_mask,
                from_blocked_mask=blocked,
                to_blocked_mask=blocked,
            )

        def _bigbird_block_rand_mask_with_head(self, *places: int, **named: int) -> list:
            if plan is None:
                return super()._bigbird_block_rand_mask_with_head(*places, **named)
            return [np.array(plan)] * ours.num_heads

    theirs = BigBird(
        BigBirdConfig(
            hidden_size=ours.input.in_features,
            num_attention_heads=ours.num_heads,
            num_random_blocks=ours.random_blocks,
            block_size=ours.block,
            max_position_embeddings=length,
            use_bias=True,
        ),
        seed=0,
    )
    carry(ours, theirs.query, theirs.key, theirs.value)
    return Peer(theirs, ours.output)


def torch_recurrence(ours: Recurrence) -> Peer:
    """`torch.nn.RNN`, `LSTM` or `GRU`, and a projection."""
    cell = ours.cell
    theirs = type(cell)(
        cell.input_size, cell.hidden_size, batch_first=True, bidirectional=cell.bidirectional
    )
    theirs.load_state_dict(cell.state_dict())
    return Peer(theirs, ours.output)
