"""Calls all that is exported with what it can't use, and prints every call with another end.

A script, for the test run checks types itself, before the code is asked: `python misuse.py FOLDER`.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from serving.tiny_families import make_encoder_run, make_language_run
from serving.tiny_runs import make_run

import regard
from regard.errors import RegardError
from regard.serving.generator import GenerationOptions
from regard.serving.translator import DecodingOptions


class Thing:
    """Of no use to anyone."""


NOT_A_NUMBER: list[Any] = [True, 1.5, "2", b"2", [], [1], Thing(), None, float("nan"), 10**30, -1]
NOT_A_STRING: list[Any] = [None, True, 3, 1.5, b"x", [], Thing()]
NOT_LINES: list[Any] = [None, True, 3, 1.5, b"x", [3], [None], [b"x"], Thing(), {"a": 1}]
NOT_PATHS: list[Any] = [None, True, 3, 1.5, b"x", [], [None], [3], Thing()]
NOT_PAIRS: list[Any] = [
    None,
    3,
    "ab",
    ["ab"],
    [("a",)],
    [("a", 3)],
    [("a", "b", "c")],
    [b"ab"],
    Thing(),
]
PLACES: dict[str, list[Any]] = {
    "device": [*NOT_A_STRING, "", "gpu"],
    "threads": [each for each in NOT_A_NUMBER if each is not None] + [0, 10**6],
    "engine": [*NOT_A_STRING, "", "fast"],
    "dtype": [each for each in NOT_A_STRING if each is not None] + ["", "int3"],
}
TELLING: dict[str, list[Any]] = {
    "first_line": [None, True, 1.5, "1", Thing()],
    "warn": [3, "print", Thing()],
}


class Public(NamedTuple):
    """The exported objects at work."""

    folder: Path
    translator: regard.Translator
    generator: regard.Generator
    encoder: regard.Encoder
    tokenizer: regard.Tokenizer


def made(folder: Path) -> Public:
    """Runs of each family, opened."""
    tokenizer = regard.load(make_run(folder / "ende")).tokenizers.source
    assert isinstance(tokenizer, regard.Tokenizer)
    return Public(
        folder,
        regard.load(folder / "ende"),
        regard.load_language_model(make_language_run(folder / "gpt")),
        regard.load_encoder(make_encoder_run(folder / "bert")),
        tokenizer,
    )


Call = Callable[..., Any]


def calls(public: Public) -> Iterator[tuple[str, Call, dict[str, Any], dict[str, list[Any]]]]:
    """Each call by its name: itself, right arguments, and for each of these wrong ones."""
    folder, translator, generator, encoder, tokenizer = public
    for load, run in (
        (regard.load, "ende"),
        (regard.load_language_model, "gpt"),
        (regard.load_encoder, "bert"),
    ):
        yield load.__name__, load, {"path": folder / run}, {"path": NOT_PATHS, **PLACES}
    yield "load", regard.load, {"path": folder / "ende"}, {"shortlist": [None, 1, "yes", Thing()]}
    yield "load_recipe", regard.load_recipe, {"name_or_path": "base"}, {
        "name_or_path": [*NOT_PATHS, ""],
        "overrides": [None, "training.seed=1", 3, [3], [None], [b"x"], ["x"], Thing()],
        "only": [None, "decoding", 3, [3], Thing()],
    }  # fmt: skip
    recipe = regard.load_recipe("tiny")
    not_recipe = [*NOT_PATHS, "base", Path("base"), {}]
    yield "format_recipe", regard.format_recipe, {"recipe": recipe}, {"recipe": not_recipe}
    yield "train", regard.train, {"recipe": recipe, "out": folder / "new"}, {
        "recipe": not_recipe,
        "out": NOT_PATHS,
        "init": [each for each in NOT_PATHS if each is not None],
        "reporter": [3, Thing()],
    }  # fmt: skip
    yield "translate", translator.translate, {"lines": ["a"]}, {
        "lines": NOT_LINES, **wrong_options(DecodingOptions),
    }  # fmt: skip
    yield "translations", translator.translations, {"lines": ["a"]}, {
        "lines": ["a", *NOT_LINES],
        "prefixes": ["a", *NOT_LINES[1:], ["a", "b"], []],
        **TELLING,
    }  # fmt: skip
    for name in ("score", "judge", "lengths"):
        yield name, getattr(translator, name), {"pairs": [("a", "b")]}, {"pairs": NOT_PAIRS}
    yield "generate", generator.generate, {"prompts": ["a"]}, {
        "prompts": NOT_LINES, **wrong_options(GenerationOptions),
    }  # fmt: skip
    telling = {"first_prompt": TELLING["first_line"], "warn": TELLING["warn"]}
    wrong = {"prompts": ["a", *NOT_LINES], **telling}
    yield "continuations", generator.continuations, {"prompts": ["a"]}, wrong
    wrong = {"prompt": [*NOT_A_STRING, ["a"]], "warn": TELLING["warn"]}
    yield "stream", generator.stream, {"prompt": "a"}, wrong
    yield "texts", generator.score, {"texts": ["a"]}, {"texts": ["a", *NOT_LINES]}
    wrong = {"lines": NOT_LINES, **TELLING}
    yield "classify", encoder.classify, {"lines": ["a"]}, wrong
    wrong |= {
        "pooling": [each for each in NOT_A_STRING if each is not None] + ["max"],
        "normalize": [3, "no", 0, [], Thing()],
    }
    yield "embed", encoder.embed, {"lines": ["a"]}, wrong
    yield "fill", encoder.fill, {"text": "a [MASK]"}, {
        "text": [*NOT_A_STRING, "", "a"], "top": [0, *NOT_A_NUMBER[:-2], -1],
        "warn": TELLING["warn"],
    }  # fmt: skip
    yield "encode", tokenizer.encode, {"text": "a"}, {"text": NOT_A_STRING}
    yield "encode_more", tokenizer.encode_more, {"text": "a"}, {"text": NOT_A_STRING}
    yield "encode_batch", tokenizer.encode_batch, {"texts": ["a"]}, {"texts": ["a", *NOT_LINES]}
    not_ids = [None, 3, "ab", ["a"], [1.5], [None], [True], [10**9], [-1], Thing()]
    for name in ("decode", "pieces", "tokens"):
        yield name, getattr(tokenizer, name), {"ids": [5]}, {"ids": not_ids}
    yield "Tokenizer.load", regard.Tokenizer.load, {}, {"path": NOT_PATHS}
    yield "Tokenizer.save", tokenizer.save, {}, {"path": NOT_PATHS}
    not_bytes: list[Any] = [None, 3, "x", [], b"", b"\xff", b"{}", Thing()]
    yield "Tokenizer.from_bytes", regard.Tokenizer.from_bytes, {}, {"data": not_bytes}
    for model in (translator.model, generator.model, encoder.model):
        yield "recorded_attention", recorded, {"model": model}, {
            "model": [translator, generator, encoder, None, 3, "ende", folder],
            "layers": ["encoder_layers.0.self_attention", 3, [3], ["none"], [None], True],
            "heads": [[], [True], 0, [0.5], "0", ["0"], [None], [-1], [10**9], True, 1.5],
        }  # fmt: skip


def recorded(**named: Any) -> None:
    with regard.recorded_attention(**named):
        pass


def wrong_options(options: Any) -> dict[str, list[Any]]:
    """Values that each option can't have, by its type."""
    wrong: dict[str, list[Any]] = {"beem": [1]}
    for name, kind in get_type_hints(options).items():
        if kind is int:
            wrong[name] = [each for each in NOT_A_NUMBER if not (name == "seed" and each == -1)]
        elif kind is float:
            wrong[name] = [True, "2", b"2", [], None, float("nan"), float("inf"), Thing()]
        else:
            wrong[name] = [None, True, 3, b"x", Thing(), [3]]
    return wrong


def bare(public: Public) -> Iterator[str]:
    """The calls that were taken, or that ended with an error of another kind."""
    for name, call, right, wrong in calls(public):
        for argument, values in wrong.items():
            for value in values:
                case = f"{name}({argument}={value!r:.60})"
                try:
                    call(**{**right, argument: value})
                except RegardError as error:
                    if not error.problem or len(str(error)) > 1000:
                        yield f"{case}: {error}"
                except Exception as error:
                    yield f"{case}: {type(error).__name__}: {error!s:.80}"
                else:
                    yield f"{case}: taken"


def of_numpy(public: Public) -> Iterator[str]:
    """The calls that take a number of Python's and not the same of NumPy's."""
    folder, translator, _, encoder, tokenizer = public
    regard.load(folder / "ende", threads=np.int64(1))
    wide = translator.translations(["on"], beam=np.int64(3), alpha=np.float32(0.5))
    if wide != translator.translations(["on"], beam=3, alpha=0.5):
        yield "beam"
    if tokenizer.decode(np.array(tokenizer.encode("the light"))) != "the light":
        yield "decode"
    if len(encoder.fill("a [MASK]", top=np.uint8(2))[0]) != 2:
        yield "fill"
    with regard.recorded_attention(translator.model, heads=[np.int32(0)]):
        pass


if __name__ == "__main__":
    opened = made(Path(sys.argv[1]))
    for line in itertools.chain(bare(opened), of_numpy(opened)):
        print(line)  # noqa: T201
