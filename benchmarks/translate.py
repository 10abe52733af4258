"""How fast is the engine beside CTranslate2, and transformers, with the same weights?

    python benchmarks/translate.py --quick --json quick.json
    python benchmarks/translate.py [--models small,base] [--batches 1,8,64] [--beams 1,4]
    python benchmarks/translate.py --run runs/ende --text test.en [--beams 1,4]

First with random weights and forced lengths: 32 ids in (the end included), 32 out. A cell's name
says model, batch, beam and dtype. With `--run`, a trained model translates real lines, from text
to text, and both cut lines and put tokens together with the run's own vocabulary.

The peers take turns with the engine, a call each, and the medians are compared. CTranslate2 reads
our own export; it runs with the best of its settings of inter_threads and intra_threads for the
threads given, found by a call of each first, its batches divided among its workers.
`--transformers` adds its `generate` in float32 and bfloat16, a random model of the same shape.
"""

import argparse
import json
import platform
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

import regard
from regard.engine.engine import Engine, default_threads
from regard.machine import cpu_model
from regard.models.build import build_model
from regard.models.transformer import Transformer
from regard.recipes.load import load_recipe
from regard.serving.engines import Chosen, EngineSearch, choose_engine
from regard.serving.lazy import LazyModel
from regard.serving.opening import OpenedRun, open_run
from regard.serving.place import Place
from regard.serving.translator import Translator
from regard.text.config import VocabularyConfig
from regard.text.corpus import Tokenizers
from regard.text.lines import read_lines
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import Vocabulary
from regard.weights.foreign import ctranslate2 as export
from regard.weights.foreign.ctranslate2_vocabulary import vocabulary_tokens
from regard.weights.foreign.model import OwnModel

TOKENS = 32
VOCABULARIES = {"base": 37_000, "small": 8_000}
DTYPES = ("float32", "int8")
MOST_SECONDS = 20.0  # that a contender is measured for, when its calls are slow

Call = Callable[[], object]
Row = dict[str, object]


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as aside:
        cells = real_cells(options, Path(aside)) if options.run else forced_cells(options, aside)
        for name, work, contenders in cells:
            for row in compare(name, work, contenders, options):
                print(
                    f"{row['name']!s:28} {row['ours']:10,.0f} {row['peer']:10,.0f} "
                    f"ratio {row['ratio']:5.2f}  {row['unit']}; {row['how']}",
                    flush=True,
                )
                rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="small,base")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--run", type=Path, help="a trained run to translate real lines with")
    parser.add_argument("--text", type=Path, help="the lines")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few cells of the small model")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.models, options.batches, options.repeats = "small", "1,8", 3
    if options.run and not options.text:
        parser.error("--run needs --text")
    return options


Cell = tuple[str, int, dict[str, list[tuple[str, Call]]]]


def forced_cells(options: argparse.Namespace, aside: str) -> Iterator[Cell]:
    """Name, tokens that come out, and for each contender its settings as calls."""
    for name in options.models.split(","):
        run = random_run(name)
        peers = exported(run, Path(aside) / name)
        for batch, beam, dtype in product(
            map(int, options.batches.split(",")),
            map(int, options.beams.split(",")),
            options.dtypes.split(","),
        ):
            draw = random.Random(batch)
            size = run.model.source_vocabulary
            sources = [[draw.randrange(100, size) for _ in range(TOKENS - 1)] for _ in range(batch)]
            contenders = {
                "ours": [("", ours_forced(run, dtype, sources, beam, options.threads))],
                "CTranslate2": peers_forced(run, peers, dtype, sources, beam, options.threads),
            }
            if options.transformers:
                contenders["transformers"] = huggingface_forced(run.model, sources, beam)
            yield f"{name} {batch}x{beam} {dtype}", batch * TOKENS, contenders


def random_run(name: str) -> OpenedRun:
    """A preset with random weights over a vocabulary of made-up words."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=9)) for _ in range(30_000)]
    lines = (" ".join(words[at : at + 10]) for at in range(0, len(words), 10))
    tokenizer = Tokenizer.train(lines, VocabularyConfig(size=VOCABULARIES[name]))
    recipe = load_recipe(name)
    model = build_model(
        recipe.model,
        source_vocabulary=tokenizer.size,
        target_vocabulary=tokenizer.size,
        seed=1,
    )
    held = LazyModel.ready(model.eval())
    return OpenedRun(Path(name), recipe, Tokenizers(tokenizer, tokenizer), held)


def exported(run: OpenedRun, out: Path) -> Path:
    export.export(
        OwnModel(
            config=run.recipe.model,
            weights=run.model.state_dict(),
            source=run.tokenizers.source,
            target=run.tokenizers.target,
            max_tokens=run.recipe.data.max_tokens,
        ),
        out,
    )
    return out


def ours_forced(
    run: OpenedRun, dtype: str, sources: list[list[int]], beam: int, threads: int
) -> Call:
    engine: Engine | None = choose_engine(
        [run], engine="native", dtype=dtype, threads=threads
    ).engine
    assert engine is not None
    config = run.recipe.decoding.model_copy(update={"beam": beam, "min_tokens": TOKENS})
    suffix = list(run.tokenizers.source.suffix)
    return partial(
        EngineSearch(engine, run),
        [[*ids, *suffix] for ids in sources],
        max_tokens=[TOKENS] * len(sources),
        prefixes=[[] for _ in sources],
        config=config,
    )


def settings_of(threads: int) -> list[tuple[int, int]]:
    """Pairs of inter_threads and intra_threads to try."""
    return sorted({(1, threads), (threads, 1), (1, 1)})


def peers_forced(
    run: OpenedRun, path: Path, dtype: str, sources: list[list[int]], beam: int, threads: int
) -> list[tuple[str, Call]]:
    names = vocabulary_tokens(run.tokenizers.source)
    tokens = [[names[token] for token in ids] for ids in sources]
    calls = []
    for inter, intra in settings_of(threads):
        translator = opened_there(path, dtype, inter, intra)
        call = partial(
            translator.translate_batch,
            tokens,
            beam_size=beam,
            length_penalty=0.6,
            min_decoding_length=TOKENS,
            max_decoding_length=TOKENS,
            max_batch_size=-(-len(sources) // inter),
        )
        calls.append((f"{inter}x{intra} threads", call))
    return calls


def opened_there(path: Path, dtype: str, inter: int, intra: int) -> Any:  # noqa: ANN401
    import ctranslate2  # noqa: PLC0415 - only this needs it

    return ctranslate2.Translator(
        str(path), compute_type=dtype, inter_threads=inter, intra_threads=intra
    )


def huggingface_forced(
    model: Transformer, sources: list[list[int]], beam: int
) -> list[tuple[str, Call]]:
    """MarianMTModel.generate with random weights of the same shape; the work is the same."""
    from transformers import MarianConfig, MarianMTModel  # noqa: PLC0415 - slow to import

    config = model.config
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=model.target_vocabulary,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            activation_function="relu",
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
        )
    ).eval()
    ids = torch.tensor(sources)
    return [
        (
            str(kind).removeprefix("torch."),
            partial(marian_generate, marian, kind, ids, num_beams=beam, min_new_tokens=TOKENS),
        )
        for kind in (torch.float32, torch.bfloat16)
    ]


def marian_generate(
    marian: Any,  # noqa: ANN401 - the library has no types
    kind: torch.dtype,
    ids: torch.Tensor,
    **settings: int,
) -> object:
    marian.to(kind)
    with torch.inference_mode():
        return marian.generate(ids, max_new_tokens=TOKENS, do_sample=False, **settings)


def real_cells(options: argparse.Namespace, aside: Path) -> Iterator[Cell]:
    """From text to text with a trained model; the work is counted in lines."""
    run = open_run(options.run, Place())
    lines = [line for line in read_lines(options.text) if line.strip()]
    path = exported(run, aside / "export")
    for beam, dtype in product(map(int, options.beams.split(",")), options.dtypes.split(",")):
        chosen: Chosen = choose_engine([run], engine="native", dtype=dtype, threads=options.threads)
        ours = partial(Translator([run], chosen).translate, lines, beam=beam)
        there = [
            (
                f"{inter}x{intra} threads",
                partial(
                    translate_there,
                    opened_there(path, dtype, inter, intra),
                    run.tokenizers.source,
                    run.tokenizers.target,
                    lines,
                    run.recipe.decoding.max_extra_tokens,
                    beam,
                ),
            )
            for inter, intra in settings_of(options.threads)
        ]
        name = f"{options.run.name} {len(lines)} lines x{beam} {dtype}"
        yield name, len(lines), {"ours": [("", ours)], "CTranslate2": there}


def translate_there(
    translator: Any,  # noqa: ANN401 - the library has no types
    source: Vocabulary,
    target: Vocabulary,
    lines: Sequence[str],
    extra: int,
    beam: int,
) -> list[str]:
    """CTranslate2 between our vocabularies, in batches of 2,048 tokens of like lengths."""
    names = vocabulary_tokens(source)
    ids = {name: number for number, name in enumerate(vocabulary_tokens(target))}
    sources = source.encode_batch(lines)
    found = translator.translate_batch(
        [[names[token] for token in each] for each in sources],
        beam_size=beam,
        length_penalty=0.6,
        max_batch_size=2048,
        batch_type="tokens",
        max_decoding_length=max(map(len, sources)) + extra,
    )
    return [target.decode([ids[name] for name in each.hypotheses[0]]) for each in found]


def compare(
    name: str,
    work: int,
    contenders: dict[str, list[tuple[str, Call]]],
    options: argparse.Namespace,
) -> list[Row]:
    """Rows of a cell: the engine against every peer, each with the best of its settings."""
    best: dict[str, tuple[str, Call]] = {}
    calls = 1
    for contender, settings in contenders.items():
        seconds = []
        for _, call in settings:
            call()
            seconds.append(timed(call))
        best[contender] = settings[seconds.index(min(seconds))]
        calls = max(calls, round(options.repeats * min(1.0, MOST_SECONDS / 10 / min(seconds))))
    times: dict[str, list[float]] = {contender: [] for contender in best}
    for _ in range(max(3, min(calls, options.repeats))):
        for contender, (_, call) in best.items():
            times[contender].append(timed(call))
    rates = {contender: work / median(each) for contender, each in times.items()}
    unit = "lines/s" if options.run else "tokens/s"
    return [
        {
            "name": name if peer == "CTranslate2" else f"{name} / {peer}",
            "ours": rates["ours"],
            "peer": rates[peer],
            "ratio": rates["ours"] / rates[peer],
            "unit": unit,
            "how": f"{peer}{versioned(peer)} {best[peer][0]}",
            "threads": options.threads,
            "cpu": cpu_model(),
            "isa": regard.engine.native.isa(),
            "regard": regard.__version__,
            "python": platform.python_version(),
        }
        for peer in best
        if peer != "ours"
    ]


def versioned(peer: str) -> str:
    module = __import__(peer.lower())
    return f" {module.__version__}"


def timed(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
