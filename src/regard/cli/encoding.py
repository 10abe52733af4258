"""The commands that use an encoder: embed, classify, fill."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from regard.cli.options import FILES, File, Json, PositiveInt, Threads

Engine = Literal["auto", "native", "torch"]
Dtype = Literal["float32", "bfloat16", "int8", "int4"] | None
_Input = Annotated[Path | None, Parameter(name="--input", group=FILES)]


def embed(
    run: Path,
    /,
    *,
    out: Annotated[Path, Parameter(group=FILES)],
    input_: _Input = None,
    pooling: Literal["mean", "cls"] | None = None,
    no_normalize: bool = False,
    engine: Engine = "auto",
    dtype: Dtype = None,
    threads: Threads = None,
) -> None:
    """Make a vector of each line of standard input, and write them to a file.

    N lines in, N vectors out, in order; a blank line has a vector too.
    A line of more tokens than the run's data.max_tokens is cut.

    Args:
        run: The run folder of an encoder.
        out: Write here: .npy an array of float32, .jsonl text and vector, .txt or .tsv numbers.
        input_: Read from this file.
        pooling: The mean over all tokens (mean), or the first token's vector (cls).
        no_normalize: Leave vectors as long as they are, not of length 1.
        engine: Who computes: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
    """
    from regard.serving import encoding

    encoding.embed(
        run,
        out=out,
        input=input_,
        pooling=pooling,
        normalize=False if no_normalize else None,
        threads=threads,
        engine=engine,
        dtype=dtype,
    )


def classify(
    run: Path,
    /,
    *,
    input_: _Input = None,
    output: File = None,
    labels: File = None,
    engine: Engine = "auto",
    dtype: Dtype = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print the label of each line of standard input, a tab, and its probability.

    N lines in, N labels out, in order; a blank line has a label too.
    With --labels it prints how well the labels of that file are found instead.

    Args:
        run: The run folder of a classifier: see regard finetune.
        input_: Read from this file.
        output: Write to this file.
        labels: A file of labels, tabs and texts, to print accuracy, macro F1 and confusions of.
        engine: Who computes: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
    """
    from regard.errors import RegardError
    from regard.serving import encoding

    if labels is None:
        encoding.classify(
            run,
            input=input_,
            output=output,
            threads=threads,
            engine=engine,
            dtype=dtype,
            json=json,
        )
        return
    for name, path in (("--input", input_), ("--output", output)):
        if path is not None:
            raise RegardError("cannot go with --labels", where=name, hint="Give one of the two.")
    encoding.evaluate_classifier(
        run, labels=labels, threads=threads, engine=engine, dtype=dtype, json=json
    )


def fill(
    run: Path,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    top: PositiveInt = 5,
    engine: Engine = "auto",
    dtype: Dtype = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Say what may stand at each [MASK] in a text, the likeliest first.

    Prints a line for each: which mask it is, the text, and its probability, with tabs.

    Args:
        run: The run folder of an encoder.
        text: For example "The [MASK] sat."
        top: How many for each mask. Default: 5.
        engine: Who computes: native, torch (PyTorch), or by itself native where it can.
        dtype: What the engine computes with: float32, or, less exact, bfloat16, int8, int4.
    """
    from regard.serving import encoding

    encoding.fill(run, text, top=top, threads=threads, engine=engine, dtype=dtype, json=json)
