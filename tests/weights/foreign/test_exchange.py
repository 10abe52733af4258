"""Run folders out to transformers and back: the same logits there, the same bits here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from weights.foreign.elsewhere import saved
from weights.foreign.test_bert import distilbert, roberta

from regard.errors import CheckpointError, ModelError
from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.nn.config import (
    LearnedConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    NTKScalingConfig,
    RMSNormConfig,
    RotaryConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from regard.recipes.bring import export_run, import_checkpoint
from regard.recipes.load import load_recipe
from regard.recipes.names import preset_names
from regard.recipes.recipe import AnyRecipe, DecoderRecipe, EncoderRecipe, Recipe
from regard.recipes.write import format_recipe
from regard.text.config import DataConfig, LabelsConfig, TextConfig, VocabularyConfig
from regard.text.tokenizer import Tokenizer
from regard.weights.foreign import ctranslate2, huggingface
from regard.weights.foreign.families import read
from regard.weights.foreign.model import OwnModel
from regard.weights.foreign.parts import wanted_weights
from regard.weights.run_folder import RunFolder

LINES = ["the lights are on", "the heat is off", "Öffne die Tür!", "12 doors are open"]
TEXTS = [*LINES, "  two spaces, </s> and a naïve 🙂 smile", "", "a"]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SHAPE: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 12}
LLAMA: dict[str, Any] = SHAPE | {
    "num_layers": 2,
    "dropout": 0.0,  # LLaMA has no place for another
    "norm": RMSNormConfig(),
    "feed_forward": "swiglu",
    "attention_bias": False,
    "positions": RotaryConfig(),
    "tied": False,
}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])

MARIAN = {
    "halves, tied": TransformerConfig(**SHAPE, positions=SinusoidalConfig(layout="halves")),
    "as in the paper": TransformerConfig(**SHAPE, encoder_layers=1, output_bias=True),
    "two-way": TransformerConfig(**SHAPE, tying="two_way", feed_forward="swish"),
    "untied": TransformerConfig(
        **SHAPE, tying="none", positions=SinusoidalConfig(layout="halves"), embedding_scale=False
    ),
}
DECODERS = {
    "gpt2": DecoderConfig(**SHAPE, num_layers=2, positions=LearnedConfig(max_positions=64)),
    "gpt2, untied": DecoderConfig(
        **SHAPE, num_layers=2, tied=False, positions=LearnedConfig(max_positions=64)
    ),
    "llama": DecoderConfig(**LLAMA),
    "llama, tied": DecoderConfig(**LLAMA | {"tied": True, "num_kv_heads": 1, "d_k": 6, "d_v": 6}),
    "llama, yarn": DecoderConfig(
        **LLAMA
        | {"positions": RotaryConfig(scaling=YarnScalingConfig(factor=4.0, original_positions=16))}
    ),
    "llama, llama3": DecoderConfig(
        **LLAMA | {"positions": RotaryConfig(scaling=Llama3ScalingConfig(original_positions=16))}
    ),
    "llama, linear": DecoderConfig(
        **LLAMA | {"positions": RotaryConfig(scaling=LinearScalingConfig(factor=2.0))}
    ),
    "mistral": DecoderConfig(**LLAMA, window=3),
    "qwen2": DecoderConfig(
        **LLAMA | {"attention_bias": True},
        attention_output_bias=False,
        window=3,
        window_from=1,
    ),
}
BERTS = {
    "masked": EncoderConfig(**SHAPE, num_layers=2, token_types=2),
    "classes": EncoderConfig(**SHAPE, num_layers=2, pooler=True),
    "bare": EncoderConfig(
        **SHAPE, num_layers=2, prediction_head=False, pooler=True, feed_forward="relu"
    ),
}


def vocabulary(kind: Any = "bpe", *, mask: bool = False) -> Tokenizer:
    config = VocabularyConfig(kind=kind, size=300)
    return Tokenizer.train(iter(LINES), config, mask=mask)


def random_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval().state_dict()


def write(
    path: Path, recipe: AnyRecipe, tokenizer: Tokenizer, weights: Mapping[str, torch.Tensor]
) -> Path:
    with RunFolder.create(path) as run:
        run.write_recipe(format_recipe(recipe))
        run.write_tokenizers(tokenizer.to_bytes())
        run.write_model(weights)
    return path


def seq2seq_run(path: Path, config: TransformerConfig) -> tuple[Path, Any]:
    tokenizer = vocabulary()
    size = tokenizer.size
    model = build_model(config, source_vocabulary=size, target_vocabulary=size, seed=1)
    recipe = Recipe(
        model=config, vocabulary=VocabularyConfig(size=300), data=DataConfig(max_tokens=40)
    )
    return write(path, recipe, tokenizer, random_weights(model)), model


def decoder_run(path: Path, config: DecoderConfig, kind: Any = "bpe") -> tuple[Path, Any]:
    tokenizer = vocabulary(kind)
    model = build_language_model(config, vocabulary=tokenizer.size, seed=1)
    recipe = DecoderRecipe(
        model=config,
        vocabulary=VocabularyConfig(kind=kind, size=300),
        data=TextConfig(max_tokens=64),
    )
    return write(path, recipe, tokenizer, random_weights(model)), model


def encoder_run(
    path: Path,
    config: EncoderConfig,
    labels: tuple[str, ...] = (),
    weights: Mapping[str, torch.Tensor] | None = None,
) -> tuple[Path, Any]:
    tokenizer = vocabulary(mask=True)
    model = build_encoder(config, vocabulary=tokenizer.size, seed=1, classes=len(labels))
    recipe = EncoderRecipe(
        model=config,
        vocabulary=VocabularyConfig(size=300),
        data=TextConfig(max_tokens=64),
        labels=LabelsConfig(names=labels),
    )
    return write(path, recipe, tokenizer, weights or random_weights(model)), model


def comes_back(run: Path, out: Path, *, bits: bool = True) -> None:
    """What was exported to `out` is imported as it was, and exported again to the same bits."""
    back, again = out.parent / "back", out.parent / "again"
    import_checkpoint(out, back)
    before, after = RunFolder.open(run).load_weights(), RunFolder.open(back).load_weights()
    assert before.keys() == after.keys()
    if bits:
        assert all(torch.equal(before[name], after[name]) for name in before)
        ours, theirs = load_recipe(run).model, load_recipe(back).model
        assert theirs == ours.resolved()
    export_run(back, again, "huggingface")
    name = "model.safetensors"
    assert (again / name).read_bytes() == (out / name).read_bytes()


@pytest.mark.parametrize("case", MARIAN)
def test_a_translator_is_a_marian_of_transformers(case: str, tmp_path: Path) -> None:
    run, model = seq2seq_run(tmp_path / "run", MARIAN[case])
    out = tmp_path / "out"
    export_run(run, out, "huggingface")
    theirs = transformers.MarianMTModel.from_pretrained(out).eval()
    wanted = theirs(input_ids=IDS, decoder_input_ids=IDS[:, :5]).logits
    torch.testing.assert_close(model(IDS, IDS[:, :5]), wanted, **CLOSE)
    assert theirs.generation_config.bad_words_ids == [[0], [1]]
    comes_back(run, out, bits=MARIAN[case].positions.layout == "halves")  # type: ignore[union-attr]


@pytest.mark.parametrize("case", DECODERS)
def test_a_language_model_is_one_of_transformers(case: str, tmp_path: Path) -> None:
    run, model = decoder_run(tmp_path / "run", DECODERS[case])
    out = tmp_path / "out"
    export_run(run, out, "huggingface")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert theirs.config.model_type == case.split(",", maxsplit=1)[0]
    torch.testing.assert_close(model(IDS), theirs(IDS).logits, **CLOSE)
    comes_back(run, out)


@pytest.mark.parametrize("width", [4, 2])
def test_ntk_scaling_goes_out_as_a_larger_base(width: int, tmp_path: Path) -> None:
    positions = RotaryConfig(scaling=NTKScalingConfig(factor=3.0))
    config = DecoderConfig(**LLAMA | {"positions": positions, "d_k": width, "d_v": width})
    run, model = decoder_run(tmp_path / "run", config)
    export_run(run, tmp_path / "out", "huggingface")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(model(IDS), theirs(IDS).logits, **CLOSE)


def with_dropout(config: Any) -> Any:
    return config.model_copy(update={"dropout": 0.2, "activation_dropout": 0.3})


def test_dropouts_that_a_format_has_no_place_for_are_told(tmp_path: Path) -> None:
    none = "left out: model.{} = {}, which only training uses"
    activation = none.format("activation_dropout", 0.3)
    run, _ = decoder_run(tmp_path / "llama", with_dropout(DECODERS["llama"]))
    notes = export_run(run, tmp_path / "1", "huggingface")
    assert notes == (none.format("dropout", 0.2), activation)
    run, _ = decoder_run(tmp_path / "gpt2", with_dropout(DECODERS["gpt2"]))
    assert export_run(run, tmp_path / "2", "huggingface") == (activation,)
    run, _ = encoder_run(tmp_path / "bert", with_dropout(BERTS["bare"]))
    assert export_run(run, tmp_path / "3", "huggingface") == (activation,)
    run, _ = seq2seq_run(tmp_path / "marian", with_dropout(MARIAN["two-way"]))
    assert export_run(run, tmp_path / "4", "huggingface") == ()


@pytest.mark.parametrize("make", [roberta, distilbert])
@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM"])
def test_robertas_and_distilberts_go_out_as_bert(make: Any, kind: str, tmp_path: Path) -> None:
    size = vocabulary(mask=True).size
    theirs = make(kind, vocab_size=size, pad_token_id=0, max_position_embeddings=80)
    found = read(saved(theirs, tmp_path / "theirs"))
    assert isinstance(found.config, EncoderConfig)
    run, _ = encoder_run(tmp_path / "run", found.config, weights=found.weights)
    export_run(run, tmp_path / "out", "huggingface")
    auto = transformers.AutoModelForMaskedLM if kind == "ForMaskedLM" else transformers.AutoModel
    again = auto.from_pretrained(tmp_path / "out").eval()
    assert again.config.model_type == "bert"
    torch.testing.assert_close(again(IDS)[0], theirs(IDS)[0], **CLOSE)


@pytest.mark.parametrize("case", BERTS)
def test_an_encoder_is_a_bert_of_transformers(case: str, tmp_path: Path) -> None:
    labels = ("ham", "spam") if case == "classes" else ()
    run, model = encoder_run(tmp_path / "run", BERTS[case], labels)
    out = tmp_path / "out"
    export_run(run, out, "huggingface")
    hidden = model(IDS)
    encoder = transformers.AutoModel.from_pretrained(out).eval()
    torch.testing.assert_close(hidden, encoder(IDS).last_hidden_state, **CLOSE)
    if labels:
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
        torch.testing.assert_close(model.classify(hidden), theirs(IDS).logits, **CLOSE)
        assert theirs.config.id2label == {0: "ham", 1: "spam"}
    if case == "masked":
        filled = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
        torch.testing.assert_close(model.predict(hidden), filled(IDS).logits, **CLOSE)
    comes_back(run, out)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_a_vocabulary_gives_the_same_ids_in_transformers(kind: str, tmp_path: Path) -> None:
    run, _ = decoder_run(tmp_path / "run", DECODERS["llama"], kind)
    export_run(run, tmp_path / "out", "huggingface")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = Tokenizer.load(run / "tokenizer.json")
    for text in TEXTS:
        ids = ours.encode(text)
        assert theirs(text).input_ids == [ours.start_id, *ids]
        assert theirs.decode(ids) == text
        assert theirs.decode([*ids, ours.eos_id], skip_special_tokens=True) == text
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == (0, 1, 2)


def test_vocabularies_of_translators_and_encoders_put_their_tokens_around(tmp_path: Path) -> None:
    run, _ = seq2seq_run(tmp_path / "run", MARIAN["two-way"])
    export_run(run, tmp_path / "out", "huggingface")
    ours = Tokenizer.load(run / "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(LINES[0]).input_ids == [*ours.encode(LINES[0]), 2]
    run, _ = encoder_run(tmp_path / "encoder", BERTS["masked"])
    export_run(run, tmp_path / "bert", "huggingface")
    ours = Tokenizer.load(run / "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    assert theirs(LINES[0]).input_ids == [1, *ours.encode(LINES[0]), 2]
    assert theirs("<mask>").input_ids[1:-1] == [3]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (TransformerConfig(**SHAPE, norm_position="pre"), 'express model.norm_position = "pre"'),
        (TransformerConfig(**SHAPE, positions=RotaryConfig()), 'model.positions.kind = "rotary"'),
        (TransformerConfig(**SHAPE, d_k=3), "Marian can't express model.d_k = 3, model.d_v = 4"),
        (TransformerConfig(**SHAPE, feed_forward="swiglu"), 'model.feed_forward = "swiglu"'),
    ],
)  # fmt: skip
def test_what_marian_cannot_express_is_refused_and_nothing_is_written(
    config: TransformerConfig, said: str, tmp_path: Path
) -> None:
    run, _ = seq2seq_run(tmp_path / "run", config)
    with pytest.raises(ModelError) as refused:
        export_run(run, tmp_path / "out", "huggingface")
    assert said in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_classifier_without_a_pooler_is_refused(tmp_path: Path) -> None:
    run, _ = encoder_run(tmp_path / "run", BERTS["masked"], ("a", "b"))
    with pytest.raises(ModelError, match=r"a classifier with model\.pooler = false"):
        export_run(run, tmp_path / "out", "huggingface")


def goes_out(preset: str, format_name: str) -> bool:
    """Whether a format has a place for the settings of a preset."""
    recipe, words = load_recipe(preset), vocabulary()
    config: Any = recipe.model
    if format_name == "ctranslate2" and isinstance(config, EncoderConfig):
        return False
    own: Any = OwnModel(
        config=config,
        weights=wanted_weights(config, words.size),  # of no memory
        source=words,
        target=words,
        max_tokens=recipe.data.max_tokens,
    )
    try:
        if format_name == "ctranslate2":
            ctranslate2.require_expressible(config, words)
        else:
            huggingface.written(own)
    except ModelError:
        return False
    return True


@pytest.mark.parametrize(("place", "format_name"), [(2, "huggingface"), (3, "ctranslate2")])
def test_the_page_says_which_presets_go_out(place: int, format_name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    section = page.partition("| preset |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in section.splitlines()[2:]]
    told = {
        name.strip(" `"): not row[place].strip().startswith("no")
        for row in rows
        for name in row[1].split(",")
    }
    assert {*told} == {*preset_names()}
    assert told == {name: goes_out(name, format_name) for name in told}


def test_an_export_takes_no_place_that_is_taken(tmp_path: Path) -> None:
    run, _ = decoder_run(tmp_path / "run", DECODERS["llama"])
    with pytest.raises(CheckpointError, match="there is something of that name"):
        export_run(run, run, "huggingface")


def test_a_failed_import_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = decoder_run(tmp_path / "run", DECODERS["llama"])
    out = tmp_path / "out"
    export_run(run, out, "huggingface")

    def fails(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(RunFolder, "write_model", fails)
    with pytest.raises(OSError, match="no"):
        import_checkpoint(out, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    (out / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="there is no vocabulary with it"):
        import_checkpoint(out, tmp_path / "back")
    assert not (tmp_path / "back").exists()
