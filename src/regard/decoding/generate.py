"""Goes on with texts: prompts of any lengths side by side, each as if it were alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from regard.counts import counted
from regard.decoding.chain import Choice, most_likely
from regard.decoding.dice import random_bits, seed_of
from regard.decoding.generation import GenerationConfig
from regard.decoding.next_token import NextToken, blocked
from regard.decoding.padding import token_batches
from regard.decoding.reading import Reader, Reading, reader_of
from regard.decoding.sample import Sampler, chain_keys
from regard.decoding.text_stream import TextStream
from regard.errors import ModelError
from regard.models.decoder import LanguageModel
from regard.shapes import Float, Tensor
from regard.text.vocabulary import Vocabulary

# Tokens whose keys and values are in memory at once, and logits.
_CACHED = 2**16
_LOGITS = 2**25

Finish = Literal["end", "stop", "length"]


@dataclass(frozen=True)
class Continuation:
    """How a model went on with a prompt.

    `text` is what comes after the prompt, without what stopped it; prompt and text, joined as
    they are, read right. `tokens` are all that were drawn, but for the end token; with a stop
    string, the last of them spell it. `log_prob` is the natural logarithm of the probability
    that the model gives them and the end token, whatever the settings of sampling. `finish`
    says why it stopped: at the `end` token, at a `stop` string, or at `length`, the most tokens
    or the model's last position.
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    log_prob: float
    finish: Finish


@dataclass
class _Chain:
    """One sample of one prompt, while it is made."""

    number: int
    prompt: str
    ids: list[int]
    key: int
    most: int
    ends: frozenset[int]
    stream: TextStream
    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    finish: Finish | None = None

    def push(self, token: int, log_prob: float) -> str:
        """Take the next token; give the text that is certain now."""
        self.log_prob += log_prob
        if token in self.ends:
            self.finish = "end"
            return self._rest()
        self.tokens.append(token)
        piece = self.stream.push(token)
        if self.stream.stopped:
            self.finish = "stop"
        elif len(self.tokens) == self.most:
            self.finish = "length"
            piece += self._rest()
        return piece

    def _rest(self) -> str:
        piece = self.stream.finish()
        if self.stream.stopped:
            self.finish = "stop"
        return piece

    @property
    def result(self) -> Continuation:
        """What it came to."""
        assert self.finish is not None
        return Continuation(
            self.prompt, self.stream.text, tuple(self.tokens), self.log_prob, self.finish
        )


def generate(
    model: LanguageModel | Reader,
    vocabulary: Vocabulary,
    prompts: Sequence[str],
    config: GenerationConfig,
    *,
    batch_tokens: int = _CACHED,
    first_prompt: int = 1,
    warn: Callable[[str], None] | None = None,
) -> list[list[Continuation]]:
    """Go on with every prompt, `config.samples` times, in order.

    What a prompt becomes does not depend on the other prompts, nor its first samples on how
    many there are. An empty prompt begins a text.

    Args:
        model: who reads, and says what may follow.
        batch_tokens: bounds the tokens of a batch, those to be drawn counted.
        first_prompt: the number of the first prompt, for warnings and errors.
        warn: called with a sentence that names the prompt when the model's positions end before
            `config.max_tokens` are drawn.

    Raises:
        ModelError: a prompt alone has more tokens than the model has positions (before anything
            is computed), or the model's output is NaN.
    """
    reader = reader_of(model)
    chains = _chains(reader, vocabulary, prompts, config, first_prompt, warn)
    with reader.ready():
        for batch in token_batches(
            [len(chain.ids) + chain.most for chain in chains],
            batch_tokens=batch_tokens,
            batch_rows=max(1, _LOGITS // reader.vocabulary),
        ):
            for _ in _follow(reader, vocabulary, [chains[place] for place in batch], config):
                pass
    results = [chain.result for chain in chains]
    count = config.samples
    return [results[start : start + count] for start in range(0, len(results), count)]


def stream(
    model: LanguageModel | Reader,
    vocabulary: Vocabulary,
    prompt: str,
    config: GenerationConfig,
    *,
    warn: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """Go on with one prompt; yield its first sample's text in pieces as soon as they are certain.

    No piece holds half a character, or a part of what turns out to be a stop string. Joined,
    they are the text that `generate` gives. What can be refused is refused by the call.

    Raises:
        ModelError: as `generate`.
    """
    config = config.model_copy(update={"samples": 1})
    reader = reader_of(model)
    chains = _chains(reader, vocabulary, [prompt], config, 1, warn)

    def pieces() -> Iterator[str]:
        with reader.ready():
            yield from filter(None, _follow(reader, vocabulary, chains, config))

    return pieces()


def prompt_ids(vocabulary: Vocabulary, prompts: Sequence[str]) -> list[list[int]]:
    """What a model reads before it goes on: what opens a text, then the prompt's tokens.

    That is the start token. Where the end token stands for it (GPT-2), it opens only what would
    be empty, as there a text is not known to begin with it.
    """
    opening = vocabulary.prefix
    if not opening and vocabulary.start_id != vocabulary.eos_id:
        opening = (vocabulary.start_id,)
    return [[*opening, *ids] or [vocabulary.start_id] for ids in vocabulary.encode_batch(prompts)]


def _chains(
    reader: Reader,
    vocabulary: Vocabulary,
    prompts: Sequence[str],
    config: GenerationConfig,
    first_prompt: int,
    warn: Callable[[str], None] | None,
) -> list[_Chain]:
    """All samples of all prompts, none begun."""
    chains = []
    longest = reader.longest
    for number, ids in enumerate(prompt_ids(vocabulary, prompts)):
        most = config.max_tokens
        if longest is not None:
            _require_room(ids, longest, first_prompt + number)
            # The last token that is drawn is not read any more.
            most = min(most, longest - len(ids) + 1)
        if most < config.max_tokens and warn is not None:
            warn(
                f"prompt {first_prompt + number}: its {counted(len(ids), 'token')} and {most:,} "
                f"more fill the model's {longest:,} positions; no more than these are drawn"
            )
        chains += [
            _Chain(
                number,
                prompts[number],
                ids,
                random_bits(seed_of(config.seed, ids), sample),
                most,
                vocabulary.end_ids,
                TextStream(vocabulary, prompts[number], ids, config.stop),
            )
            for sample in range(config.samples)
        ]
    return chains


def _require_room(ids: Sequence[int], longest: int, number: int) -> None:
    if len(ids) > longest:
        raise ModelError(
            f"the prompt has {len(ids):,} tokens, and the model has {longest:,} positions",
            where=f"prompt {number}",
            hint="Shorten the prompt: its end counts most for what comes next.",
        )


@torch.inference_mode()
def _follow(
    reader: Reader,
    vocabulary: Vocabulary,
    chains: Sequence[_Chain],
    config: GenerationConfig,
) -> Iterator[str]:
    """Draw token after token for all chains until each has finished; yield pieces of their text.

    Every row is a chain. One that has finished goes at once: another token might lie past the
    model's last position.
    """
    rows = list(chains)
    next_token = NextToken(
        _choice(chains, config, reader.device),
        [chain.ids for chain in chains],
        blocked(vocabulary, reader.vocabulary).to(reader.device),
        penalty=config.repetition_penalty,
    )
    reading, logits_rv = _read_prompts(reader, chains)
    while True:
        token_r, log_prob_r = next_token(logits_rv)
        drawn = zip(rows, token_r.tolist(), log_prob_r.tolist(), strict=True)
        for chain, token, log_prob in drawn:
            yield chain.push(token, log_prob)
        kept = [row for row, chain in enumerate(rows) if chain.finish is None]
        if not kept:
            return
        if len(kept) < len(rows):
            kept_r = torch.tensor(kept, device=token_r.device)
            reading.select(kept_r)
            next_token.select(kept_r)
            rows, token_r = [rows[row] for row in kept], token_r[kept_r]
        logits_rv = reading.advance(token_r)


def _read_prompts(reader: Reader, chains: Sequence[_Chain]) -> tuple[Reading, Float[Tensor, "r v"]]:
    """Read every prompt once; give them and the logits of what follows, a row a chain."""
    ids_of = {chain.number: chain.ids for chain in chains}
    reading, logits_bv = reader.read(list(ids_of.values()))
    row_of = {number: row for row, number in enumerate(ids_of)}
    rows_r = torch.tensor([row_of[chain.number] for chain in chains], device=reader.device)
    reading.select(rows_r)
    return reading, logits_bv[rows_r]


def _choice(chains: Sequence[_Chain], config: GenerationConfig, device: torch.device) -> Choice:
    if config.temperature == 0:
        return most_likely
    return Sampler(
        chain_keys([chain.key for chain in chains]).to(device),
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
    )
