"""The command that uses a language model: generate."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from regard.cli.options import (
    Json,
    NonNegativeInt,
    PositiveInt,
    SetGeneration,
    Threads,
    overrides_of,
)

_PROMPT = Group("Prompt", sort_key=1)
_DRAWING = Group("Drawing", sort_key=2)
_Drawing = Parameter(group=_DRAWING)
_Texts = Annotated[tuple[str, ...], Parameter(allow_leading_hyphen=True)]


def generate(
    run: Path,
    /,
    *,
    prompt: Annotated[_Texts, Parameter(group=_PROMPT)] = (),
    prompt_file: Annotated[Path | None, Parameter(group=_PROMPT)] = None,
    samples: Annotated[PositiveInt | None, _Drawing] = None,
    max_tokens: Annotated[PositiveInt | None, _Drawing] = None,
    temperature: Annotated[float | None, _Drawing] = None,
    top_k: Annotated[NonNegativeInt | None, _Drawing] = None,
    top_p: Annotated[float | None, _Drawing] = None,
    min_p: Annotated[float | None, _Drawing] = None,
    repetition_penalty: Annotated[float | None, _Drawing] = None,
    stop: Annotated[_Texts, _Drawing] = (),
    seed: Annotated[NonNegativeInt | None, _Drawing] = None,
    engine: Literal["auto", "native", "torch"] = "auto",
    dtype: Literal["float32", "bfloat16", "int8", "int4"] | None = None,
    threads: Threads = None,
    set_: SetGeneration = (),
    json: Json = False,
) -> None:
    """Go on with a text, and print it with what comes after it.

    One sample of one prompt is printed as it comes; between several results is a line ---.
    Without a prompt or a file, standard input is read, a prompt a line.
    A drawing option stands for the recipe key of that name (--samples: generation.samples);
    what is not given is as in the run's recipe.

    Args:
        run: The run folder of a language model.
        prompt: The text to go on with; "" begins one. May be repeated.
        prompt_file: A file with a prompt on each line.
        samples: Texts for each prompt.
        max_tokens: Longest text, in tokens, the prompt not counted.
        temperature: Below 1 draws nearer to the likeliest, above 1 farther; 0 takes it always.
        top_k: Draw among the k likeliest tokens only; 0 is all.
        top_p: Draw among the likeliest tokens that together have this probability.
        min_p: Draw among tokens at least this fraction as likely as the likeliest.
        repetition_penalty: Above 1 makes tokens that occur already less likely.
        stop: End just before this text. May be repeated.
        seed: Seed of the drawing.
        engine: Who reads: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
    """
    from regard.serving import generating
    from regard.serving.strings import checked_argument

    for text in stop:
        checked_argument(text, "--stop")
    options: dict[str, object] = {
        "generation.samples": samples,
        "generation.max_tokens": max_tokens,
        "generation.temperature": temperature,
        "generation.top_k": top_k,
        "generation.top_p": top_p,
        "generation.min_p": min_p,
        "generation.repetition_penalty": repetition_penalty,
        "generation.stop": stop or None,
        "generation.seed": seed,
    }
    generating.generate(
        run,
        overrides=overrides_of(options, set_),
        prompts=prompt,
        prompt_file=prompt_file,
        threads=threads,
        json=json,
        engine=engine,
        dtype=dtype,
    )
