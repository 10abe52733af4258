"""Three small tasks that tell sequence layers apart: copying, recall and nesting.

Every answer is asked for at a place that does not hold it, so that a layer that sees both sides
finds it no more easily than one that sees the past only.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, assert_never

import torch

from regard.shapes import Bool, Int, Tensor

Task = Literal["copying", "recall", "nesting"]
TASKS: Final[tuple[Task, ...]] = ("copying", "recall", "nesting")

_SYMBOLS, _COPIED, _GAP = 8, 6, 20
_KEYS, _VALUES, _PAIRS, _ASKED = 12, 8, 6, 4
_DIGITS, _DEPTH = 10, 3
_MAX, _MIN, _SUM, _CLOSE, _BLANK, _ASK = range(_DIGITS, _DIGITS + 6)
# One example in so many is held out, by a polynomial of its tokens modulo a prime.
_HELD_OUT, _PRIME, _BASE = 8, 1_000_003, 48_271


class Examples(NamedTuple):
    """Tokens, and the answer at each place that asks for one; -1 elsewhere."""

    tokens_bn: Int[Tensor, "b n"]
    answers_bn: Int[Tensor, "b n"]


@dataclass(frozen=True)
class Shape:
    """The sizes of a task: how many tokens and answers there are, and how long an example is."""

    tokens: int
    answers: int
    length: int


def shape_of(task: Task) -> Shape:
    """The sizes of a task."""
    match task:
        case "copying":
            return Shape(_SYMBOLS + 2, _SYMBOLS, 2 * _COPIED + _GAP)
        case "recall":
            return Shape(_KEYS + _VALUES, _VALUES, 2 * _PAIRS + _ASKED)
        case "nesting":
            return Shape(_DIGITS + 6, _DIGITS, _expression_length(_DEPTH) + 1)
        case _ as never:
            assert_never(never)


def draw(
    task: Task, number: int, generator: torch.Generator, *, held_out: bool = False
) -> Examples:
    """So many examples at random.

    One in eight of all that there can be is held out, which one depends on its tokens alone: what
    is drawn with `held_out` is never drawn without it, whatever the seeds.

    `copying`: 6 symbols, 20 blanks, then 6 marks, at each of which the symbol is asked for that
    was as far before it. `recall`: 6 keys, each with a value, then 4 of the keys, at each of
    which its value is asked for. `nesting`: an expression of maxima, minima and sums modulo 10,
    up to 3 in one another, then a mark that asks for what it comes to.

    Source: copying after Hochreiter and Schmidhuber 1997; recall after Ba et al. 2016,
    arXiv:1610.06258; nesting after Nangia and Bowman 2018 (ListOps), arXiv:1804.06028.
    """
    drawn: list[Examples] = []
    while sum(len(each.tokens_bn) for each in drawn) < number:
        made = _draw(task, number + number // 4 + 1, generator)
        wanted = are_held_out(made.tokens_bn) == held_out
        drawn.append(Examples(made.tokens_bn[wanted], made.answers_bn[wanted]))
    tokens, answers = (torch.cat(parts)[:number] for parts in zip(*drawn, strict=True))
    return Examples(tokens, answers)


def are_held_out(tokens_bn: Int[Tensor, "b n"]) -> Bool[Tensor, "b"]:
    """Which examples are kept from training."""
    powers = torch.tensor([pow(_BASE, place + 1, _PRIME) for place in range(tokens_bn.shape[1])])
    return ((tokens_bn + 1) * powers).sum(1) % _PRIME % _HELD_OUT == 0


def _draw(task: Task, number: int, generator: torch.Generator) -> Examples:
    match task:
        case "copying":
            return _copying(number, generator)
        case "recall":
            return _recall(number, generator)
        case "nesting":
            return _nesting(number, generator)
        case _ as never:
            assert_never(never)


def _copying(number: int, generator: torch.Generator) -> Examples:
    symbols = torch.randint(_SYMBOLS, (number, _COPIED), generator=generator)
    blanks = torch.full((number, _GAP), _SYMBOLS)
    marks = torch.full((number, _COPIED), _SYMBOLS + 1)
    silent = torch.full((number, _COPIED + _GAP), -1)
    return Examples(torch.cat([symbols, blanks, marks], 1), torch.cat([silent, symbols], 1))


def _recall(number: int, generator: torch.Generator) -> Examples:
    keys = torch.rand(number, _KEYS, generator=generator).argsort(1)[:, :_PAIRS]
    values = torch.randint(_VALUES, (number, _PAIRS), generator=generator)
    pairs = torch.stack([keys, values + _KEYS], 2).flatten(1)
    asked = torch.rand(number, _PAIRS, generator=generator).argsort(1)[:, :_ASKED]
    silent = torch.full_like(pairs, -1)
    return Examples(
        torch.cat([pairs, keys.gather(1, asked)], 1),
        torch.cat([silent, values.gather(1, asked)], 1),
    )


def _nesting(number: int, generator: torch.Generator) -> Examples:
    tokens, values = _expression(number, _DEPTH, generator, whole=True)
    asks = torch.full((number, 1), _ASK)
    silent = torch.full_like(tokens, -1)
    return Examples(torch.cat([tokens, asks], 1), torch.cat([silent, values[:, None]], 1))


def _expression(
    number: int, depth: int, generator: torch.Generator, *, whole: bool = False
) -> tuple[Tensor, Tensor]:
    """Expressions as tokens, filled up with blanks, and what they come to.

    Half of those that need not be `whole` are a digit.
    """
    digits = torch.randint(_DIGITS, (number,), generator=generator)
    if depth == 0:
        return digits[:, None], digits
    (left, a), (right, b) = (_expression(number, depth - 1, generator) for _ in range(2))
    which = torch.randint(3, (number,), generator=generator)
    value = torch.stack([torch.maximum(a, b), torch.minimum(a, b), (a + b) % _DIGITS])
    value = value.gather(0, which[None])[0]
    close = torch.full((number, 1), _CLOSE)
    tokens = torch.cat([which[:, None] + _MAX, left, right, close], 1)
    if whole:
        return tokens, value
    plain = torch.full_like(tokens, _BLANK)
    plain[:, 0] = digits
    single = torch.rand(number, generator=generator) < 0.5
    return torch.where(single[:, None], plain, tokens), torch.where(single, digits, value)


def _expression_length(depth: int) -> int:
    return 1 if depth == 0 else 2 + 2 * _expression_length(depth - 1)
