"""What a vocabulary is trained on: not all of a large text; and what is said of it."""

from regard.text.config import VocabularyConfig
from regard.text.survey import Log
from regard.text.vocabulary import Vocabulary

SAMPLE_CHARACTERS = 100_000_000


def stride_of(characters: int, unit: str, log: Log) -> int:
    """Return how many units of a text to step on by, so that not much more is learned from."""
    stride = max(1, -(-characters // SAMPLE_CHARACTERS))
    if stride > 1:
        log(
            f"vocabulary: the text has {characters:,} characters; "
            f"learning from one {unit} in {stride}"
        )
    return stride


def announce_vocabulary(
    sides: str, tokenizer: Vocabulary, config: VocabularyConfig, log: Log
) -> None:
    """Tell how large a trained vocabulary is, and whether that is less than was asked for."""
    less = ""
    if tokenizer.size < config.size:
        less = f" ({config.size:,} were asked for; the text supplies no more)"
    log(f"vocabulary: {tokenizer.size:,} entries for {sides}, {config.kind}{less}")
