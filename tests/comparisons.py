"""A small comparison with something in every field, for tests of what reads one."""

from regard.compare.results import (
    Comparison,
    Count,
    Counted,
    Crossover,
    Curve,
    Decode,
    DecodePoint,
    Fit,
    Gradients,
    Layer,
    Machine,
    Order,
    Point,
    Quality,
    Theory,
)
from regard.nn.mixers.config import MixerKind


def example() -> Comparison:
    """Plain attention, a window and Linformer, as if measured."""
    return Comparison(
        made="2026-01-02T03:04:05Z",
        machine=Machine(
            processor="a processor",
            cores=2,
            memory_gib=7.5,
            system="Linux",
            python="3.13.1",
            torch="2.11.0",
            regard="0.1",
            threads=2,
        ),
        seed=7,
        minutes=3.0,
        seconds=170.5,
        d_model=256,
        num_heads=4,
        length=1024,
        layers=(
            _layer("plain", "plain attention", "full", 2.0, "n^2 d + n d^2"),
            _layer("window", "sliding window (512)", "window", 1.0, "n w d + n d^2"),
            _layer("linformer", "Linformer (64)", "linformer", 1.0, "n r d + n d^2"),
        ),
        crossovers=(
            Crossover(
                layer="window", baseline="plain", of="training", quantity="time", length=1500
            ),
            Crossover(
                layer="linformer", baseline="plain", of="forward", quantity="memory", note="always"
            ),
        ),
        left_out=("window, training against d: no time left",),
    )


def _layer(name: str, title: str, kind: MixerKind, exponent: float, formula: str) -> Layer:
    causal = kind != "linformer"
    lengths = (128, 256, 512, 1024)
    points = tuple(
        Point(
            n=n,
            d=256,
            seconds=1e-5 * n**exponent,
            repeats=3,
            peak_bytes=int(1000 * n**exponent),
        )
        for n in lengths
    )
    points += (Point(n=2048, d=256, note="more memory than there is"),)
    fit = Fit(exponent=exponent, points=4, first=128, last=1024)
    decoded = tuple(DecodePoint(context=n, seconds=1e-6 * n, state_bytes=2048 * n) for n in lengths)
    order = Order(formula=formula, exponent=exponent)
    width = Order(formula=formula, exponent=2.0)
    return Layer(
        name=name,
        title=title,
        kind=kind,
        settings={"window": 512} if kind == "window" else {},
        causal=causal,
        parameters=263_168,
        theory=Theory(
            time_n=order,
            memory_n=order,
            time_d=width,
            memory_d=Order(formula="n d", exponent=1.0),
            sequential="1",
            path="n / w" if kind == "window" else "1",
            decode_time="n d" if causal else "",
            decode_state="n d" if causal else "",
        ),
        curves=tuple(
            Curve(of=of, axis="n", fixed=256, points=points, stopped="memory", time=fit, memory=fit)
            for of in ("forward", "training")
        ),
        sequential=Counted(
            counts=tuple(Count(n=n, value=12) for n in (8, 16, 32)), growth="1", exponent=0.0
        ),
        path=Counted(
            counts=tuple(Count(n=n, value=n // 4) for n in (8, 16, 32)), growth="n", exponent=1.0
        ),
        decode=Decode(points=decoded, time=fit, state=fit)
        if causal
        else Decode(reason="sees both sides"),
        quality=tuple(
            Quality(
                task=task,
                parameters=50_000,
                seconds=1.5,
                steps=(40, 41, 39),
                seeds=(0, 1, 2),
                accuracies=(0.5, 0.75, 1.0),
                chance=0.125,
            )
            for task in ("copying", "recall", "nesting")
        ),
        gradients=Gradients(distances=(1, 10, 100), norms=(1.0, 0.1, 1e-9)),
        notes=("a remark",),
    )
