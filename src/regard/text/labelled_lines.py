"""Lines of `label<TAB>text`: read and checked, which labels there are, and what is held out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.counts import counted
from regard.errors import DataError
from regard.text.config import LabelsConfig
from regard.text.inputs import empty_file
from regard.text.lines import read_lines
from regard.text.split import holds_out
from regard.text.survey import VALIDATION_SALT, Log

# More labels than this are most likely texts.
MOST_LABELS = 1000


@dataclass(frozen=True)
class LabelSurvey:
    """What one pass over the training lines found; `share` is that which is held out."""

    names: tuple[str, ...]
    share: float

    def holds_out(self, text: str) -> bool:
        """Return whether a text is kept from training."""
        return holds_out(text, self.share, salt=VALIDATION_SALT)


def read_labelled(path: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number, the label and the text of each line; a quote is a character like any other.

    The first tab ends the label; a text may hold others.

    Raises:
        DataError: as `read_lines`, the file is empty, or a line has no tab or no label.
    """
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        label, tab, text = line.partition("\t")
        if not tab:
            raise DataError(
                "wanted a tab between the label and the text, found none",
                where=f"{path}, line {number}",
            )
        if not label.strip():
            raise DataError("the label is empty", where=f"{path}, line {number}")
        yield number, label, text
    if not number:
        raise empty_file(path)


def unknown_label(label: str, names: Sequence[str], where: str) -> DataError:
    """What to say of a label that is none of the names."""
    return DataError(
        f"unknown label {label!r}", where=where, hint=f"the labels are: {', '.join(names)}"
    )


def survey_labels(config: LabelsConfig, log: Log) -> LabelSurvey:
    """Read and check all lines; find the labels, and what to hold out.

    Args:
        config: the files, and the labels that there may be.
        log: is told what each file has.

    Raises:
        DataError: as `read_labelled`; a label is unknown; there are too many, or not two; or no
            line has a text.
    """
    labels: Counter[str] = Counter()
    share = 0.0 if config.valid else config.valid_share
    texts = held_out = 0
    for path in config.train:
        before = texts
        for number, label, text in read_labelled(path):
            if config.names and label not in config.names:
                raise unknown_label(label, config.names, f"{path}, line {number}")
            labels[label] += 1
            if len(labels) > MOST_LABELS and not config.names:
                raise DataError(
                    f"more than {MOST_LABELS:,} labels",
                    where=f"{path}, line {number}",
                    hint="Is the text before the tab? A line is a label, a tab and a text.",
                )
            if text.strip():
                texts += 1
                held_out += holds_out(text, share, salt=VALIDATION_SALT)
        log(f"text: {counted(texts - before, 'text')} with a label in {path}")
    names = config.names or tuple(sorted(labels))
    where = ", ".join(config.train)
    if not texts:
        raise DataError("every line has a label and no text", where=where)
    if len(labels) < 2:
        raise DataError(
            f"every line has the label {next(iter(labels))!r}; a classifier needs two at least",
            where=where,
        )
    if config.valid:
        for number, label, _ in read_labelled(config.valid):
            if label not in names:
                raise unknown_label(label, names, f"{config.valid}, line {number}")
    log(f"labels: {', '.join(f'{name} ({labels[name]:,})' for name in names)}")
    return LabelSurvey(names, share if held_out < texts else 0.0)


def training_texts(config: LabelsConfig, found: LabelSurvey) -> Iterator[str]:
    """Yield the texts that are not held out."""
    for path in config.train:
        for _, _, text in read_labelled(path):
            if not found.holds_out(text):
                yield text
