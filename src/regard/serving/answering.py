"""Answers lines as they come: the translations, and the report and alignments beside them."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from regard.counts import counted
from regard.decoding.translation import Candidate, Translation
from regard.errors import DataError
from regard.serving.outputs import LineWriter, json_line
from regard.serving.translator import Translator
from regard.serving.windows import Input
from regard.text.vocabulary import Vocabulary

_NAMED = 10


@dataclass
class Answered:
    """How many lines were answered, how many translations were cut, and the first of those."""

    lines: int = 0
    cut: int = 0
    first_cut: list[int] = field(default_factory=list)

    def count(self, *, finished: bool) -> None:
        """Count a line."""
        self.lines += 1
        if not finished:
            self.cut += 1
            if self.cut <= _NAMED:
                self.first_cut.append(self.lines)

    @property
    def warning(self) -> str:
        """What to tell the user about the translations that were cut."""
        named = ", ".join(f"{number:,}" for number in self.first_cut)
        more = ", ..." if self.cut > _NAMED else ""
        were = "was cut before it" if self.cut == 1 else "were cut before they"
        return (
            f"warning: {self.cut:,} of {counted(self.lines, 'translation')} {were} came to an end "
            f"({'line' if self.cut == 1 else 'lines'} {named}{more}); --report says which"
        )


def answer(
    translator: Translator,
    source: Input,
    output: LineWriter,
    *,
    report: LineWriter | None = None,
    alignments: LineWriter | None = None,
    prefixes: Iterator[str] | None = None,
    prefix_file: str = "",
    say: Callable[[str], None],
) -> Answered:
    """Translate all lines of an input, window by window; each is written out before the next.

    Args:
        prefixes: what the translations begin with, one for each line.
        prefix_file: where the prefixes come from, if they must be as many as the lines.
        say: is told of lines that are too long.

    Raises:
        DataError: a line is not UTF-8 (those before it are answered), or the prefixes are more
            or fewer than the lines.
    """
    answered = Answered()
    tokenizer = translator.tokenizers.target
    n_best = translator.decoding.n_best
    writers = [each for each in (output, report, alignments) if each is not None]
    for window in source.windows():
        translations = translator.translations(
            window,
            prefixes=_next_prefixes(prefixes, len(window), answered.lines, prefix_file),
            alignments=alignments is not None,
            first_line=answered.lines + 1,
            warn=lambda text: say(f"warning: {source.name}, {text}"),
        )
        for line, translation in zip(window, translations, strict=True):
            answered.count(finished=translation.finished)
            if n_best == 1:
                output.write(translation.text)
            else:
                for each in translation.hypotheses:
                    output.write(f"{answered.lines}\t{each.score:.4f}\t{each.text}")
            if report is not None:
                report.write(_record(answered.lines, line, translation, tokenizer, n_best))
            if alignments is not None:
                alignments.write(translation.pharaoh)
        for writer in writers:
            writer.flush()
    if prefix_file and prefixes is not None:
        _require_end(prefixes, answered.lines, prefix_file, source.name)
    return answered


def _next_prefixes(
    prefixes: Iterator[str] | None, count: int, before: int, prefix_file: str
) -> list[str] | None:
    if prefixes is None:
        return None
    taken = list(itertools.islice(prefixes, count))
    if len(taken) < count:
        raise DataError(
            f"the file has {counted(before + len(taken), 'line')} and the input has more",
            where=prefix_file,
            hint="It must hold one line, which may be empty, for each line of the input.",
        )
    return taken


def _require_end(prefixes: Iterator[str], lines: int, prefix_file: str, name: str) -> None:
    more = sum(1 for _ in prefixes)
    if more:
        raise DataError(
            f"the file has {counted(lines + more, 'line')} and {name} has {lines:,}",
            where=prefix_file,
            hint="It must hold one line, which may be empty, for each line of the input.",
        )


def _record(
    number: int, line: str, translation: Translation, tokenizer: Vocabulary, n_best: int
) -> str:
    """The line of the report."""
    record: dict[str, object] = {
        "line": number,
        "source": line,
        **_fields(translation.hypotheses[0], tokenizer),
    }
    if n_best > 1:
        record["hypotheses"] = [_fields(each, tokenizer) for each in translation.hypotheses]
    return json_line(record)


def _fields(candidate: Candidate, tokenizer: Vocabulary) -> dict[str, object]:
    return {
        "text": candidate.text,
        "tokens": tokenizer.tokens(candidate.tokens),
        "score": candidate.score,
        "log_prob": candidate.log_prob,
        "finished": candidate.finished,
    }
