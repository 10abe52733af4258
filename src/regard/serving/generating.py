"""What `regard generate` calls: prompts in, texts out, as they come."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import DecoderRecipe
from regard.serving.outputs import LineWriter, json_line, open_output
from regard.serving.strings import checked_argument
from regard.serving.windows import open_input
from regard.signals import load_torch
from regard.streams import say
from regard.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from regard.decoding.generate import Continuation
    from regard.serving.generator import Generator

# A wrong path or option is refused at once: what imports torch is imported after the checks.
# ruff: noqa: PLC0415

# The line between two results that are plain text.
SEPARATOR = "---"

Windows = Iterator[Sequence[str]]


def generate(
    run: Path,
    *,
    overrides: Sequence[str] = (),
    prompts: Sequence[str] = (),
    prompt_file: Path | None = None,
    threads: int | None = None,
    json: bool = False,
    engine: str = "auto",
    dtype: str | None = None,
) -> None:
    """Go on with prompts, and print each with what comes after it.

    A single sample of a single prompt is printed piece by piece as it comes. Between several
    results stands a line `---`. With `json` each is a line with the number of the prompt and of
    the sample, the prompt, the text after it, its tokens, its log_prob, and why it stopped.

    Args:
        run: the run folder.
        overrides: `generation.key=value` changes to the run's recipe.
        prompts: what to go on with.
        prompt_file: a file with a prompt a line, which may be empty; standard input is read so
            where there are neither prompts nor a file.
        threads: CPU threads to use.
        engine: who reads the prompts, as `regard.load_language_model` has it.
        dtype: what the engine computes with.

    Raises:
        DataError: a prompt or the file is not UTF-8, or the file is missing.
        RecipeError: the run is of another family.
        RegardError: as `regard.load_language_model`.
    """
    if prompts and prompt_file is not None:
        raise RegardError(
            "cannot go with --prompt-file", where="--prompt", hint="Give one of the two."
        )
    for prompt in prompts:
        checked_argument(prompt, "--prompt")
    RunFolder.open(run, model=False)
    config = load_recipe_of(DecoderRecipe, run, overrides, only=["generation"]).generation
    with _windows(prompts, prompt_file) as windows, open_output(None) as writer:
        load_torch("regard.serving.generator")
        from regard.serving.generator import load_language_model

        generator = load_language_model(run, threads=threads, engine=engine, dtype=dtype)
        generator.generation = config
        if generator.torch_serves:
            say(f"note: PyTorch reads; the engine does not support {generator.torch_serves}")
        if len(prompts) == 1 and config.samples == 1 and not json:
            _write_as_it_comes(generator, prompts[0], writer)
        else:
            _write_all(generator, windows, writer, json=json)


@contextmanager
def _windows(prompts: Sequence[str], path: Path | None) -> Iterator[Windows]:
    if prompts:
        yield iter([prompts])
        return
    with open_input(path, option="--prompt-file") as source:
        yield source.windows()


def _warn(text: str) -> None:
    say(f"warning: {text}")


def _write_as_it_comes(generator: "Generator", prompt: str, writer: LineWriter) -> None:
    pieces = generator.stream(prompt, warn=_warn)
    writer.write_bytes(prompt.encode("utf-8"))
    writer.flush()
    for piece in pieces:
        writer.write_bytes(piece.encode("utf-8"))
        writer.flush()
    writer.write_bytes(b"\n")


def _write_all(generator: "Generator", windows: Windows, writer: LineWriter, *, json: bool) -> None:
    number = 0
    for window in windows:
        found = generator.continuations(window, first_prompt=number + 1, warn=_warn)
        for samples in found:
            for sample, each in enumerate(samples, start=1):
                if json:
                    writer.write(json_line(_record(generator, number + 1, sample, each)))
                    continue
                if number or sample > 1:
                    writer.write(SEPARATOR)
                writer.write_bytes(f"{each.prompt}{each.text}\n".encode())
            number += 1
        writer.flush()


def _record(
    generator: "Generator", number: int, sample: int, found: "Continuation"
) -> dict[str, object]:
    return {
        "number": number,
        "sample": sample,
        "prompt": found.prompt,
        "text": found.text,
        "tokens": generator.vocabulary.tokens(found.tokens),
        "log_prob": found.log_prob,
        "finish": found.finish,
    }
