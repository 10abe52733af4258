"""A recipe is strict: what it may say, and what is said of what it may not."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.config import DecodingConfig
from regard.errors import RecipeError, RunFolderError
from regard.models.count import parameter_count
from regard.nn.config import LayerNormConfig, RMSNormConfig
from regard.recipes.load import load_recipe
from regard.recipes.names import preset_names
from regard.recipes.recipe import Recipe
from regard.recipes.refusals import SHARED
from regard.recipes.write import format_recipe
from regard.training.config import CosineSchedule, PaperSchedule
from regard.weights.run_folder import RunFolder


def refusal(*overrides: str, recipe: str = "base") -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe, overrides)
    return str(caught.value)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_table_set_to_a_value_is_blamed_whatever_of_it_is_set_beside(place: int) -> None:
    overrides = ["training.max_steps=20", "training.seed=3"]
    overrides.insert(place, "training=")
    if place < 2:  # a later key makes a table of it again
        load_recipe("base", overrides)
        overrides.append("training=")
    assert refusal(*overrides) == '--set training: expected a table, got ""'


def test_base_is_the_paper() -> None:
    base = load_recipe("base")
    assert base.model.d_model == 512
    assert base.model.num_heads == 8
    assert (base.model.key_dim, base.model.value_dim) == (64, 64)
    assert base.model.d_ff == 2048
    assert (base.model.encoder_layers, base.model.decoder_layers) == (6, 6)
    assert base.model.dropout == 0.1
    assert base.model.norm_position == "post"
    assert base.model.tying == "three_way"
    assert base.training.max_steps == 100_000
    assert base.training.batch_tokens == 25_000
    assert base.training.label_smoothing == 0.1
    assert base.training.keep_last == 5
    assert base.training.schedule == PaperSchedule(warmup_steps=4000)
    assert (base.decoding.beam, base.decoding.alpha, base.decoding.max_extra_tokens) == (4, 0.6, 50)


def test_base_has_the_parameters_of_the_paper() -> None:
    model = load_recipe("base", ["vocabulary.size=37000"]).model
    assert parameter_count(model, 37_000, 37_000) == 63_082_496
    plain = load_recipe("base", ["model.attention_bias=false"]).model
    assert parameter_count(plain, 37_000, 37_000) == 63_045_632


def test_big_differs_from_base_as_in_the_paper() -> None:
    base, big = load_recipe("base"), load_recipe("big")
    changed = {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3}
    assert big.model == base.model.model_copy(update=changed)
    steps = {"max_steps": 300_000, "keep_last": 20}
    assert big.training == base.training.model_copy(update=steps)
    assert big.decoding == base.decoding


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_survives_being_written_out_and_read_back(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    path = tmp_path / "my.toml"
    path.write_text(format_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(path)) == recipe


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    paths=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    number=st.floats(min_value=1e-300, max_value=1),
    weight=st.floats(min_value=1e-6, max_value=1e6),
    alpha=st.floats(min_value=-50, max_value=50),
)
def test_any_text_and_number_survives_being_written_out(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    paths: list[str],
    number: float,
    weight: float,
    alpha: float,
) -> None:
    values = {
        "description": text,
        "data": {"source": paths, "target": paths[::-1], "weights": [weight] * len(paths)},
        "model": {"d_k": 3, "norm": {"kind": "rms", "eps": number}},
        "training": {"schedule": {"kind": "cosine", "learning_rate": weight}},
        "decoding": {"alpha": alpha},
    }
    recipe = Recipe.model_validate(values)
    path = tmp_path_factory.mktemp("recipe") / "my.toml"
    path.write_bytes(format_recipe(recipe).encode())
    assert load_recipe(str(path)) == recipe


def test_what_a_file_leaves_out_has_the_default(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("[model]\nd_ff = 1000\n")
    assert load_recipe(str(path)) == load_recipe("base", ["model.d_ff=1000", "description="])


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xef\xbb\xbf[model]\r\nd_ff = 1000\r\n")
    assert load_recipe(str(path)).model.d_ff == 1000


def test_a_preset_wins_over_a_file_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base").write_text("[model]\nd_ff = 1000\n")
    assert load_recipe("base").model.d_ff == 2048
    assert load_recipe("./base").model.d_ff == 1000


def test_a_run_folder_stands_for_its_recipe(tmp_path: Path) -> None:
    recipe = load_recipe("tiny", ["model.d_ff=72"])
    with RunFolder.create(tmp_path / "run") as run:
        run.write_recipe(format_recipe(recipe))
        run.write_tokenizers(b"{}")
    assert load_recipe(str(tmp_path / "run")) == recipe
    text = refusal("model.d_ff=0", recipe=str(tmp_path / "run"))
    assert text == (
        "--set model.d_ff: expected a whole number that is at least 1 "
        "and at most 1000000000000, got 0"
    )


def test_overrides_change_any_key() -> None:
    recipe = load_recipe(
        "base",
        [
            "training.max_steps=100",
            "model.dropout = 0.25",
            "model.dropout=0.3",
            "model.feed_forward=gelu",
            'data.valid_tsv="a b.tsv"',
            'data.source=["a.en", "b.en"]',
            "data.target=['a.de', 'b.de']",
            "decoding.alpha=-1",
            "vocabulary.joint=false",
            "model.tying=two_way",
            "description=x = y",
        ],
    )
    assert recipe.training.max_steps == 100
    assert recipe.model.dropout == 0.3
    assert recipe.model.feed_forward == "gelu"
    assert recipe.data.valid_tsv == "a b.tsv"
    assert recipe.data.source == ("a.en", "b.en")
    assert recipe.decoding.alpha == -1
    assert not recipe.vocabulary.joint
    assert recipe.description == "x = y"


def test_of_two_tables_the_later_wins_key_by_key() -> None:
    steps = "training.max_steps=3"
    for table in ("training={seed=5}", "training={}", "training={schedule={warmup_steps=2}}"):
        assert load_recipe("tiny", [steps, table]).training.max_steps == 3
        assert load_recipe("tiny", [table, steps]).training.max_steps == 3
    both = load_recipe("tiny", [steps, "training={seed=5, max_steps=4}", "training={seed=6}"])
    assert (both.training.seed, both.training.max_steps) == (6, 4)


def test_another_kind_starts_from_its_own_defaults() -> None:
    small = load_recipe("base", ["model.norm.eps=0.5"])
    assert small.model.norm == LayerNormConfig(eps=0.5)
    assert load_recipe("base", ["model.norm.kind=rms"]).model.norm == RMSNormConfig()
    both = ["training.schedule.warmup_steps=7", "training.schedule.kind=cosine"]
    wanted = CosineSchedule(warmup_steps=7)
    assert load_recipe("base", both).training.schedule == wanted
    assert load_recipe("base", both[::-1]).training.schedule == wanted


def test_the_same_kind_keeps_what_the_recipe_says() -> None:
    before = load_recipe("tiny").training.schedule
    kind = f"training.schedule.kind={before.kind}"
    assert load_recipe("tiny", [kind]).training.schedule == before


REFUSALS = {
    "model.dropuot=0.1": "--set model.dropuot: unknown key; did you mean model.dropout?",
    "training.dropout=0.1": "--set training.dropout: unknown key; did you mean model.dropout?",
    "modle.d_ff=1": "--set modle.d_ff: unknown key; did you mean model?",
    "warmup_steps=1": (
        "--set warmup_steps: unknown key; did you mean training.schedule.warmup_steps?"
    ),
    "model.max_tokens=1": (
        "--set model.max_tokens: unknown key; did you mean data.max_tokens or decoding.max_tokens?"
    ),
    "vocabulary.zzz=1": (
        "--set vocabulary.zzz: unknown key; expected one of kind, size, joint, bpe_dropout"
    ),
    "training.schedule.learning_rate=1": (
        "--set training.schedule.learning_rate: "
        'unknown key for kind = "paper"; it has kind, scale, warmup_steps'
    ),
    "model.dropout=0.1x": (
        '--set model.dropout: expected a number that is at least 0 and less than 1, got "0.1x"'
    ),
    "model.dropout=1": (
        "--set model.dropout: expected a number that is at least 0 and less than 1, got 1"
    ),
    "model.dropout=nan": (
        "--set model.dropout: expected a number that is at least 0 and less than 1, got nan"
    ),
    "data.max_ratio=inf": (
        "--set data.max_ratio: expected a number that is at least 1 and at most 1000000.0, got inf"
    ),
    "training.max_steps=1e3": (
        "--set training.max_steps: expected a whole number that is at least 1 "
        "and at most 2147483647, got 1000.0"
    ),
    "training.max_steps=true": (
        "--set training.max_steps: expected a whole number that is at least 1 "
        "and at most 2147483647, got true"
    ),
    "model.d_k=a": "--set model.d_k: expected a whole number that is at least 1 "
    'and at most 1000000000000, got "a"',
    "model.attention_bias=1": "--set model.attention_bias: expected true or false, got 1",
    "description=2024-01-01": "--set description: expected a string, got 2024-01-01",
    "data.source=a.en": '--set data.source: expected a list of strings, got "a.en"',
    "data.source=[1]": "--set data.source: expected a list of strings, got 1",
    "data.weights=['a']": '--set data.weights: expected a list of numbers, got "a"',
    "training.precision=bf16": (
        '--set training.precision: expected "auto", "float32" or "bfloat16", got "bf16"; '
        'did you mean "bfloat16"?'
    ),
    "model.norm=rms": (
        '--set model.norm: expected a table with kind = "layer" or "rms", got "rms"; '
        'did you mean model.norm.kind = "rms"?'
    ),
    "model.norm.kind=3": '--set model.norm.kind: expected "layer" or "rms", got 3',
    "training.schedule.kind=cosin": (
        '--set training.schedule.kind: expected "paper", "inverse_square_root", "cosine" or '
        '"linear", got "cosin"; did you mean "cosine"?'
    ),
    "model=5": "--set model: expected a table, got 5",
    "model.d_ff.x=1": (
        "--set model.d_ff.x: expected a whole number that is at least 1 "
        "and at most 1000000000000, got a table"
    ),
    "model.num_heads=7": (
        "--set model.num_heads: d_model = 512 is not divisible by num_heads = 7; "
        "set d_k and d_v, or choose a num_heads that divides d_model"
    ),
    "decoding.n_best=5": "--set decoding.n_best: n_best = 5 is more than beam = 4",
    "decoding.temperature=9": (
        '--set decoding.temperature: temperature = 9 needs method = "sample"\n'
        "  Sampling is asked for with --set decoding.method=sample (translate: --sample)."
    ),
    "decoding.seed=1": (
        '--set decoding.seed: seed = 1 needs method = "sample"\n'
        "  Sampling is asked for with --set decoding.method=sample (translate: --sample)."
    ),
    'data.source=["a"]': (
        "--set data.source: 1 source file and 0 target files: "
        "each source file needs its target file, in the same order"
    ),
    "vocabulary.joint=false": (
        '--set vocabulary.joint: model.tying = "three_way" needs vocabulary.joint = true; '
        'for two vocabularies set model.tying to "two_way" or "none"'
    ),
    'model.positions={kind="learned", max_positions=256}': (
        "--set model.positions.max_positions: model.positions.max_positions = 256 is too few for "
        "data.max_tokens = 256 and the end token"
    ),
    "data={tsv=['a', 'b'], weights=[1, 0.0]}": (
        "--set data.weights: every one of weights must be more than 0, got [1, 0]"
    ),
    "training.max_steps=99999999999999999999999": (
        "--set training.max_steps: a whole number is at most 9,223,372,036,854,775,807, "
        "got 99999999999999999999999"
    ),
    f"training.seed=0x{'f' * 5000}": (
        "--set training.seed: a whole number is at most 9,223,372,036,854,775,807, "
        "got one of 20,000 bits"
    ),
    "vocabulary.size=100000000": (
        "--set vocabulary.size: expected a whole number that is at least 260 and "
        "at most 1000000, got 100000000"
    ),
    f"a={'[' * 5000}{']' * 5000}": "--set a: arrays and tables are nested more than 32 deep",
    f"data.tsv={'[' * 200}{']' * 200}": (
        "--set data.tsv: arrays and tables are nested more than 32 deep"
    ),
    f"training.{'a.' * 5000}a=1": (
        "--set training: arrays and tables are nested more than 32 deep"
    ),
    "data.tsv=[[{a=1}]]": "--set data.tsv: expected a list of strings, got an array of tables",
    "model.d_ff": (
        "--set: expected key=value, got 'model.d_ff'\n  For example --set training.max_steps=1000."
    ),
    "model..d_ff=1": (
        "--set: expected key=value, got 'model..d_ff=1'\n"
        "  For example --set training.max_steps=1000."
    ),
}


@pytest.mark.parametrize(
    ("override", "text"), REFUSALS.items(), ids=[override[:40] for override in REFUSALS]
)
def test_a_bad_override_is_refused_with(override: str, text: str) -> None:
    assert refusal(override) == text


def test_one_may_sample_from_a_recipe_that_says_how_to_search_with_a_beam(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("[decoding]\nbeam = 8\nalpha = 1.0\ncoverage = 0.2\nn_best = 2\n")
    sampled = load_recipe(str(path), ["decoding.method=sample", "decoding.top_k=5"])
    assert sampled.decoding == DecodingConfig(method="sample", top_k=5, n_best=2)
    path.write_text(format_recipe(sampled))
    assert load_recipe(str(path)) == sampled
    assert load_recipe(str(path), ["decoding.top_p=0.5"]).decoding.top_k == 5
    beam = load_recipe(str(path), ["decoding.method=beam", "decoding.beam=2"])
    assert beam.decoding == DecodingConfig(beam=2, n_best=2)


@pytest.mark.parametrize("setting", ["beam=4", "alpha=0.6", "coverage=0.5"])
def test_what_sampling_has_no_use_for_is_refused_with_it(setting: str) -> None:
    name, value = setting.split("=")
    assert refusal("decoding.method=sample", f"decoding.{setting}") == (
        f'--set decoding.method, decoding.{name}: {name} = {value} needs method = "beam"\n'
        "  Sampling has no use for it: leave out the one or the other."
    )


def test_settings_without_effect_are_refused_in_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("[decoding]\ntemperature = 0.5\ntop_k = 3\n")
    assert refusal(recipe=str(path)) == (
        f'{path}: decoding: temperature = 0.5 and top_k = 3 need method = "sample"'
    )
    path.write_text('[decoding]\nmethod = "sample"\nbeam = 8\n')
    assert refusal(recipe=str(path)) == f'{path}: decoding: beam = 8 needs method = "beam"'


def test_a_combination_is_blamed_on_the_options_that_it_is_about() -> None:
    text = refusal("training.max_steps=1", "model.d_model=30", "model.num_heads=4")
    assert text.startswith("--set model.d_model, model.num_heads: d_model = 30 is not divisible")


def test_several_mistakes_are_a_line_each() -> None:
    assert refusal("model.d_ff=0", "training.max_stepps=4") == (
        "--set model.d_ff: expected a whole number that is at least 1 "
        "and at most 1000000000000, got 0\n"
        "--set training.max_stepps: unknown key; did you mean training.max_steps?"
    )


FILES = {
    "[model]\ndropuot = 0.1\n": "{path}: model.dropuot: unknown key; did you mean model.dropout?",
    "[model.norm]\nkind = 'rms'\neps = 'x'\n": (
        '{path}: model.norm.eps: expected a number that is more than 0 and at most 1, got "x"'
    ),
    "[model]\nnum_heads = 7\n": (
        "{path}: model: d_model = 512 is not divisible by num_heads = 7; "
        "set d_k and d_v, or choose a num_heads that divides d_model"
    ),
    "[vocabulary]\njoint = false\n": (
        '{path}: model.tying = "three_way" needs vocabulary.joint = true; '
        'for two vocabularies set model.tying to "two_way" or "none"'
    ),
    "[model]\nd_ff 5\n": (
        "{path}, line 2: not valid TOML: Expected '=' after a key in a key/value pair\n"
        "  A line is key = value, a text value is in quotes, a table starts with [name]."
    ),
    "[model]\n\nd_ff = [1,\n\n": (
        "{path}, line 3: not valid TOML: Invalid value\n"
        "  A line is key = value, a text value is in quotes, a table starts with [name]."
    ),
    "[[model]]\nd_ff = 5\n": "{path}: model: expected a table, got an array of tables",
    f"[training]\nmax_steps = {'9' * 5000}\n": (
        "{path}: not valid TOML: a number has more digits than can be read\n"
        "  A line is key = value, a text value is in quotes, a table starts with [name]."
    ),
    f"a = {'[' * 5000}{']' * 5000}\n": "{path}: arrays and tables are nested more than 32 deep",
    "[training]\nseed = 9223372036854775808\n": (
        "{path}: training.seed: a whole number is at most 9,223,372,036,854,775,807, "
        "got 9223372036854775808"
    ),
    "[data]\ntsv = ['a', 'b']\nweights = [1, -2]\n": (
        "{path}: data: every one of weights must be more than 0, got [1, -2]"
    ),
    "[model]\n# \udcff\n": "{path}, line 2: expected UTF-8 text",
}


@pytest.mark.parametrize(
    ("content", "text"), FILES.items(), ids=[content[:40] for content in FILES]
)
def test_a_bad_file_is_refused_with(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert refusal(recipe=str(path)) == text.replace("{path}", str(path))


def test_an_unknown_recipe_is_refused_with_the_names_there_are() -> None:
    known = f"Recipes: {', '.join(preset_names())}. Or give a TOML file or a run folder."
    nowhere = "no such recipe, file or run folder"
    assert refusal(recipe="bse") == f"bse: {nowhere}\n  Did you mean base? {known}"
    assert refusal(recipe="nothing") == f"nothing: {nowhere}\n  {known}"
    assert refusal(recipe="") == f'"": {nowhere}\n  {known}'


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="this is not a run folder"):
        load_recipe(str(tmp_path))


def test_what_a_command_may_not_change_is_refused() -> None:
    assert load_recipe("base", ["decoding.beam=2"], only=["decoding"]).decoding.beam == 2
    with pytest.raises(RecipeError) as caught:
        load_recipe("base", ["decoding.beam=2", "model.d_ff=3"], only=["decoding"])
    assert str(caught.value) == (
        "--set model.d_ff: only decoding can be changed here\n"
        "  The rest was settled when the run was trained."
    )


def test_a_bad_recipe_is_refused_before_torch_is_imported() -> None:
    code = (
        "import sys\n"
        "from regard.errors import RecipeError\n"
        "from regard.recipes.load import load_recipe\n"
        "try: load_recipe('base', ['model.d_ff=x'])\n"
        "except RecipeError: sys.exit('torch' in sys.modules)\n"
        "sys.exit(3)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_small_presets_of_both_sides_join_as_the_page_of_language_models_says() -> None:
    changes = ["norm.eps=1e-5", "norm_position=pre", "feed_forward=gelu_tanh",
               "embedding_norm=false"]  # fmt: skip
    encoder = load_recipe("bert-mini", [f"model.{change}" for change in changes]).model.resolved()
    decoder = load_recipe("gpt-mini").model.resolved()
    for key in SHARED:
        assert getattr(encoder, key) == getattr(decoder, key), key
    page = (Path(__file__).parents[2] / "docs/language-models.md").read_text(encoding="utf-8")
    assert all(f"model.{change}" in page for change in changes)
