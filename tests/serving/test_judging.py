"""`regard score`, `evaluate` and `average`: their figures, and what they refuse."""

import json
import math
from pathlib import Path

import pytest
from serving.command import Command, Done
from serving.tiny_runs import TEXT, make_run

import regard
from regard.errors import DataError
from regard.evaluation.metrics import perplexity
from regard.serving.translator import Translator
from regard.text.tokenizer import Tokenizer
from regard.training.validation import TranslationValidator
from regard.weights.checkpoints import save_checkpoint
from regard.weights.run_folder import RunFolder


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A source and a target, the last pair of which is longer than the model was trained on."""
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("the light\noff\n\nkitchen\n" + "on " * 30, encoding="utf-8")
    target.write_text("das Licht\naus\nleer\nKüche\n" + "an " * 30, encoding="utf-8")
    return source, target


def pairs_of(files: tuple[Path, Path]) -> list[tuple[str, str]]:
    source, target = (path.read_text(encoding="utf-8").split("\n") for path in files)
    return list(zip(source, target, strict=True))


LONG = (
    "warning: 1 of 5 pairs has a side of more than the 24 tokens that the model was trained on; "
    "such figures say little\n"
)


def test_score_prints_a_line_a_pair_and_says_the_perplexity(
    command: Command, run_path: Path, translator: Translator, files: tuple[Path, Path]
) -> None:
    done = command("score", run_path, "--source", files[0], "--target", files[1])
    scores = translator.score(pairs_of(files))
    assert done.code == 0
    assert done.lines == [f"{each.log_prob:.6f}\t{each.tokens}" for each in scores]
    tokens = sum(each.tokens for each in scores)
    value = perplexity(sum(each.log_prob for each in scores), tokens)
    said = f"perplexity {value:.4f} per target token (5 lines, {tokens} tokens)\n"
    assert done.err == LONG + said


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_score_refuses_what_is_too_long_before_it_begins(
    engine: str, command: Command, run_path: Path, tmp_path: Path
) -> None:
    """Time and memory grow with the square of a line, so a line without end has none either."""
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("on\n" * 12 + "on " * 9000 + "\noff\n", encoding="utf-8")
    target.write_text("an\n" * 12 + "aus\n" + "aus " * 50_000 + "\n", encoding="utf-8")
    done = command("score", run_path, "--source", source, "--target", target, "--engine", engine)
    tokens = len(
        Tokenizer.from_bytes((run_path / "tokenizer.json").read_bytes()).encode("on " * 9000)
    )
    assert (done.code, done.lines) == (2, [])
    assert done.err == (
        f"error: {source}, line 13: {tokens:,} tokens is more than the 4,096 that can be scored "
        "at once; so long too: 1 of 14 pairs (number 14)\n"
        "  Leave such pairs out, or score them sentence by sentence.\n"
    )
    with pytest.raises(
        DataError, match=r"^pairs\[1\]\[1\]: [0-9,]+ tokens is more than the 4,096 "
    ):
        regard.load(run_path, engine=engine).score([("on", "an"), ("on", "aus " * 50_000)])


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_the_longest_pair_that_can_be_scored_is_scored(engine: str, run_path: Path) -> None:
    translator = regard.load(run_path, engine=engine)
    least, most = 0, 4097
    while most - least > 1:  # so many of these words have 4,096 tokens, or just less
        middle = (least + most) // 2
        [(tokens, _)] = translator.lengths([("on " * middle, "")])
        least, most = (middle, most) if tokens <= 4096 else (least, middle)
    [found] = translator.score([("on " * least, "an")])
    assert math.isfinite(found.log_prob)
    with pytest.raises(DataError, match="more than the 4,096"):
        translator.score([("on " * most, "an")])


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_pair_beyond_the_positions_is_named(engine: str, tmp_path: Path) -> None:
    changes = ["model.positions.kind=learned", "model.positions.max_positions=40"]
    translator = regard.load(make_run(tmp_path / "learned", changes=changes), engine=engine)
    limits = translator.score_limits
    assert (limits.source, limits.target) == (39, 39)
    for side, pair in enumerate([("on " * 40, "an"), ("on", "an " * 40)]):
        where = rf"^pairs\[1\]\[{side}\]: [0-9]+ tokens is more than the 39 "
        with pytest.raises(DataError, match=where):
            translator.score([("on", "an"), pair])


def test_score_as_json_holds_it_all(
    command: Command, run_path: Path, translator: Translator, files: tuple[Path, Path]
) -> None:
    done = command("score", run_path, "--source", files[0], "--target", files[1], "--json")
    scores = translator.score(pairs_of(files))
    figures = json.loads(done.out)
    assert done.err == LONG
    assert figures["pairs"] == [
        {"log_prob": each.log_prob, "tokens": each.tokens} for each in scores
    ]
    assert figures["tokens"] == sum(each.tokens for each in scores)
    assert figures["log_prob"] == pytest.approx(sum(each.log_prob for each in scores))
    assert figures["perplexity"] == pytest.approx(
        perplexity(figures["log_prob"], figures["tokens"])
    )


def test_evaluate_gives_the_figures_of_a_validation_in_training(
    command: Command, run_path: Path, translator: Translator, files: tuple[Path, Path]
) -> None:
    sources, targets = zip(*pairs_of(files), strict=True)
    seen = TranslationValidator(
        sources,
        targets,
        translator.tokenizers,
        translator.recipe.decoding,
        trained_length=translator.recipe.data.max_tokens,
    ).run(translator.model)
    asked = ("evaluate", run_path, "--source", files[0], "--reference", files[1])
    figures = json.loads(command(*asked, "--json", "--engine=torch").out)
    assert figures["bleu"] == {
        "value": seen.figures["bleu"],
        "signature": seen.signatures["bleu_signature"],
    }
    assert figures["chrf"] == {
        "value": seen.figures["chrf"],
        "signature": seen.signatures["chrf_signature"],
    }
    assert figures["perplexity"] == seen.figures["perplexity"]
    assert (figures["lines"], figures["left_out"]) == (5, 1)
    done = command(*asked)
    assert [line.split() for line in done.lines[:2]] == [
        ["BLEU", f"{seen.figures['bleu']:.2f}", seen.signatures["bleu_signature"]],
        ["chrF", f"{seen.figures['chrf']:.2f}", seen.signatures["chrf_signature"]],
    ]
    assert done.lines[2].startswith(
        f"perplexity  {seen.figures['perplexity']:7.2f}  per target token, "
    )
    assert (
        "warning: the perplexity leaves out 1 of 5 pairs, with a side of more than 24 tokens, "
        "as training does\n"
    ) in done.err


def test_evaluate_searches_as_it_is_told(
    command: Command, run_path: Path, translator: Translator, tmp_path: Path
) -> None:
    source, reference = tmp_path / "source", tmp_path / "reference"
    source.write_text("\n".join(TEXT), encoding="utf-8")
    texts = translator.translate(TEXT, beam=1, min_tokens=5)
    reference.write_text("\n".join(texts), encoding="utf-8")
    asked = ("evaluate", run_path, "--source", source, "--reference", reference, "--json")
    told = command(*asked, "--set=decoding.beam=1", "--set=decoding.min_tokens=5")
    assert json.loads(told.out)["chrf"]["value"] == 100
    assert json.loads(command(*asked).out)["chrf"]["value"] < 100


@pytest.mark.parametrize(("name", "second"), [("score", "--target"), ("evaluate", "--reference")])
def test_files_that_do_not_match_are_refused_with_both_counts(
    command: Command, run_path: Path, tmp_path: Path, name: str, second: str
) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"a\nb\nc\n")
    target.write_bytes(b"a\nb")
    asked = (name, run_path, "--source", source, second, target)
    assert command(*asked) == Done(
        2,
        b"",
        f"error: {source}, {target}: the source has 3 lines and the target has 2\n"
        "  line N of the target must be the translation of line N of the source\n",
    )
    target.write_bytes(b"")
    assert command(*asked).err.startswith(f"error: {target}: the file is empty\n")
    source.write_bytes(b"")
    assert command(*asked).err.startswith(f"error: {source}: the file is empty\n")
    target.unlink()
    assert command(*asked).err.startswith(f"error: {target}: no such file\n")


@pytest.fixture
def checkpointed(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 1, 2 and 3, whose weights are of three seeds."""
    path = make_run(tmp_path / "run")
    for step in (1, 2, 3):
        model = regard.load(make_run(tmp_path / f"seed{step}", seed=step), device="cpu").model
        save_checkpoint(path, step, {"model": model.state_dict()}, {"step": step})
    return path


def test_average_replaces_the_model_and_keeps_the_trained_one(
    command: Command, checkpointed: Path, tmp_path: Path
) -> None:
    trained = (checkpointed / "model.safetensors").read_bytes()
    assert command("average", checkpointed, "--last=2") == Done(
        0, f"{checkpointed}\n".encode(), "averaged the checkpoints of these steps: 2, 3\n"
    )
    assert (checkpointed / "model.trained.safetensors").read_bytes() == trained
    mean = regard.load(checkpointed, device="cpu").model.state_dict()
    second, third = (RunFolder.open(tmp_path / f"seed{step}").load_weights() for step in (2, 3))
    for name, weight in mean.items():
        assert weight.allclose((second[name] + third[name]) / 2), name


def test_an_average_can_be_undone(command: Command, checkpointed: Path) -> None:
    trained = (checkpointed / "model.safetensors").read_bytes()
    command("average", checkpointed, "--last=2")
    assert (checkpointed / "model.safetensors").read_bytes() != trained
    assert command("average", checkpointed, "--undo") == Done(
        0, f"{checkpointed}\n".encode(), "the model is again the one that training wrote\n"
    )
    assert (checkpointed / "model.safetensors").read_bytes() == trained
    done = command("average", checkpointed, "--undo", "--last=2")
    assert done == Done(2, b"", "error: --last: cannot go with --undo\n  Give one of the two.\n")


def test_average_into_a_new_folder_leaves_the_run(
    command: Command, checkpointed: Path, tmp_path: Path
) -> None:
    trained = (checkpointed / "model.safetensors").read_bytes()
    out = tmp_path / "average"
    done = command("average", checkpointed, "--steps", 1, 3, "--out", out)
    assert done == Done(0, f"{out}\n".encode(), "averaged the checkpoints of these steps: 1, 3\n")
    assert (checkpointed / "model.safetensors").read_bytes() == trained
    assert command("translate", out, stdin=b"light\n").code == 0


def test_average_refuses_more_checkpoints_than_there_are(
    command: Command, checkpointed: Path
) -> None:
    assert command("average", checkpointed) == Done(
        2,
        b"",
        f"error: {checkpointed}/checkpoints: wanted 5 whole checkpoints, found 3\n"
        "  Use --last 3.\n",
    )
    done = command("average", checkpointed, "--last=2", "--steps=1")
    assert done.err == "error: --last: cannot go with --steps\n  Give one of the two.\n"
