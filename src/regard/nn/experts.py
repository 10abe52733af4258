"""A feed-forward of several experts, of which a router gives each token to a few."""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from regard.kernels.products import linear
from regard.nn.config import ExpertsConfig, FeedForwardKind, PlainActivation
from regard.nn.dropout import Dropout
from regard.nn.feed_forward import GATES, activate
from regard.shapes import Bool, Float, Int, Tensor


class Routing(NamedTuple):
    """What a router said of each place of a pass, and whom it chose.

    Attributes:
        logits: `places x experts`, before the softmax; never narrower than float32.
        chosen: `places x top`, the experts that compute it, the likeliest first.
    """

    logits: Tensor
    chosen: Tensor


class Experts(nn.Module):
    """`sum_e g_e(x) expert_e(x)` over the `top` experts that the router finds likeliest for x.

    `g = softmax(W_r x)` at those experts; where there are several, over their sum. Every token
    goes to all of its experts, however many others do, so that it is the same alone and in a
    batch. The places are sorted by expert, and each expert is one pair of matrix products.

    All experts' matrices are one tensor each, so that an expert which nobody chose has a
    gradient too, of zeros. Their biases are vectors, as all biases are.

    Source: Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961 (one
    expert); Lepikhin et al. 2020, arXiv:2006.16668 (two, over their sum). Those drop what goes
    over an expert's capacity; here nothing is dropped.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        config: ExpertsConfig,
        *,
        kind: FeedForwardKind,
        bias: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.number, self.top = config.number, config.top
        self.activation: PlainActivation
        match kind:
            case "swiglu" | "geglu" | "geglu_tanh":
                self.gated, self.activation = True, GATES[kind]
            case _:
                self.gated, self.activation = False, kind
        rows = 2 * d_ff if self.gated else d_ff
        self.router = nn.Linear(d_model, self.number, bias=False)
        self.input_weight = nn.Parameter(torch.empty(self.number, rows, d_model))
        self.output_weight = nn.Parameter(torch.empty(self.number, d_model, d_ff))
        self.input_bias = nn.Parameter(torch.zeros(self.number * rows)) if bias else None
        self.output_bias = nn.Parameter(torch.zeros(self.number * d_model)) if bias else None
        self.dropout = Dropout(dropout)
        self.record: list[Routing] | None = None
        nn.init.xavier_uniform_(self.router.weight)
        with torch.no_grad():
            for expert in (*self.input_weight, *self.output_weight):
                for matrix in expert.chunk(2 if self.gated and len(expert) == rows else 1):
                    nn.init.xavier_uniform_(matrix)

    def forward(self, x: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """Each vector by itself through its experts; `record` is told what the router said."""
        x_nd = x.reshape(-1, x.shape[-1])
        logits_ne = self.route(x_nd)
        gates_nk, chosen_nk = self.choose(logits_ne)
        if self.record is not None:
            places = x.shape[:-1]
            self.record.append(
                Routing(logits_ne.view(*places, -1), chosen_nk.detach().view(*places, -1))
            )
        if not len(x_nd):
            return torch.zeros_like(x)
        order_m = chosen_nk.flatten().argsort(stable=True)
        back_m = torch.empty_like(order_m)
        back_m[order_m] = torch.arange(len(order_m), device=order_m.device)
        counts = chosen_nk.flatten().bincount(minlength=self.number).tolist()
        out_md = self._each(_dealt(x_nd, order_m, back_m, self.top), counts)
        out_nkd = _dealt(out_md, back_m, order_m, 1).view(-1, self.top, x.shape[-1])
        y_nd = (out_nkd * gates_nk.to(out_nkd.dtype)[..., None]).sum(1)
        return y_nd.view_as(x)

    def route(self, x_nd: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """The router's logits, in float32 at least: they decide, and small steps count."""
        wide = torch.promote_types(x_nd.dtype, torch.float32)
        with torch.autocast(x_nd.device.type, enabled=False):
            return functional.linear(x_nd.to(wide), self.router.weight.to(wide))

    def choose(
        self, logits_ne: Float[Tensor, "n e"]
    ) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
        """How much each place takes from which experts, the likeliest first.

        With one expert a place that is its probability, without which the router would learn
        nothing from the loss; with several, the probabilities over their sum.
        """
        gates_nk, chosen_nk = logits_ne.softmax(-1).topk(self.top, dim=-1)
        if self.top > 1:
            gates_nk = gates_nk / gates_nk.sum(-1, keepdim=True)
        return gates_nk, chosen_nk

    def expert(self, number: int, x_nd: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """One expert, of all vectors."""
        counts = [0] * self.number
        counts[number] = len(x_nd)
        return self._each(x_nd, counts)

    def _each(self, x_md: Tensor, counts: list[int]) -> Tensor:
        """Every expert of its own stretch of places, one after the other."""
        # One split of each tensor, whose backward pass puts all experts' gradients together once.
        inputs, outputs = self.input_weight.unbind(), self.output_weight.unbind()
        input_biases, output_biases = self._biases(self.input_bias), self._biases(self.output_bias)
        made = []
        for number, part_cd in enumerate(torch.split(x_md, counts)):
            if not len(part_cd):
                continue
            inner = linear(part_cd, inputs[number], input_biases[number])
            if self.gated:
                gate, inner = inner.chunk(2, dim=-1)
                inner = activate(gate, self.activation) * inner
            else:
                inner = activate(inner, self.activation)
            inner = self.dropout(inner)
            made.append(linear(inner, outputs[number], output_biases[number]))
        return torch.cat(made)

    def _biases(self, bias: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None,) * self.number if bias is None else bias.view(self.number, -1).unbind()


class _Dealt(torch.autograd.Function):
    """Row `order[m] // copies` at place m, for an order of `copies` of each row.

    The backward pass gathers too, by the inverse order: nothing is added in an order that
    differs from one time to the next, and on a CPU it is faster than adding to rows.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        x_nd: Tensor,
        order_m: Tensor,
        back_m: Tensor,
        copies: int,
    ) -> Tensor:
        ctx.save_for_backward(back_m)
        ctx.copies = copies
        return x_nd.index_select(0, order_m if copies == 1 else order_m // copies)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (back_m,) = ctx.saved_tensors
        back_md = outer[0].index_select(0, back_m)
        if ctx.copies > 1:
            back_md = back_md.view(-1, ctx.copies, back_md.shape[-1]).sum(1)
        return back_md, None, None, None


def _dealt(x_nd: Tensor, order_m: Tensor, back_m: Tensor, copies: int) -> Tensor:
    moved: Tensor = _Dealt.apply(x_nd, order_m, back_m, copies)  # type: ignore[no-untyped-call]
    return moved


def balance_losses(
    routing: Routing, mask_bq: Bool[Tensor, "b q"] | None = None
) -> Float[Tensor, " b"]:
    """For each row `E sum_e f_e P_e`: 1 where its tokens are spread evenly, up to E where not.

    f_e is the share of the row's choices that fell on expert e, P_e the mean of e's probability
    over its tokens, and E the number of experts. Only P has a gradient. Places where the mask is
    False count nothing; a row without tokens has a loss of 0.

    Each row of a batch is a group of its own, so that the loss is the same however rows are put
    into batches, parts and processes.

    Source: Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6; the groups: Lepikhin et al.
    2020, arXiv:2006.16668, algorithm 1.
    """
    number = routing.logits.shape[-1]
    share_bqe = functional.one_hot(routing.chosen, number).sum(-2).to(routing.logits.dtype)
    share_be = _row_means(share_bqe / routing.chosen.shape[-1], mask_bq)
    mean_be = _row_means(routing.logits.softmax(-1), mask_bq)
    return number * (share_be * mean_be).sum(-1)


def z_losses(routing: Routing, mask_bq: Bool[Tensor, "b q"] | None = None) -> Float[Tensor, " b"]:
    """For each row the mean of `logsumexp(logits)^2` over its tokens, which keeps logits small.

    Source: Zoph et al. 2022 (ST-MoE), arXiv:2202.08906, equation 5.
    """
    return _row_means(routing.logits.logsumexp(-1).square()[..., None], mask_bq)[:, 0]


def _row_means(x_bqe: Tensor, mask_bq: Tensor | None) -> Tensor:
    if mask_bq is None:
        return x_bqe.mean(1)
    tokens_b1 = mask_bq.sum(1, keepdim=True).clamp(min=1)
    return x_bqe.masked_fill(~mask_bq[..., None], 0.0).sum(1) / tokens_b1
