"""What the commands of an encoder call: lines in, vectors or labels out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.counts import counted
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import EncoderRecipe
from regard.serving.outputs import json_line, open_output, refuse_same_file
from regard.serving.strings import checked_argument
from regard.serving.vectors import open_vectors, require_ending
from regard.serving.windows import Input, open_input
from regard.signals import load
from regard.streams import say
from regard.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from regard.serving.encoder import Encoder, Label, Warn

# A wrong path or option is refused at once: what imports torch is imported after the checks.
# ruff: noqa: PLC0415

_WINDOW = 1024


def embed(
    run: Path,
    *,
    out: Path,
    input: Path | None = None,
    pooling: Literal["mean", "cls"] | None = None,
    normalize: bool | None = None,
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
) -> None:
    """Write a vector for each line of a file or standard input, blank ones too.

    Args:
        run: the run folder.
        out: the file to write, which appears when it is whole; its ending says how: .npy (an
            array of float32, N x d), .jsonl (the text and its vector), .txt (numbers with a
            space between) or .tsv (with a tab).
        input: the file to read.
        pooling: how a text's vectors become one; left out, as the recipe says.
        normalize: bring vectors to length 1; left out, as the recipe says.
        threads: CPU threads to use.
        engine: who computes, as `regard.load_encoder` has it; where PyTorch must, it is said.
        dtype: what the engine computes with.

    Raises:
        DataError: the input is missing or not UTF-8.
        RecipeError: the run is of another family.
        RegardError: as `regard.load_encoder`; or the file can't be written, as a pipe can't for
            .npy.
    """
    require_ending(out)
    refuse_same_file({"--out": out}, {"--input": input})
    _check_run(run)
    with open_input(input) as source, open_output(out) as writer:
        vectors = open_vectors(out, writer)
        load("regard.serving.encoder")
        encoder = _encoder(run, threads, engine, dtype)
        lines = 0
        for window in source.windows():
            found = encoder.embed(
                window,
                pooling=pooling,
                normalize=normalize,
                first_line=lines + 1,
                warn=_warning(source),
            )
            vectors.write(window, found)
            lines += len(window)
        vectors.finish(encoder.recipe.model.d_model)
    say(f"{counted(lines, 'vector')} in {out}")


def classify(
    run: Path,
    *,
    input: Path | None = None,
    output: Path | None = None,
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    json: bool = False,
) -> None:
    """Write a line for each line of text, blank ones too: its label, a tab, the probability.

    With `json` a line is an object: label, probability, and the probabilities of all labels.

    Args:
        run: the run folder of a classifier.
        input: the file to read; left out, standard input.
        output: the file to write; it appears when it is whole.
        threads: CPU threads to use.
        engine: who computes, as `regard.load_encoder` has it; where PyTorch must, it is said.
        dtype: what the engine computes with.
        json: write JSON lines.

    Raises:
        As `embed`; and ModelError if the run is no classifier.
    """
    refuse_same_file({"--output": output}, {"--input": input})
    _check_run(run)
    with open_input(input) as source, open_output(output) as writer:
        load("regard.serving.encoder")
        encoder = _classifier(run, threads, engine, dtype)
        lines = 0
        for window in source.windows():
            labels = encoder.classify(window, first_line=lines + 1, warn=_warning(source))
            for label in labels:
                writer.write(_record(label) if json else f"{label.name}\t{label.probability:.4f}")
            writer.flush()
            lines += len(window)


def evaluate_classifier(
    run: Path,
    *,
    labels: Path,
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    json: bool = False,
) -> None:
    """Label texts whose labels are known, and print accuracy, macro F1 and what is taken for what.

    Args:
        run: the run folder of a classifier.
        labels: a file of `label<TAB>text`.
        threads: CPU threads to use.
        engine: who computes, as `regard.load_encoder` has it; where PyTorch must, it is said.
        dtype: what the engine computes with.
        json: print one JSON object.

    Raises:
        As `classify`; and DataError if a line has no tab or a label that the run does not know.
    """
    recipe = _check_run(run)
    names = recipe.labels.names
    pairs = _labelled(labels, names) if names else []
    with open_output(None) as writer:
        load("regard.serving.encoder")
        from regard.serving.judging import write_confusion

        encoder = _classifier(run, threads, engine, dtype)
        given: list[int] = []
        for start in range(0, len(pairs), _WINDOW):
            window = [text for _, text in pairs[start : start + _WINDOW]]
            found = encoder.classify(
                window,
                first_line=start + 1,
                warn=lambda text: say(f"warning: {labels}, {text}"),
            )
            given += [names.index(label.name) for label in found]
        write_confusion(names, [label for label, _ in pairs], given, writer, json=json)


def fill(
    run: Path,
    text: str,
    *,
    top: int = 5,
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
    json: bool = False,
) -> None:
    """Print the likeliest tokens for each `[MASK]` in a text.

    On a line: which mask it is, the token's text, and its probability, with tabs. With `json`
    each is an object.

    Args:
        run: the run folder.
        text: holds `[MASK]` at least once.
        top: how many for each mask.
        threads: CPU threads to use.
        engine: who computes, as `regard.load_encoder` has it; where PyTorch must, it is said.
        dtype: what the engine computes with.
        json: print JSON lines.

    Raises:
        As `Encoder.fill` and `regard.load_encoder`.
    """
    checked_argument(text, "TEXT")
    _check_run(run)
    with open_output(None) as writer:
        load("regard.serving.encoder")
        encoder = _encoder(run, threads, engine, dtype)
        found = encoder.fill(text, top=top, warn=lambda told: say(f"warning: {told}"))
        for number, fillings in enumerate(found, start=1):
            for each in fillings:
                record = {"mask": number, "text": each.text, "probability": each.probability}
                line = f"{number}\t{each.text}\t{each.probability:.4f}"
                writer.write(json_line(record) if json else line)


def _check_run(run: Path) -> EncoderRecipe:
    """Look at the run folder as far as that goes without torch."""
    RunFolder.open(run, model=False)
    return load_recipe_of(EncoderRecipe, run)


def _encoder(run: Path, threads: int | None, engine: str, dtype: str | None) -> "Encoder":
    from regard.serving.encoder import load_encoder

    encoder = load_encoder(run, threads=threads, engine=engine, dtype=dtype)
    if encoder.torch_serves:
        say(f"note: PyTorch computes; the engine does not support {encoder.torch_serves}")
    return encoder


def _classifier(run: Path, threads: int | None, engine: str, dtype: str | None) -> "Encoder":
    encoder = _encoder(run, threads, engine, dtype)
    encoder.require_labels()
    return encoder


def _warning(source: Input) -> "Warn":
    return lambda text: say(f"warning: {source.name}, {text}")


def _record(label: "Label") -> str:
    return json_line(
        {
            "label": label.name,
            "probability": label.probability,
            "probabilities": dict(label.probabilities),
        }
    )


def _labelled(path: Path, names: Sequence[str]) -> list[tuple[int, str]]:
    """The texts of a file with the numbers of their labels."""
    from regard.text.labelled_lines import read_labelled, unknown_label

    numbers = {name: number for number, name in enumerate(names)}
    pairs = []
    for number, label, text in read_labelled(str(path)):
        if label not in numbers:
            raise unknown_label(label, names, f"{path}, line {number}")
        pairs.append((numbers[label], text))
    return pairs
