import torch
from mixing import D_MODEL, HEADS, make
from torch.nn import functional

from regard.nn.mixers.chunks import quadratic_sums
from regard.nn.mixers.mamba import Mamba
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def written_out(layer: Mamba, x: torch.Tensor) -> torch.Tensor:
    """The layer by its equations, one sequence and one place after the other."""
    inner, states, width = layer.inner, layer.states, layer.width
    out = []
    for sequence in x:
        state = torch.zeros(HEADS, states, inner // HEADS).double()
        seen = [torch.zeros(layer.mixed).double()] * (width - 1)
        for token in sequence:
            gate, mixed, steps = (layer.input.weight @ token).split([inner, layer.mixed, HEADS])
            seen = [*seen, mixed][-width:]
            near = sum(layer.near[:, tap] * each for tap, each in enumerate(seen))
            near = near + layer.near_bias
            near = near * torch.sigmoid(near)
            value, key, query = near.split([inner, states, states])
            step = torch.log(1 + torch.exp(steps + layer.step_bias))
            y = []
            for head, part in enumerate(value.view(HEADS, -1)):
                decay = torch.exp(-torch.exp(layer.log_rate[head]) * step[head])
                state[head] = decay * state[head] + step[head] * torch.outer(key, part)
                y.append(query @ state[head] + layer.skip[head] * part)
            gated = torch.cat(y) * gate * torch.sigmoid(gate)
            normed = gated / torch.sqrt(gated.square().mean() + 1e-5) * layer.gain
            out.append(layer.output.weight @ normed)
    return torch.stack(out).view(*x.shape)


@torch.no_grad()
def test_the_scan_in_chunks_is_the_recurrence_of_its_equations() -> None:
    case = make("mamba", causal=True)
    assert isinstance(case.layer, Mamba)
    x = torch.randn(2, 70, D_MODEL).double()
    torch.testing.assert_close(case(x), written_out(case.layer, x), **CLOSE)


@torch.no_grad()
def test_its_dual_form_is_attention_under_a_mask_of_decays() -> None:
    case = make("mamba", causal=True)
    layer = case.layer
    assert isinstance(layer, Mamba)
    x = torch.randn(2, 70, D_MODEL).double()
    rows = Span.whole(Positions(), x, causal=True).rows
    gate, mixed, steps = layer.input(x).split([layer.inner, layer.mixed, HEADS], -1)
    query, key, value, decay, skipped = layer.parts(mixed, steps, rows)
    out = quadratic_sums(query, key, value, decay) + layer.skip[:, None, None] * skipped
    gated = out.transpose(1, 2).flatten(-2) * functional.silu(gate)
    wanted = layer.output(functional.rms_norm(gated, (layer.inner,), layer.gain, 1e-5))
    torch.testing.assert_close(case(x), wanted, **CLOSE)


def test_its_state_is_as_large_as_documented() -> None:
    case = make("mamba", causal=True)  # state 5, expand 2, width 4
    cache = case.start(3)
    case.step(torch.randn(3, 50, D_MODEL).double(), cache)
    numbers = sum(tensor.numel() for tensor in cache.pasts[0].tensors)
    assert numbers == 3 * (5 * 2 * D_MODEL + 3 * (2 * D_MODEL + 2 * 5))
