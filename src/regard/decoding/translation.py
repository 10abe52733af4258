"""What becomes of a line: its text, its scores, and where each word came from."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.decoding.alignment import NO_WORD, byte_words, token_words, word_links
from regard.decoding.hypothesis import Attention, Hypothesis
from regard.text.vocabulary import Vocabulary, framed


@dataclass(frozen=True)
class Candidate:
    """One of the n best translations of a line.

    `score` is what it was ranked by, `log_prob` the natural logarithm of its probability. Both
    are sums over the pieces of a line that was cut into pieces. `tokens` are target ids, without
    control tokens. `finished` is False when the search cut it, in any piece, before it ended.
    """

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...]
    finished: bool


@dataclass(frozen=True)
class Translation:
    """The translation of a line; the first five fields are those of the best candidate.

    `alignment` links words of the source to words of the text, counted from 0, in order; None
    when it was not asked for. `attention_ts`, a NumPy array, is what every target token drew from
    every source token (0 between pieces of a line that was cut), with the tokens beside it; None
    and empty when it was not asked for.
    """

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...]
    finished: bool
    hypotheses: tuple[Candidate, ...]
    alignment: tuple[tuple[int, int], ...] | None = None
    attention_ts: Attention | None = field(default=None, compare=False)
    source_tokens: tuple[str, ...] = ()
    target_tokens: tuple[str, ...] = ()

    @property
    def pharaoh(self) -> str:
        """The alignment as `0-0 1-2`, source word first."""
        return " ".join(f"{source}-{target}" for source, target in self.alignment or ())


def blank(*, alignments: bool) -> Translation:
    """The translation of a blank line: nothing, and certain."""
    nothing = Candidate("", 0.0, 0.0, (), True)
    return Translation("", 0.0, 0.0, (), True, (nothing,), () if alignments else None)


def assemble(
    line: str,
    bounds: Sequence[tuple[int, int]],
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    source_tokenizer: Vocabulary,
    target_tokenizer: Vocabulary,
    *,
    alignments: bool,
    attention: bool,
) -> Translation:
    """Put the pieces of a line together.

    Args:
        bounds: each piece's bounds in the line, in characters.
        sources: each piece's source tokens, without control tokens.
        found: each piece's hypotheses, the best first; where one has fewer than another, its
            last one stands in.
    """
    count = max(len(hypotheses) for hypotheses in found)
    candidates = tuple(
        _candidate(
            [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found], target_tokenizer
        )
        for rank in range(count)
    )
    best = candidates[0]
    chosen = [hypotheses[0] for hypotheses in found]
    links = None
    if alignments:
        links = _links(line, bounds, sources, chosen, source_tokenizer, target_tokenizer)
    attention_ts = None
    source_tokens: list[str] = []
    if attention:
        attention_ts = _block_diagonal(_attentions(chosen))
        for ids in sources:
            source_tokens += source_tokenizer.tokens(framed(source_tokenizer, ids))
    return Translation(
        best.text,
        best.score,
        best.log_prob,
        best.tokens,
        best.finished,
        candidates,
        links,
        attention_ts,
        tuple(source_tokens),
        tuple(target_tokenizer.tokens(best.tokens)) if attention else (),
    )


def _candidate(parts: Sequence[Hypothesis], tokenizer: Vocabulary) -> Candidate:
    texts = (_on_one_line(tokenizer.decode(part.tokens)) for part in parts)
    return Candidate(
        text=" ".join(text for text in texts if text),
        score=sum(part.score for part in parts),
        log_prob=sum(part.log_prob for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        finished=all(part.finished for part in parts),
    )


def _on_one_line(text: str) -> str:
    """A newline inside a translation would make two lines of one."""
    return text.replace("\n", " ").replace("\r", " ")


def _attentions(chosen: Sequence[Hypothesis]) -> list[Attention]:
    return [part.attention_ts for part in chosen if part.attention_ts is not None]


def _block_diagonal(blocks: Sequence[Attention]) -> Attention:
    heights, widths = ([block.shape[axis] for block in blocks] for axis in (0, 1))
    whole_ts = np.zeros((sum(heights), sum(widths)), blocks[0].dtype)
    row = column = 0
    for block in blocks:
        whole_ts[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole_ts


def _links(
    line: str,
    bounds: Sequence[tuple[int, int]],
    sources: Sequence[Sequence[int]],
    chosen: Sequence[Hypothesis],
    source_tokenizer: Vocabulary,
    target_tokenizer: Vocabulary,
) -> tuple[tuple[int, int], ...]:
    line_words = byte_words(line.encode("utf-8"))
    pieces = [target_tokenizer.pieces(part.tokens) for part in chosen]
    # As in the text: without the tokenizer's own space, and with one between parts.
    texts = [b"".join(tokens).removeprefix(b" ") for tokens in pieces]
    target_words = byte_words(b" ".join(text for text in texts if text))
    before = [NO_WORD] * len(source_tokenizer.prefix)
    after = [NO_WORD] * len(source_tokenizer.suffix)
    links: set[tuple[int, int]] = set()
    target_start = 0
    for (start, end), ids, tokens, text, attention_ts in zip(
        bounds, sources, pieces, texts, _attentions(chosen), strict=True
    ):
        first, last = (len(line[:place].encode("utf-8")) for place in (start, end))
        source = _source_words(source_tokenizer.pieces(ids), line_words[first:last])
        words = target_words[target_start : target_start + len(text)]
        own_space = sum(map(len, tokens)) - len(text)
        target = token_words(tokens, [*[NO_WORD] * own_space, *words])
        links.update(word_links(attention_ts, [*before, *source, *after], target))
        target_start += len(text) + 1 if text else 0
    return tuple(sorted(links))


def _source_words(pieces: Sequence[bytes], words: Sequence[int]) -> list[int]:
    """The word of each source token, whose bytes are the text's, maybe with a space before.

    A vocabulary from elsewhere may have changed the text; then its words are counted, from that
    of the text's first.
    """
    joined = b"".join(pieces)
    if len(joined) - len(words) in (0, 1):
        return token_words(pieces, [*[NO_WORD] * (len(joined) - len(words)), *words])
    first = next((word for word in words if word != NO_WORD), 0)
    own = byte_words(joined)
    return token_words(pieces, [NO_WORD if word == NO_WORD else first + word for word in own])
