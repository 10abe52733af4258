"""Vocabularies as CTranslate2 has them: a string an id, and the files that cut texts into them."""

import base64
import json

import tokenizers

from regard.text.foreign import ForeignVocabulary
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary


def vocabulary_tokens(vocabulary: Vocabulary) -> list[str]:
    """A string for each id, no two the same.

    They are what the vocabulary's own library gives for a text; for those made here that is the
    tokenizers library and the text with a space before it. A string that is empty or comes a
    second time gets its id after it.
    """
    ids = range(vocabulary.size)
    if isinstance(vocabulary, Tokenizer):
        library = tokenizers.Tokenizer.from_str(vocabulary.to_bytes().decode("utf-8"))
        return [str(library.id_to_token(token)) for token in ids]
    if isinstance(vocabulary, ForeignVocabulary):
        names = vocabulary.names(ids)
    else:
        names = vocabulary.tokens(ids)
    tokens: dict[str, None] = {}
    for number, token in enumerate(names):
        name = token
        while not name or name in tokens:
            name = f"{name}#{number}"
        tokens[name] = None
    return [*tokens]


def vocabulary_files(source: Vocabulary, target: Vocabulary) -> dict[str, bytes]:
    """What to cut texts with: files of the tokenizers library or of sentencepiece."""
    files = {"": source} if target is source else {".source": source, ".target": target}
    written = {}
    for side, vocabulary in files.items():
        data = vocabulary.to_bytes()
        document = json.loads(data)
        if isinstance(vocabulary, Tokenizer):
            written[f"tokenizer{side}.json"] = data
        elif document["kind"] == "tokenizers":
            written[f"tokenizer{side}.json"] = json.dumps(document["library"]).encode()
        else:
            written[f"sentencepiece{side}.model"] = base64.b64decode(document["model"])
    return written
