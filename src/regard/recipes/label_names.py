"""The labels that a classifier tells apart, found in the text or kept from an earlier run."""

from regard.text.config import LabelsConfig
from regard.text.labelled_lines import MOST_LABELS, read_labelled


def names_in(files: tuple[str, ...]) -> tuple[str, ...]:
    """The labels in the files, sorted; none if there are more than labels can be.

    Raises:
        DataError: a file is missing, or a line of it has no label.
    """
    found: set[str] = set()
    for path in files:
        for _, label, _ in read_labelled(path):
            found.add(label)
            if len(found) > MOST_LABELS:
                return ()
    return tuple(sorted(found))


def names_kept(labels: LabelsConfig, earlier: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of an earlier run if the text has no others, so that its classifier serves too.

    Raises:
        DataError: as `names_in`.
    """
    valid = (labels.valid,) if labels.valid else ()
    found = names_in((*labels.train, *valid)) if earlier else ()
    return earlier if found and set(found) <= set(earlier) else ()
