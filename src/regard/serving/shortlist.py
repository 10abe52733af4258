"""Makes a run's shortlist: which target tokens may translate which source tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from regard.arguments import whole_number
from regard.counts import counted
from regard.errors import DataError, RegardError, command
from regard.recipes.load import load_recipe_of
from regard.recipes.recipe import Recipe
from regard.text.arrays import CorpusWriter, Side, token_type
from regard.text.corpus import CHUNK_PAIRS, INDEX_FILE, Tokenizers
from regard.text.inputs import PairFile
from regard.text.lexicon import Lexicon, learn_lexicon, shortlist_of
from regard.text.prepared import damaged_files, is_of_another_version, read_index, sums
from regard.text.shortlist import Shortlist
from regard.text.vocabulary import framed
from regard.weights.aside import folder_aside
from regard.weights.files import blames
from regard.weights.layout import PREPARED_TEXT, SHORTLIST
from regard.weights.run_folder import RunFolder
from regard.weights.shortlists import remove_shortlist, write_shortlist
from regard.weights.vocabularies import open_tokenizers

_NOTHING = "no pair of the text has words on both sides"
PER_TOKEN = 100
FREQUENT = 100
# Pairs to say what a shortlist holds: so many at most, and one of so many.
_LOOKED_AT = 2000
_OF = 50


@dataclass(frozen=True)
class Made:
    """A shortlist that was written: of how many pairs, and what it comes to.

    Over pairs of its text that it was not learned from, `mean` is how many tokens a sentence may
    use, and `held` which share of the tokens of its translation are among them.
    """

    path: Path
    bytes: int
    pairs: int
    targets: int
    mean: float
    held: float

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.bytes / 2**20:,.1f} MiB, learned from "
            f"{counted(self.pairs, 'pair')}; a sentence may use {self.mean:,.0f} of "
            f"{self.targets:,} tokens on average, among them "
            f"{100 * self.held:.1f}% of those of its translation"
        )


def make_shortlist(
    path: str | Path,
    *,
    source: Sequence[str | Path] = (),
    target: Sequence[str | Path] = (),
    per_token: int = PER_TOKEN,
    frequent: int = FREQUENT,
) -> Made:
    """Learn the shortlist of a run, and write it into its folder.

    Args:
        path: the run folder of an encoder-decoder, packed or not.
        source: line-aligned text to learn from; left out, what the run was trained on.
        target: its translation, as many files.
        per_token: how many target tokens go with each source token, at most.
        frequent: how many of the most frequent target tokens go with every sentence.

    Raises:
        RegardError: a count is below 0 or both are 0, or there are not as many files on either
            side.
        RunFolderError: it is no whole run folder, or can't be written.
        DataError: a file is missing or damaged, or the run's own text is not there.
    """
    per_token = whole_number(per_token, "per_token", least=0)
    frequent = whole_number(frequent, "frequent", least=0)
    if per_token == frequent == 0:
        raise RegardError(
            "both are 0, which leaves a sentence no token to be translated with",
            where="per_token, frequent",
            hint="Give one of them more.",
        )
    if len(source) != len(target):
        raise RegardError(
            f"got {counted(len(source), 'source file')} and {counted(len(target), 'target file')}",
            where="source",
            hint="Give as many of either.",
        )
    load_recipe_of(Recipe, Path(path))
    place = Path(path) / SHORTLIST
    with RunFolder.open(path, write=True) as run, folder_aside(place) as aside:
        tokenizers = open_tokenizers(run)
        files = [PairFile(str(one), str(other)) for one, other in zip(source, target, strict=True)]
        sources, targets = _sides(run, tokenizers, files, aside)
        apart = _apart(len(sources.offsets.array) - 1)
        with blames(place):
            lexicon = _learn(sources, targets, tokenizers, aside, apart)
        shortlist = _shortlist(lexicon, tokenizers, per_token, frequent)
        mean, held = _look(shortlist, sources, targets, tokenizers, apart)
        notes = {"pairs": lexicon.pairs, "per_token": per_token, "frequent": frequent}
        size = write_shortlist(
            run, shortlist, tokenizers, {name: str(value) for name, value in notes.items()}
        )
    return Made(place, size, lexicon.pairs, tokenizers.target.size, mean, held)


def drop_shortlist(path: str | Path) -> Path:
    """Remove the shortlist of a run, whole or damaged, and nothing else; give where it was.

    Raises:
        RunFolderError: it is no run folder, or has no shortlist, or can't be written.
    """
    with RunFolder.open(path, write=True, model=False) as run:
        remove_shortlist(run)
    return Path(path) / SHORTLIST


def _sides(
    run: RunFolder, tokenizers: Tokenizers, files: Sequence[PairFile], aside: Path
) -> tuple[Side, Side]:
    """The text to learn from as ids: the run's own, or files that are turned into ids aside."""
    types = [token_type(each.size) for each in (tokenizers.source, tokenizers.target)]
    if not files:
        folder = run.path / PREPARED_TEXT
        _require_own_text(folder, run.path, tokenizers)
        return Side(folder, "source", types[0]), Side(folder, "target", types[1])
    writer = CorpusWriter(aside, tokenizers.source.size, tokenizers.target.size)
    for file in files:
        rest = file.pairs()
        while pairs := list(islice(rest, CHUNK_PAIRS)):
            writer.write(
                tokenizers.source.encode_batch([one for one, _ in pairs]),
                tokenizers.target.encode_batch([other for _, other in pairs]),
                range(len(pairs)),
            )
    writer.close()
    if not all((aside / f"{side}.tokens.bin").stat().st_size for side in ("source", "target")):
        raise DataError(_NOTHING, where=", ".join(file.name for file in files))
    return Side(aside, "source", types[0]), Side(aside, "target", types[1])


def _require_own_text(folder: Path, run: Path, tokenizers: Tokenizers) -> None:
    """Refuse a run whose text is not there, or was made with other vocabularies."""
    hint = (
        "Give the text: "
        f"{command('shortlist', run, '--source', 'train.source', '--target', 'train.target')}"
    )
    try:
        index = read_index(folder / INDEX_FILE)
        ours = index["tokenizers"] == sums([tokenizers.source, tokenizers.target])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(
            "the text that the run was trained on is not there", where=str(folder), hint=hint
        ) from None
    if not ours:
        raise DataError(
            "the text was prepared with other vocabularies", where=str(folder), hint=hint
        )
    if is_of_another_version(folder / INDEX_FILE):
        raise DataError("another version of regard prepared the text", where=str(folder), hint=hint)
    if damaged := damaged_files(folder, INDEX_FILE):
        where = ", ".join(str(folder / name) for name in damaged)
        raise DataError("the prepared text is damaged", where=where, hint=hint)


def _apart(pairs: int) -> list[int]:
    """Pairs that nothing is learned from, evenly spread; none of very few."""
    count = min(pairs // _OF, _LOOKED_AT)
    return [place * pairs // count for place in range(count)]


def _learn(
    source: Side, target: Side, tokenizers: Tokenizers, aside: Path, apart: Sequence[int]
) -> Lexicon:
    """Which tokens translate which, by all pairs but some; what is too large for memory is aside.

    Raises:
        DataError: there is nothing to learn from.
    """
    sizes = {"sources": tokenizers.source.size, "targets": tokenizers.target.size}
    lexicon = learn_lexicon(source, target, **sizes, without=apart, aside=aside)
    if not lexicon.pairs:
        raise DataError(_NOTHING)
    return lexicon


def _shortlist(
    lexicon: Lexicon, tokenizers: Tokenizers, per_token: int, frequent: int
) -> Shortlist:
    vocabulary = tokenizers.target
    return shortlist_of(
        lexicon,
        sources=tokenizers.source.size,
        per_token=per_token,
        frequent=frequent,
        special={*vocabulary.control_ids, *vocabulary.end_ids, vocabulary.eos_id},
        itself=tokenizers.joint,
    )


def _look(
    shortlist: Shortlist,
    source: Side,
    target: Side,
    tokenizers: Tokenizers,
    apart: Sequence[int],
) -> tuple[float, float]:
    """How many tokens a sentence may use, and which share of its translation's are among them."""
    sizes, held, tokens = [], 0, 0
    for pair in apart or range(len(source.offsets.array) - 1):
        allowed = shortlist.allowed(framed(tokenizers.source, source.ids(pair).tolist()))
        wanted = target.ids(pair)
        sizes.append(len(allowed))
        held += int(np.isin(wanted, allowed).sum())
        tokens += len(wanted)
    return float(np.mean(sizes)), held / max(tokens, 1)
