"""What `regard translate` and `regard average` do; `judging` has `score` and `evaluate`."""

import itertools
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from regard.decoding.config import DecodingConfig
from regard.decoding.translation import Candidate, Translation
from regard.errors import DataError, RegardError
from regard.recipes.load import load_recipe
from regard.serving.judging import evaluate, score
from regard.serving.opening import folder_name
from regard.serving.outputs import LineWriter, open_output
from regard.serving.translator import Translator, load
from regard.serving.windows import open_input
from regard.text.lines import read_lines
from regard.text.tokenizer import Tokenizer
from regard.weights.average import average_checkpoints
from regard.weights.run_folder import RunFolder

__all__ = ["average", "evaluate", "score", "translate"]

_AVERAGED = 5
_NAMED = 10
# Line ends to others than us; JSON leaves them as they are.
_ESCAPED = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def translate(
    runs: Sequence[Path],
    *,
    overrides: Sequence[str] = (),
    input: Path | None = None,
    output: Path | None = None,
    prefix: str | None = None,
    prefix_file: Path | None = None,
    report: Path | None = None,
    alignments: Path | None = None,
    threads: int | None = None,
) -> None:
    """Translate lines from a file or standard input to a file or standard output.

    Line N of the output is the translation of line N of the input. With `decoding.n_best` above
    1 it is one line a hypothesis instead: the number of the input line, the score and the text,
    a tab between them. On an open pipe a line is answered before the next is waited for.

    Args:
        runs: a run folder, or several to average.
        overrides: `decoding.key=value` changes to the first run's recipe.
        input: the file to read.
        output: the file to write; it appears when it is whole.
        prefix: what every translation begins with.
        prefix_file: a file with a prefix for each line, which may be empty.
        report: a file for a line of JSON for each line: its number, source, text, tokens, score,
            log_prob, whether it finished by itself; with n_best above 1 the hypotheses.
        alignments: a file for the word alignments, as `0-0 1-2`.
        threads: CPU threads to use.

    Raises:
        DataError: the input is not UTF-8 (the lines before it are answered), a file is missing,
            or there is not a prefix for each line.
        RegardError: as `load`; or a file can't be written.
    """
    if prefix is not None and prefix_file is not None:
        raise RegardError(
            "cannot go with --prefix-file", where="--prefix", hint="Give one of the two."
        )
    decoding = load_recipe(folder_name(runs[0]), overrides, only=["decoding"]).decoding
    with _terminable(), ExitStack() as stack:
        source = stack.enter_context(open_input(input))
        prefixes = _Prefixes(prefix, prefix_file)
        writer = stack.enter_context(open_output(output))
        sheets = [
            (stack.enter_context(open_output(path)), write)
            for path, write in ((report, _write_report), (alignments, _write_alignment))
            if path is not None
        ]
        translator = load(list(runs), threads=threads)
        translator.decoding = decoding
        cut: list[int] = []
        count = 0
        for window in source.windows():
            translations = translator.translations(
                window,
                prefixes=prefixes.take(len(window)),
                alignments=alignments is not None,
                first_line=count + 1,
                warn=lambda text: _say(f"warning: {source.name}, {text}"),
            )
            for line, translation in zip(window, translations, strict=True):
                count += 1
                if not translation.finished:
                    cut.append(count)
                _write_text(writer, count, translation, decoding)
                for sheet, write in sheets:
                    write(sheet, count, line, translation, translator)
            for stream in (writer, *(sheet for sheet, _ in sheets)):
                stream.flush()
        prefixes.require_end(count, source.name)
    if cut:
        _say(_cut_message(cut, count))


def average(
    run: Path, *, last: int | None = None, steps: Sequence[int] = (), out: Path | None = None
) -> None:
    """Average checkpoints of a run into the model to translate with, and print its folder.

    Without `out` it becomes the run's own model, and the one that training wrote is kept beside
    it as model.trained.safetensors.

    Args:
        run: the run folder.
        last: how many of the newest checkpoints; 5 if neither this nor `steps` is given.
        steps: the checkpoints of exactly these steps.
        out: a new run folder to write.

    Raises:
        RunFolderError: there are not so many checkpoints, or the model can't be written.
    """
    if last is not None and steps:
        raise RegardError("cannot go with --steps", where="--last", hint="Give one of the two.")
    if not steps and last is None:
        last = _AVERAGED
    with _terminable(), RunFolder.open(run, write=out is None, model=False) as folder:
        taken = average_checkpoints(folder, last=last, steps=steps, out=out, log=_say)
    _say(f"averaged the checkpoints of {len(taken)} step(s): {', '.join(f'{s:,}' for s in taken)}")
    if out is None:
        _say("the model that training wrote is kept as model.trained.safetensors")
    with open_output(None) as writer:
        writer.write(str(out or run))


class _Prefixes:
    """What each translation must begin with: always the same, a line of a file, or nothing."""

    def __init__(self, prefix: str | None, path: Path | None) -> None:
        self._path = path
        self._lines: Iterator[str] | None = None
        if path is not None:
            self._lines = read_lines(path)
        elif prefix is not None:
            self._lines = itertools.repeat(prefix)
        self._taken = 0

    def take(self, count: int) -> list[str] | None:
        """The next prefixes."""
        if self._lines is None:
            return None
        taken = list(itertools.islice(self._lines, count))
        self._taken += len(taken)
        if len(taken) < count:
            raise DataError(
                f"there is no prefix for line {self._taken + 1}: "
                f"the file has {self._taken:,} lines and the input has more",
                where=str(self._path),
                hint="It must hold one line, which may be empty, for each line of the input.",
            )
        return taken

    def require_end(self, count: int, name: str) -> None:
        """Refuse more prefixes than there were lines."""
        if self._path is not None and self._lines is not None:
            more = sum(1 for _ in self._lines)
            if more:
                raise DataError(
                    f"the file has {count + more:,} lines and {name} has {count:,}",
                    where=str(self._path),
                    hint="It must hold one line, which may be empty, for each line of the input.",
                )


def _write_text(
    writer: LineWriter, number: int, translation: Translation, decoding: DecodingConfig
) -> None:
    if decoding.n_best == 1:
        writer.write(translation.text)
        return
    for hypothesis in translation.hypotheses:
        writer.write(f"{number}\t{hypothesis.score:.4f}\t{hypothesis.text}")


def _write_report(
    writer: LineWriter, number: int, line: str, translation: Translation, translator: Translator
) -> None:
    tokenizer = translator.tokenizers.target
    record: dict[str, object] = {
        "line": number,
        "source": line,
        **_fields(translation.hypotheses[0], tokenizer),
    }
    if translator.decoding.n_best > 1:
        record["hypotheses"] = [_fields(each, tokenizer) for each in translation.hypotheses]
    writer.write(json.dumps(record, ensure_ascii=False).translate(_ESCAPED))


def _write_alignment(
    writer: LineWriter, number: int, line: str, translation: Translation, translator: Translator
) -> None:
    writer.write(translation.pharaoh)


def _fields(candidate: Candidate, tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "text": candidate.text,
        "tokens": tokenizer.tokens(candidate.tokens),
        "score": candidate.score,
        "log_prob": candidate.log_prob,
        "finished": candidate.finished,
    }


def _cut_message(cut: Sequence[int], count: int) -> str:
    lines = ", ".join(f"{number:,}" for number in cut[:_NAMED])
    more = ", ..." if len(cut) > _NAMED else ""
    return (
        f"warning: {len(cut):,} of {count:,} translations were cut before they came to an end "
        f"(line {lines}{more}); --report says which"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that no half-written file stays behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
