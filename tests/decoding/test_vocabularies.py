"""Control ids of any vocabulary in translation and scoring."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from regard.decoding.config import DecodingConfig
from regard.decoding.score import score_pairs
from regard.decoding.search import search
from regard.decoding.step import StepOutput
from regard.decoding.translate import translate
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.text.config import VocabularyConfig
from regard.text.foreign import tokenizers_vocabulary
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary, framed, read_vocabulary

LINES = ["the lamp is on", "a door", "on on on"]


def foreign(**control: Any) -> Vocabulary:
    tokenizer = Tokenizer.train(iter(LINES), VocabularyConfig(size=270))
    content = json.loads(tokenizer.to_bytes())
    content["decoder"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    return read_vocabulary(tokenizers_vocabulary(json.dumps(content).encode(), **control))


VOCABULARIES = {
    "starts from padding": foreign(pad=1, start=1, eos=0, suffix=(0,)),
    "starts from the end": foreign(pad=2, start=2, eos=2, prefix=(0, 1), suffix=()),
    "between two": foreign(pad=1, start=0, eos=2, prefix=(0,), suffix=(2,)),
    "with a mask": Tokenizer.train(iter(LINES), VocabularyConfig(size=270), mask=True),
}


def model_of(vocabulary: Vocabulary) -> Transformer:
    config = TransformerConfig(d_model=16, d_ff=32, num_heads=2, encoder_layers=1, decoder_layers=1)
    size = vocabulary.size
    return build_model(config, source_vocabulary=size, target_vocabulary=size, seed=3).eval()


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_has_the_score_of_force_decoding_and_no_control_token(
    name: str, beam: int
) -> None:
    vocabulary = VOCABULARIES[name]
    model = model_of(vocabulary)
    config = DecodingConfig(beam=beam, max_extra_tokens=3, alpha=0.0)
    found = translate(
        [model],
        [vocabulary],
        vocabulary,
        LINES,
        config,
        trained_length=50,
        attention=True,
        alignments=True,
    )
    for line, translation in zip(LINES, found, strict=True):
        assert vocabulary.control_ids.isdisjoint(translation.tokens)
        assert translation.source_tokens == tuple(
            vocabulary.tokens(framed(vocabulary, vocabulary.encode(line)))
        )
        assert translation.alignment is not None
        assert {source for source, _ in translation.alignment} <= set(range(len(line.split())))
        assert {target for _, target in translation.alignment} == set(
            range(len(translation.text.split()))
        )
        source_bs = torch.tensor([framed(vocabulary, vocabulary.encode(line))])
        ends = [vocabulary.eos_id] if translation.finished else []
        tokens = [*translation.tokens, *ends]
        target_bt = torch.tensor([[vocabulary.start_id, *tokens][: len(tokens)]])
        with torch.no_grad():
            hidden = model.decode(target_bt, model.encode(source_bs, None), None)
            log_probs = model.project(hidden).log_softmax(-1)[0, range(len(tokens)), tokens]
        assert translation.log_prob == pytest.approx(float(log_probs.sum()), abs=1e-4)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_score_is_that_of_the_target_and_its_end(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    model = model_of(vocabulary)
    [score, _] = score_pairs(
        [model], [vocabulary], vocabulary, [("the lamp", "a door"), ("the lamp is on", "on")]
    )
    ids = [*vocabulary.encode("a door"), vocabulary.eos_id]
    source_bs = torch.tensor([framed(vocabulary, vocabulary.encode("the lamp"))])
    target_bt = torch.tensor([[vocabulary.start_id, *ids[:-1]]])
    with torch.no_grad():
        hidden = model.decode(target_bt, model.encode(source_bs, None), None)
        log_probs = model.project(hidden).log_softmax(-1)[0, range(len(ids)), ids]
    assert score.tokens == len(ids)
    assert score.log_prob == pytest.approx(float(log_probs.sum()), abs=1e-4)


class EndsAtOnce:
    """A step by which the end, and then other control tokens, are the likeliest."""

    def advance(self, tokens_r: torch.Tensor) -> StepOutput:
        log_probs_v = torch.tensor([0.3, 0.25, 0.4, 0.05]).log()
        return StepOutput(log_probs_v.repeat(len(tokens_r), 1))

    def select(self, rows_r: torch.Tensor) -> None:
        pass


def best(control: Sequence[int], bos: int, eos: int, min_tokens: int) -> tuple[int, ...]:
    config = DecodingConfig(beam=1, min_tokens=min_tokens)
    found = search(
        EndsAtOnce(),
        batch=1,
        bos=bos,
        eos=eos,
        control=control,
        max_tokens_b=torch.tensor([2]),
        config=config,
    )
    return found[0][0].tokens


def test_the_end_may_be_generated_where_it_is_also_the_start() -> None:
    assert best((), bos=2, eos=2, min_tokens=0) == ()
    assert best((0, 2), bos=2, eos=2, min_tokens=0) == ()
    assert best((0,), bos=2, eos=2, min_tokens=1) == (1,)
    assert best((0, 1), bos=0, eos=2, min_tokens=1) == (3,)
