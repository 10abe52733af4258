"""The vocabularies of a run folder, opened."""

from regard.text.corpus import Tokenizers
from regard.text.tokenizer import Tokenizer
from regard.weights.run_folder import RunFolder


def open_tokenizers(run: RunFolder) -> Tokenizers:
    """The tokenizers of the two sides; the same one twice where the vocabulary is joint.

    Raises:
        ModelError: a file holds no tokenizer, or none that regard made.
        RunFolderError: a file is missing or damaged.
    """
    files = run.tokenizer_files()
    source = Tokenizer.from_bytes(files.source, name=str(run.path))
    if files.joint:
        return Tokenizers(source, source)
    return Tokenizers(source, Tokenizer.from_bytes(files.target, name=str(run.path)))
