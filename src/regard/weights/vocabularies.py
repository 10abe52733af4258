"""The vocabularies of a run folder, opened."""

from regard.text.corpus import Tokenizers
from regard.text.vocabulary import read_vocabulary
from regard.weights.run_folder import RunFolder


def open_tokenizers(run: RunFolder) -> Tokenizers:
    """The vocabularies of the two sides; the same one twice where it is joint.

    Raises:
        ModelError: a file holds no vocabulary, or one that needs a package that is missing.
        RunFolderError: a file is missing or damaged.
    """
    files = run.tokenizer_files()
    source = read_vocabulary(files.source, name=str(run.path))
    if files.joint:
        return Tokenizers(source, source)
    return Tokenizers(source, read_vocabulary(files.target, name=str(run.path)))
