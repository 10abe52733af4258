from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

class NotANumber(ArithmeticError): ...  # noqa: N818 - C++'s name for it

kernels: ModuleType

def isa() -> str: ...

class Packed:
    def __init__(
        self,
        *,
        config: Mapping[str, int | float | bool | str | list[float] | list[int]],
        weights: Mapping[str, NDArray[np.float32]],
        dtype: str,
    ) -> None: ...
    def sections(self) -> dict[str, NDArray[np.uint8]]: ...

class Shortlist:
    def __init__(
        self,
        *,
        offsets: NDArray[np.integer[Any]],
        tokens: NDArray[np.integer[Any]],
        always: NDArray[np.integer[Any]],
        targets: int,
    ) -> None: ...
    def allowed(self, source: Sequence[int], prefix: Sequence[int]) -> list[int]: ...

class Engine:
    def __init__(
        self,
        *,
        config: Mapping[str, int | float | bool | str | list[float] | list[int]],
        weights: Mapping[str, NDArray[Any]],
        dtype: str,
        threads: int,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    def translate(
        self,
        sources: Sequence[Sequence[int]],
        *,
        max_tokens: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        bos: int,
        eos: int,
        never: Sequence[int],
        beam: int,
        n_best: int,
        alpha: float,
        coverage: float,
        min_tokens: int,
        no_repeat_ngram: int,
        batch_tokens: int,
        seeds: Sequence[int] | None,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        shortlist: Shortlist | None,
    ) -> list[list[tuple[list[int], float, float, bool]]]: ...
    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        bos: int,
        never: Sequence[int],
        best: bool,
        attention: bool,
    ) -> list[tuple[float, list[float], list[int], NDArray[np.float32] | None]]: ...

class LanguageModel:
    def __init__(
        self,
        *,
        config: Mapping[str, int | float | bool | str | list[float] | list[int]],
        weights: Mapping[str, NDArray[Any]],
        dtype: str,
        threads: int,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...

class Texts:
    def __init__(self, model: LanguageModel, rows: int) -> None: ...
    def advance(
        self, rows: Sequence[int], tokens: Sequence[Sequence[int]], *, logits: bool
    ) -> NDArray[np.float32] | None: ...
    def select(self, rows: Sequence[int]) -> None: ...

class TextEncoder:
    def __init__(
        self,
        *,
        config: Mapping[str, int | float | bool | str | list[float] | list[int]],
        weights: Mapping[str, NDArray[Any]],
        dtype: str,
        threads: int,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    def pool(self, texts: Sequence[Sequence[int]], *, pooling: str) -> NDArray[np.float32]: ...
    def classify(self, texts: Sequence[Sequence[int]], *, pooling: str) -> NDArray[np.float32]: ...
    def predict(self, text: Sequence[int], places: Sequence[int]) -> NDArray[np.float32]: ...
