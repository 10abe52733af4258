"""What theory says of each layer: the articles' complexity table, projections included."""

from typing import assert_never

from regard.compare.results import Order, Theory
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    GRUConfig,
    LinearConfig,
    LinformerConfig,
    LSTMConfig,
    MambaConfig,
    MixerConfig,
    PerformerConfig,
    RNNConfig,
    SSRUConfig,
    WindowConfig,
)


def theory_of(  # noqa: PLR0911 - one for each kind
    config: MixerConfig, *, causal: bool, fused: bool = False
) -> Theory:
    """The orders of a layer: n places, d wide.

    The exponents are those of the leading term for long sequences, and for wide vectors. Every
    layer has projections, n d^2, which the articles' table leaves out; they are what grows with
    the square of d.

    Args:
        config: the kind and its settings, letters in the formulas.
        causal: whether it sees the past only.
        fused: full attention that never holds all its scores (Dao et al. 2022,
            arXiv:2205.14135).

    Source: Vaswani et al. 2017, table 1; the papers that the configs name.
    """
    match config:
        case FullConfig() if fused:
            return _theory("n^2 d + n d^2", "n d", time=2.0, path="1", decode=("n d + d^2", "n d"))
        case FullConfig():
            return _theory(
                "n^2 d + n d^2", "h n^2 + n d", time=2.0, memory=2.0, path="1",
                decode=("n d + d^2", "n d"),
            )  # fmt: skip
        case WindowConfig():
            return _theory(
                "n w d + n d^2", "n (w + d)", path="n / w", decode=("w d + d^2", "w d"),
                causal=causal,
            )  # fmt: skip
        case BigBirdConfig():
            # A causal block sees a few at random among all before it: by chance halfway back.
            return _theory(
                "n b d + n d^2", "n (b + d)", path="log n" if causal else "2",
                decode=("n d + d^2", "n d"), causal=causal,
            )  # fmt: skip
        case LinformerConfig():
            return _theory("n r d + n d^2", "n (r + d)", path="1", causal=causal)
        case LinearConfig():
            return _theory(
                "n d^2", "n d", sequential=_sums(causal), path="1", decode=("d^2", "d^2"),
                causal=causal,
            )  # fmt: skip
        case PerformerConfig():
            return _theory(
                "n f d + n d^2", "n (f + d)", sequential=_sums(causal), path="1",
                decode=("f d + d^2", "f d"), causal=causal,
            )  # fmt: skip
        case RNNConfig() | LSTMConfig() | GRUConfig():
            return _theory(
                "n d^2", "n d", sequential="n", path="n steps of 1 layer", decode=("d^2", "d"),
                causal=causal,
            )  # fmt: skip
        case SSRUConfig():
            return _theory(
                "n d^2", "n d", sequential="n", path="n steps of 1 layer", decode=("d^2", "d")
            )
        case ConvolutionConfig():
            return _theory("n k d^2", "n k d", path="n / k", decode=("k d^2", "k d"), causal=causal)
        case MambaConfig():
            return _theory(
                "n s d + n d^2", "n d", sequential=_sums(True), path="n steps of 1 layer",
                decode=("s d + d^2", "s d"),
            )  # fmt: skip
        case _ as never:
            assert_never(never)


def _sums(causal: bool) -> str:
    """Operations after one another: sums over the past go from chunk to chunk of 64 places."""
    return "n / 64, log n at best" if causal else "1"


def _theory(
    time_formula: str,
    memory_formula: str,
    *,
    time: float = 1.0,
    memory: float = 1.0,
    sequential: str = "1",
    path: str,
    decode: tuple[str, str] = ("", ""),
    causal: bool = True,
) -> Theory:
    """A row of the table; both exponents in d are the same for all layers."""
    return Theory(
        time_n=Order(formula=time_formula, exponent=time),
        memory_n=Order(formula=memory_formula, exponent=memory),
        time_d=Order(formula=time_formula, exponent=2.0),
        memory_d=Order(formula=memory_formula, exponent=1.0),
        sequential=sequential,
        path=path,
        decode_time=decode[0] if causal else "",
        decode_state=decode[1] if causal else "",
    )
