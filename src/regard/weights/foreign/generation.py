"""What a checkpoint says of how it is generated from, and regard does otherwise."""

from collections.abc import Mapping
from typing import Any, Final

from regard.text.vocabulary import never_generated, read_vocabulary
from regard.weights.foreign.folder import ForeignFolder
from regard.weights.foreign.keys import shown
from regard.weights.foreign.model import ForeignModel

# Keys that change what is generated and are not taken over, with the values that change nothing.
_LEFT_OUT: Final[Mapping[str, tuple[Any, ...]]] = {
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_decoder_ids": ([],),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "min_length": (0, 1),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "repetition_penalty": (1,),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
}
_OF_SAMPLES: Final[Mapping[str, tuple[Any, ...]]] = {
    "min_p": (0,),
    "temperature": (1,),
    "top_k": (0, 50),  # 50 is what transformers has where nothing is said, and writes
    "top_p": (1,),
    "typical_p": (1,),
}
_FORCED: Final = "forced_bos_token_id"


def notes_of_generation(folder: ForeignFolder, found: ForeignModel) -> tuple[str, ...]:
    """What is to be said of the keys that change a text and are not taken over, by their names."""
    values = folder.generation()
    keys = {**_LEFT_OUT, **(_OF_SAMPLES if values.get("do_sample") is True else {})}
    left_out = [
        f"{name} = {shown(values[name])}"
        for name, without_effect in keys.items()
        if values.get(name) is not None
        and values[name] not in without_effect
        and not (name == "forced_eos_token_id" and values[name] == values.get("eos_token_id"))
        and not (name == "bad_words_ids" and _never_here(values, found))
    ]
    notes = []
    if values.get(_FORCED) is not None:
        forced = shown(values[_FORCED])
        notes.append(f"{_FORCED} = {forced} is not forced here: start a search with it by id")
    if left_out:
        notes.append(f"left out of how it is generated from: {', '.join(left_out)}")
    return tuple(notes)


def _never_here(values: Mapping[str, Any], found: ForeignModel) -> bool:
    """Whether what is forbidden is only what regard never generates."""
    never = {values.get("pad_token_id")}
    if found.vocabularies is not None:
        source, target = found.vocabularies
        never |= {*never_generated(read_vocabulary(target or source, name=found.origin))}
    return all(
        isinstance(word, list) and len(word) == 1 and type(word[0]) is int and word[0] in never
        for word in values["bad_words_ids"]
    )
