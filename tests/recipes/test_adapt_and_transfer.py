"""Low-rank adaptation of every family, and parts of a translator from other families' runs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import RecipeError, RegardError, RunFolderError
from regard.recipes.finetune import classifier_recipe
from regard.recipes.load import load_recipe
from regard.recipes.merge import merge_run
from regard.recipes.recipe import Recipe
from regard.recipes.run import finetune, resume, train
from regard.training.progress import SilentReporter
from regard.weights.average import average_checkpoints
from regard.weights.run_folder import RunFolder

LINES = [f"the {thing} {state}" for thing in ("light", "door", "fan") for state in
         ("is on", "is off", "is new", "stands open", "was closed again")]  # fmt: skip
QUIET = SilentReporter()
SMALL = [
    "vocabulary.size=270",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_ff=32",
    "training.max_steps=4",
    "training.checkpoint_every=2",
    "training.precision=float32",
    "training.batch_tokens=64",
    "training.device=cpu",
]
ONE_SIDE = [*SMALL, "data.documents=line", "data.valid_share=0.3", "data.max_tokens=16",
            "model.num_layers=2"]  # fmt: skip


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    for name, write in (("pairs", "{0}\t{0}\n"), ("labels", "{1}\t{0}\n")):
        lines = [write.format(line, "on" if "on" in line else "off") for line in LINES]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def base(texts: Path, tmp_path: Path) -> Callable[[str], Path]:
    def make(family: str, *changes: str) -> Path:
        run = tmp_path / family
        if family == "seq2seq":
            pairs = [f'data.tsv=["{texts / "pairs"}"]', "data.valid_pairs=3"]
            train(load_recipe("tiny", [*SMALL, *pairs, *changes]), run, reporter=QUIET)
        else:
            name = "gpt-mini" if family == "decoder" else "bert-mini"
            text = f'data.text=["{texts / "text"}"]'
            train(load_recipe(name, [*ONE_SIDE, text, *changes]), run, reporter=QUIET)
        return run

    return make


def adapted(run: Path, out: Path, texts: Path, *changes: str) -> None:
    """The run's own recipe, trained on from it by low-rank sums; a classifier for an encoder."""
    keys = ["lora.rank=2", "training.max_steps=4", "training.schedule.learning_rate=0.1", *changes]
    if load_recipe(run).family == "encoder":
        labels = f'labels.train=["{texts / "labels"}"]'
        finetune(classifier_recipe(run, [labels, *keys]), out, reporter=QUIET)
    else:
        train(load_recipe(run, keys), out, init=run, reporter=QUIET)


def outputs(run: Path) -> list[object]:
    match load_recipe(run).family:
        case "seq2seq":
            return [score.log_prob for score in regard.load(run).score([("the light", "a fan")])]
        case "decoder":
            return [regard.load_language_model(run).score(["the light is on"])[0].log_prob]
        case "encoder":
            encoder = regard.load_encoder(run)
            return [encoder.embed(LINES[:2]).tolist(), encoder.classify(LINES[:2])]


@pytest.mark.parametrize("family", ["seq2seq", "decoder", "encoder"])
def test_an_adapted_run_is_small_works_and_merges_to_the_bit(
    family: str, base: Callable[[str], Path], texts: Path, tmp_path: Path
) -> None:
    run, tuned, whole = base(family), tmp_path / "tuned", tmp_path / "whole"
    before = RunFolder.open(run).load_weights()
    adapted(run, tuned, texts)
    sizes = [(path / "model.safetensors").stat().st_size for path in (run, tuned)]
    assert sizes[1] < sizes[0] / 3
    after = RunFolder.open(tuned).load_weights()
    changed = {
        name for name in before if name in after and not torch.equal(before[name], after[name])
    }
    assert changed
    assert all("attention" in name and name.endswith(".weight") for name in changed)
    found = outputs(tuned)
    merge_run(tuned, whole)
    assert outputs(whole) == found
    (run / "model.safetensors").unlink()
    assert outputs(whole) == found
    with pytest.raises(RunFolderError, match="the run that it was adapted from can't be used"):
        outputs(tuned)


def test_an_adaptation_that_was_stopped_ends_as_one_that_was_not(
    base: Callable[[str], Path], texts: Path, tmp_path: Path
) -> None:
    run = base("decoder")
    adapted(run, tmp_path / "one", texts, "training.ema_decay=0.5")
    adapted(run, tmp_path / "two", texts, "training.ema_decay=0.5", "training.max_steps=2")
    resume(tmp_path / "two", ["training.max_steps=4"], reporter=QUIET)
    one, two = (RunFolder.open(tmp_path / name).load_weights() for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_base_that_changed_is_noticed_and_what_has_no_meaning_is_refused(
    base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    run = base("decoder")
    with pytest.raises(RecipeError, match="adapts a model that is trained already"):
        train(load_recipe(run, ["lora.rank=2"]), tmp_path / "no", reporter=QUIET)
    adapted(run, tmp_path / "tuned", texts)
    with pytest.raises(RunFolderError, match="there is nothing to merge"):
        merge_run(run, tmp_path / "no")
    with (
        pytest.raises(RunFolderError, match="a low-rank adaptation have no average"),
        RunFolder.open(tmp_path / "tuned", write=True) as folder,
    ):
        average_checkpoints(folder, last=1, log=print)
    with RunFolder.open(run, write=True) as folder:
        weights = {name: weight + 1 for name, weight in folder.load_weights().items()}
        folder.write_model(weights)
    with pytest.raises(RunFolderError, match="has another model now"):
        outputs(tmp_path / "tuned")


def test_an_adaptation_does_not_go_on_from_another_base(
    base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    run = base("decoder")
    adapted(run, tmp_path / "tuned", texts)
    shutil.copytree(run, tmp_path / "former")
    with RunFolder.open(run, write=True) as folder:
        folder.write_model({name: weight + 1 for name, weight in folder.load_weights().items()})
    with pytest.raises(RunFolderError, match="has another model than at the checkpoint of step 4"):
        resume(tmp_path / "tuned", ["training.max_steps=5"], reporter=QUIET)
    shutil.rmtree(run)
    (tmp_path / "former").rename(run)
    resume(tmp_path / "tuned", ["training.max_steps=5"], reporter=QUIET)


PAIRS = ["data.valid_pairs=3", "model.dropout=0"]


def translator(texts: Path, *changes: str) -> Recipe:
    keys = [*SMALL, *PAIRS, f'data.tsv=["{texts / "pairs"}"]', "training.max_steps=1"]
    found = load_recipe("tiny", [*keys, "training.schedule.learning_rate=1e-30", *changes])
    assert isinstance(found, Recipe)
    return found


def test_an_encoder_and_a_language_model_become_the_two_parts_of_a_translator(
    base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    alike = ("model.positions.max_positions=40", "model.embedding_norm=false",
             "model.norm_position=pre", "model.feed_forward=gelu")  # fmt: skip
    encoder = base("encoder", *alike, "model.norm.eps=1e-6")
    decoder = base("decoder", *alike, "vocabulary.size=280")
    recipe = translator(
        texts,
        f"init_encoder={encoder}",
        f"init_decoder={decoder}",
        "model.tying=two_way",
        "vocabulary.joint=false",
    )
    with pytest.raises(RecipeError, match="one recipe has one of them"):
        train(recipe, tmp_path / "both", reporter=QUIET)
    with pytest.raises(RecipeError, match="max_positions = 40 is too few"):
        one = recipe.model_copy(update={"init_decoder": ""})
        train(one, tmp_path / "both", reporter=QUIET)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_tokens": 30})})
    decoder.rename(tmp_path / "former")
    base("decoder", *alike, "vocabulary.size=280", "model.norm.eps=1e-6")
    train(recipe, tmp_path / "both", reporter=QUIET)
    found = RunFolder.open(tmp_path / "both")
    weights, saved = found.load_weights(), load_recipe(tmp_path / "both")
    first, second = RunFolder.open(encoder).load_weights(), RunFolder.open(decoder).load_weights()
    close = {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(
        weights["source_embedding.weight"], first["embedding.weight"], **close
    )
    torch.testing.assert_close(
        weights["target_embedding.weight"], second["embedding.weight"], **close
    )
    name = "layers.1.self_attention.input.weight"
    torch.testing.assert_close(weights[f"encoder_{name}"], first[name], **close)
    torch.testing.assert_close(weights[f"decoder_{name}"], second[name], **close)
    assert saved.model.encoder_layers == saved.model.decoder_layers == 2
    files = found.tokenizer_files()
    assert files.source == RunFolder.open(encoder).tokenizer_files().source
    assert files.target == RunFolder.open(decoder).tokenizer_files().source
    assert len(regard.load(tmp_path / "both").translate(["the light is on"])) == 1
    resume(tmp_path / "both", ["training.max_steps=2"], reporter=QUIET)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_one_part_alone_gives_the_joint_vocabulary(
    part: str, base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    run = base(part)
    train(translator(texts, f"init_{part}={run}"), tmp_path / "one", reporter=QUIET)
    files = RunFolder.open(tmp_path / "one").tokenizer_files()
    assert files.joint
    assert files.source == RunFolder.open(run).tokenizer_files().source
    table = RunFolder.open(tmp_path / "one").load_weights()["source_embedding.weight"]
    expected = RunFolder.open(run).load_weights()["embedding.weight"]
    torch.testing.assert_close(table, expected, rtol=1e-6, atol=1e-6)


def test_two_vocabularies_are_never_said_to_be_one(
    base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    alike = ("model.embedding_norm=false", "model.norm_position=pre", "model.feed_forward=gelu",
             "model.norm.eps=1e-6")  # fmt: skip
    parts = [f"init_encoder={base('encoder', *alike)}",
             f"init_decoder={base('decoder', *alike, 'vocabulary.size=280')}"]  # fmt: skip
    changes = [*parts, "model.tying=two_way", "vocabulary.bpe_dropout=0.1"]
    train(translator(texts, *changes), tmp_path / "both", reporter=QUIET)
    saved = load_recipe(tmp_path / "both").vocabulary
    assert (saved.joint, saved.bpe_dropout) == (False, 0.1)
    assert not RunFolder.open(tmp_path / "both").tokenizer_files().joint
    resume(tmp_path / "both", ["training.max_steps=2"], reporter=QUIET)


def test_a_projection_of_its_own_starts_as_the_embedding_that_it_was(
    base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    run = base("decoder")
    changes = ["model.tying=none", "vocabulary.joint=false"]
    train(translator(texts, f"init_decoder={run}", *changes), tmp_path / "one", reporter=QUIET)
    weights = RunFolder.open(tmp_path / "one").load_weights()
    expected = RunFolder.open(run).load_weights()["embedding.weight"]
    for name in ("projection.weight", "target_embedding.weight"):
        torch.testing.assert_close(weights[name], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("option", ["init", "init_encoder"])
def test_skipped_merges_are_kept_where_there_are_merges_and_refused_elsewhere(
    option: str, base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    family = "seq2seq" if option == "init" else "encoder"
    skip = "vocabulary.bpe_dropout=0.2"
    run = base(family, "vocabulary.kind=bpe")
    train(translator(texts, f"{option}={run}", skip), tmp_path / "one", reporter=QUIET)
    assert load_recipe(tmp_path / "one").vocabulary.bpe_dropout == 0.2
    run.rename(tmp_path / "merges")
    base(family, "vocabulary.kind=char")
    with pytest.raises(RecipeError) as refused:
        train(translator(texts, f"{option}={run}", skip), tmp_path / "no", reporter=QUIET)
    assert str(refused.value) == (
        f'--{option.replace("_", "-")} {run}: the vocabulary there is of the kind "char", and '
        'vocabulary.bpe_dropout = 0.2 needs "bpe"\n  Add --set vocabulary.bpe_dropout=0.'
    )


def test_parts_that_are_none_or_have_no_place_are_refused(
    base: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    run = base("decoder")
    with pytest.raises(RecipeError, match='expected a run of the family "encoder"'):
        train(translator(texts, f"init_encoder={run}"), tmp_path / "no", reporter=QUIET)
    with pytest.raises(RecipeError, match="give the one or the others"):
        translator(texts, f"init_decoder={run}", f"init={run}")


@pytest.mark.parametrize(
    ("changes", "init", "said"),
    [
        (["lora.rank=2"], False, "adapts a model that is trained already"),
        (["model.d_ff=64"], True, "model.d_ff = 64 here, and 32 in the run to start from"),
        (["training.device=cuda"], False, "needs a CUDA GPU"),
    ],
)
def test_what_no_text_could_set_right_is_refused_before_anything_is_made(
    changes: list[str], init: bool, said: str, base: Callable[..., Path], tmp_path: Path
) -> None:
    run = base("decoder")
    recipe = load_recipe(run, changes)
    with pytest.raises(RegardError, match=said):
        train(recipe, tmp_path / "no", init=run if init else None, reporter=QUIET)
    assert not (tmp_path / "no").exists()
