"""Whether the engine serves a run, whatever its family, or PyTorch; and if packed, nobody else."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_args

from regard.arguments import require, shown
from regard.engine import native, support
from regard.engine.engine import Dtype
from regard.engine.native import EngineError
from regard.errors import ModelError, RegardError, RunFolderError
from regard.serving.opening import Opened, RunPath
from regard.weights.layout import PACKED

EngineName = Literal["auto", "native", "torch"]
Packed = TypeVar("Packed")

HINT: Final = "Leave the engine to be chosen, or use --engine torch."
_ITS_SOURCE: Final = "Use the run that it was made of with regard quantize."


def check_names(engine: str, dtype: str | None) -> None:
    """Refuse what is no engine or no dtype, or the two together.

    Raises:
        RegardError: says which.
    """
    for where, given, known in (
        ("engine", engine, get_args(EngineName)),
        ("dtype", "float32" if dtype is None else dtype, get_args(Dtype)),
    ):
        if given not in known:
            names = ", ".join(f'"{name}"' for name in known)
            came = f'"{given}"' if isinstance(given, str) else shown(given)
            raise RegardError(f"expected one of {names}, got {came}", where=where)
    if engine == "torch" and dtype not in {None, "float32"}:
        raise RegardError(
            f"{dtype} needs the engine, and PyTorch was asked for",
            where="dtype",
            hint="Leave out one of the two: PyTorch computes with float32.",
        )


def wanted_device(device: str, engine: str, paths: Sequence[RunPath]) -> str:
    """Where models go: the engine works on the CPU, whatever GPU there is; packed runs are its."""
    require(device, str, "device", 'a string: "auto", "cpu", "cuda" or "cuda:N"')
    for_engine = engine == "native" or any(Path(path, PACKED).is_file() for path in paths)
    return "cpu" if for_engine and device == "auto" else device


def keeps_from(runs: Sequence[Opened], *, engine: str, dtype: str | None) -> str | None:
    """What keeps the engine from serving runs; None if nothing does.

    It is empty where PyTorch was asked for, there is no engine, or the model is on a GPU.

    Args:
        runs: a run, or those of an ensemble, which the engine does not take.
        engine: "native" must, "auto" may, and "torch" may not.
        dtype: what the engine computes with; left out, float32 or what a run is packed in. With
            any other it must be the engine, for PyTorch would give other answers.

    Raises:
        RegardError: there is no such engine or dtype, or not for these runs.
        EngineError: the engine must serve, and can't; says why.
    """
    check_names(engine, dtype)
    if engine == "torch":
        return ""
    packed = [(run, run.packed.dtype) for run in runs if run.packed is not None]
    for _, held in packed:
        if dtype not in {None, held}:
            raise RegardError(
                f"{dtype} was asked for, and the run's weights are packed as {held}",
                where="dtype",
                hint=_ITS_SOURCE,
            )
    required = engine == "native" or dtype not in {None, "float32"}
    if absence := native.absence():
        if packed:
            raise _only_packed(packed[0][0], f"there is no engine: {absence}")
        if required:
            raise EngineError(f"there is no engine: {absence}", hint="Use --engine torch.")
        return ""
    problem = "an ensemble" if len(runs) > 1 else support.refusal(runs[0].recipe.model)
    on_gpu = not runs[0].held.on_cpu
    if packed and (problem or on_gpu):
        raise _only_packed(packed[0][0], f"the engine does not support {problem or 'a GPU'}")
    if required and (problem or on_gpu):
        raise EngineError(
            f"the engine does not support {problem or 'a GPU'}",
            where=str(runs[0].path),
            hint=HINT,
        )
    return "" if on_gpu else problem or None


def _only_packed(run: Opened, problem: str) -> EngineError:
    return EngineError(
        f"{problem}, and its weights are packed for nothing else",
        where=str(run.path),
        hint=_ITS_SOURCE,
    )


def in_engine(
    run: Opened,
    dtype: str | None,
    make: Callable[[Mapping[str, Any], Dtype], Packed],
) -> Packed:
    """The model of a run in the engine, which `make` makes of its weights, packed or not.

    Raises:
        RunFolderError: packed weights are not those of the recipe.
        ModelError: nor are others.
    """
    packed = run.packed
    if packed is not None and packed.dtype not in get_args(Dtype):
        raise RunFolderError(
            f'its weights are packed as "{packed.dtype}", which is not known here',
            where=str(run.path),
            hint="Make it again with regard quantize.",
        )
    try:
        if packed is not None:
            return make(packed.sections, cast(Dtype, packed.dtype))
        return make(run.held.arrays(), cast(Dtype, dtype or "float32"))
    except ModelError as error:
        if packed is None:
            run.held.make()  # PyTorch says all that does not fit, and where
            raise
        raise RunFolderError(
            f"its packed weights do not fit its recipe: {error}",
            where=str(run.path),
            hint="Make it again with regard quantize.",
        ) from None
