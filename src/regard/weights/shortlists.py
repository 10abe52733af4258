"""The shortlist of a run folder: the file, and the vocabularies that it belongs to."""

import json
from typing import Final

import numpy as np

from regard.counts import counted
from regard.errors import ModelError, RunFolderError, command
from regard.text.corpus import Tokenizers
from regard.text.prepared import sums
from regard.text.shortlist import Shortlist
from regard.weights.arrays import read_arrays
from regard.weights.header import NOTES, read_metadata
from regard.weights.layout import SHORTLIST
from regard.weights.run_folder import RunFolder

_ARRAYS: Final = ("offsets", "tokens", "always")
_SIDES: Final = ("source_vocabulary", "target_vocabulary")


def write_shortlist(
    run: RunFolder, shortlist: Shortlist, tokenizers: Tokenizers, notes: dict[str, str]
) -> int:
    """Write the shortlist of a run that is open for writing; give the bytes of the file.

    Args:
        run: the run folder.
        shortlist: over the tokens of its vocabularies.
        tokenizers: the vocabularies.
        notes: how it came about, kept in the file.

    Raises:
        RunFolderError: it can't be written.
    """
    from safetensors.numpy import save  # noqa: PLC0415 - only to write one

    data = save(
        {
            "offsets": np.ascontiguousarray(shortlist.offsets, np.int64),
            "tokens": np.ascontiguousarray(shortlist.tokens, np.int32),
            "always": np.ascontiguousarray(shortlist.always, np.int32),
        },
        metadata={**notes, **_sums(tokenizers)},
    )
    data = _in_order(data)
    run.replace({SHORTLIST: [data]})
    return len(data)


def remove_shortlist(run: RunFolder) -> None:
    """Remove the shortlist of a run that is open for writing, and nothing else of it.

    Raises:
        RunFolderError: there is none, or it can't be removed.
    """
    if SHORTLIST not in run.files and not (run.path / SHORTLIST).exists():
        raise RunFolderError("the run has no shortlist", where=str(run.path))
    run.replace({}, drop=(SHORTLIST,))


def _in_order(data: bytes) -> bytes:
    """The same safetensors file with its notes in order: the library writes them in any."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header[NOTES] = dict(sorted(header[NOTES].items()))
    ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    return data[:8] + ordered.ljust(end - 8) + data[end:]


def read_shortlist(run: RunFolder, tokenizers: Tokenizers) -> Shortlist:
    """The shortlist of a run, verified.

    Raises:
        RunFolderError: there is none, it is damaged, it is of other vocabularies, or no shortlist.
    """
    path = run.path / SHORTLIST
    again = f"Make it again: {command('shortlist', run.path)}"
    if SHORTLIST not in run.files:
        raise RunFolderError(
            "the run has no shortlist",
            where=str(run.path),
            hint=f"Make one: {command('shortlist', run.path)}",
        )
    try:
        run.check(SHORTLIST)
        arrays, notes = read_arrays(path), read_metadata(path)
    except RunFolderError as error:
        raise RunFolderError(error.problem, where=error.where, hint=again) from None
    except (ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            f"it holds no shortlist: {error}", where=str(path), hint=again
        ) from None
    if set(arrays) != set(_ARRAYS):
        raise RunFolderError(
            f"expected the arrays {', '.join(_ARRAYS)}, got {', '.join(sorted(arrays)) or 'none'}",
            where=str(path),
            hint=again,
        )
    for name in _ARRAYS:
        if arrays[name].ndim != 1 or arrays[name].dtype.kind != "i":
            raise RunFolderError(f"{name} is no list of integers", where=str(path), hint=again)
    ours = _sums(tokenizers)
    if wrong := [side for side in _SIDES if notes.get(side) != ours[side]]:
        raise RunFolderError(
            f"the shortlist is of another {wrong[0].replace('_', ' ')} than the run's",
            where=str(path),
            hint=again,
        )
    try:
        shortlist = Shortlist(**arrays, targets=tokenizers.target.size)
        if shortlist.sources != tokenizers.source.size:
            raise ModelError(
                f"it has {counted(shortlist.sources, 'row')}, and the source vocabulary "
                f"{tokenizers.source.size:,} entries"
            )
        if tokenizers.target.eos_id not in shortlist.always:
            raise ModelError("it does not let every sentence end")
    except ModelError as error:
        raise RunFolderError(error.problem, where=str(path), hint=again) from None
    return shortlist


def _sums(tokenizers: Tokenizers) -> dict[str, str]:
    """What tells the vocabularies from all others."""
    return dict(zip(_SIDES, sums([tokenizers.source, tokenizers.target]), strict=True))
