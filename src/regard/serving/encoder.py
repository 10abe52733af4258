"""An encoder as a Python object: `regard.load_encoder("runs/bert").embed(["The light is on."])`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from regard.arguments import path_of, require, require_teller, shown, whole_number
from regard.decoding.framing import framed_row, framed_rows, room_for_text
from regard.errors import DataError, ModelError, RegardError, command
from regard.recipes.names import typed
from regard.recipes.recipe import EncoderRecipe
from regard.serving.choosing import check_names, keeps_from, wanted_device
from regard.serving.encoders import Encoding, EngineEncoding, TorchEncoding, engine_encoding
from regard.serving.opening import OpenedEncoder, RunPath, open_encoder
from regard.serving.place import Place
from regard.serving.strings import checked_string, checked_strings
from regard.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from regard.models.encoder import Pooling, TextEncoder
else:
    Pooling, TextEncoder = str, object

# What stands for a token to fill in; it means that in `fill` alone.
MASK = "[MASK]"

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Label:
    """The likeliest label of a text, its probability, and those of all labels."""

    name: str
    probability: float
    probabilities: Mapping[str, float]


@dataclass(frozen=True)
class Filling:
    """What may stand at a masked place: its text, how likely it is, and the token's id.

    The text is without spaces around it; of a token that is but a space, or a part of a
    character, it is what `Vocabulary.tokens` gives.
    """

    text: str
    probability: float
    token: int


def load_encoder(
    path: RunPath,
    *,
    device: str = "auto",
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
) -> "Encoder":
    """Open the run of an encoder, to make vectors of texts, classify them, or fill gaps in them.

    ```python
    import regard

    encoder = regard.load_encoder("runs/bert")
    vectors = encoder.embed(["The light is on.", "It is bright."])
    print(encoder.fill("The [MASK] sat.")[0][0].text)
    ```

    Args:
        path: a run folder.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1".
        threads: CPU threads to use, in the whole process; None leaves torch's setting, and
            gives the engine all cores.
        engine: who computes: "native" is the engine, "torch" is PyTorch, "auto" the engine where
            there is one that supports the model, on the CPU.
        dtype: what the engine computes with, "float32" (the default), "bfloat16", "int8", "int4".
            A run of `regard quantize` has but the one that it was packed in.

    Raises:
        RunFolderError: the folder is not there or damaged, or its parts do not belong together.
        RecipeError: the run is of another family; says which command is for it.
        RegardError: there is no such device, engine or dtype; or the engine must compute and
            can't (`EngineError`).
    """
    check_names(engine, dtype)
    path = path_of(path, "path")
    place = Place(wanted_device(device, engine, [path]), threads).check()
    run = open_encoder(path, place)
    problem = keeps_from([run], engine=engine, dtype=dtype)
    if problem is None:
        return Encoder(run, engine_encoding(run, dtype=dtype, threads=place.threads))
    run.held.make()
    return Encoder(run, torch_serves=problem)


class Encoder:
    """A trained encoder and all it takes to use it; made by `load_encoder`.

    A text of more tokens than `data.max_tokens` of the recipe is cut at its end, as in training.
    A blank text is a text like any other: it gets a vector, and a label.

    `torch_serves` says what of the model keeps the engine from it; it is empty where the engine
    serves, PyTorch was asked for, or there is no engine.
    """

    def __init__(
        self,
        run: OpenedEncoder,
        encoding: EngineEncoding | None = None,
        *,
        torch_serves: str = "",
    ) -> None:
        self._run = run
        self._encoding: Encoding = encoding or TorchEncoding(run)
        self.torch_serves = torch_serves

    @property
    def engine(self) -> str:
        """Who computes: "torch", or the engine with its dtype and instructions."""
        return str(self._encoding)

    @property
    def model(self) -> TextEncoder:
        """The model, a plain `torch.nn.Module`."""
        return self._run.model

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the texts."""
        return self._run.vocabulary

    @property
    def recipe(self) -> EncoderRecipe:
        """What made the model."""
        return self._run.recipe

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it tells apart, in the order of the classes; none if it does not."""
        return self.recipe.labels.names

    def embed(
        self,
        lines: str | Iterable[str],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        first_line: int = 1,
        warn: Warn | None = None,
    ) -> NDArray[np.float32]:
        """One vector for each text, in order, as an array N x d; a single string gives one of d.

        Args:
            lines: the texts.
            pooling: "mean" over all tokens, those around the text counted, or "cls", the first
                token's vector; left out, as the recipe's `embedding` says.
            normalize: bring each to length 1; left out, as the recipe's `embedding` says.
            first_line: the number of the first text, for warnings.
            warn: is told of a text that is cut.

        Raises:
            DataError: a text can't be encoded in UTF-8, or is no string; says which.
            RegardError: there is no such pooling.
            ModelError: the model's output is NaN.
        """
        settings = self.recipe.embedding
        pooling = settings.pooling if pooling is None else pooling
        if pooling not in ("mean", "cls"):
            raise RegardError(f'expected "mean" or "cls", got {shown(pooling)}', where="pooling")
        require(normalize, (bool, NoneType), "normalize", "True, False or None")
        array = self._encoding.embed(
            self._rows(lines, first_line, warn),
            pooling,
            normalize=settings.normalize if normalize is None else normalize,
        )
        return array[0] if isinstance(lines, str) else array

    # A str is a sequence of strings too, but nobody wants it labelled letter by letter.
    @overload
    def classify(  # type: ignore[overload-overlap]
        self, lines: str, *, first_line: int = 1, warn: Warn | None = None
    ) -> Label: ...

    @overload
    def classify(
        self, lines: Iterable[str], *, first_line: int = 1, warn: Warn | None = None
    ) -> list[Label]: ...

    def classify(
        self, lines: str | Iterable[str], *, first_line: int = 1, warn: Warn | None = None
    ) -> Label | list[Label]:
        """The label of each text, in order; a single string gives a single label.

        Args:
            lines: the texts.
            first_line: the number of the first text, for warnings.
            warn: is told of a text that is cut.

        Raises:
            ModelError: the run is no classifier, or the model's output is NaN.
            DataError: a text can't be encoded in UTF-8, or is no string; says which.
        """
        self.require_labels()
        found = [
            Label(
                self.labels[int(np.argmax(shares))],
                max(shares),
                dict(zip(self.labels, shares, strict=True)),
            )
            for shares in self._encoding.label_shares(self._rows(lines, first_line, warn)).tolist()
        ]
        return found[0] if isinstance(lines, str) else found

    def fill(self, text: str, *, top: int = 5, warn: Warn | None = None) -> list[list[Filling]]:
        """The likeliest tokens for each `[MASK]` in a text, the likeliest first.

        ```python
        for filling in encoder.fill("The [MASK] is on.")[0]:
            print(filling.text, filling.probability)
        ```

        Each mask stands for one token, with the space before it. Several are filled at once,
        each as if the others stayed masked. Control tokens are left out.

        Args:
            text: holds `[MASK]` at least once.
            top: how many for each.
            warn: is told if the text is cut.

        Raises:
            DataError: there is no mask in the text, or it can't be encoded in UTF-8.
            ModelError: a mask is where the text would be cut off, the run cannot fill masks, or
                its output is NaN.
            RegardError: `top` is less than 1.
        """
        top = whole_number(top, "top", least=1)
        require_teller(1, "", warn)
        row, mask_id = self._masked(text, warn)
        shares_nv = self._encoding.mask_shares(row, mask_id)
        shares_nv[:, sorted(self.vocabulary.control_ids)] = -1.0
        ids_nk = np.argsort(-shares_nv, axis=1, kind="stable")[:, :top]
        return [
            [
                Filling(self._shown(token), float(shares[token]), token)
                for token in ids
                if shares[token] >= 0
            ]
            for shares, ids in zip(shares_nv, ids_nk.tolist(), strict=True)
        ]

    def require_labels(self) -> None:
        """Refuse to classify with a run that is no classifier.

        Raises:
            ModelError: it is none.
        """
        if self.labels:
            return
        path = self._run.path
        if self._run.packed is not None:
            hint = "Finetune the run that it was made of with regard quantize, and pack that."
        else:
            words = command("finetune", typed(path), "--labels", "train.tsv")
            hint = f"Make a classifier of it: {words}"
        raise ModelError("the run tells no labels apart", where=str(path), hint=hint)

    def _rows(
        self, lines: str | Iterable[str], first_line: int, warn: Warn | None
    ) -> list[list[int]]:
        require_teller(first_line, "first_line", warn)
        texts = checked_strings([lines] if isinstance(lines, str) else lines, "lines")
        return framed_rows(
            self.vocabulary,
            texts,
            longest=self.recipe.data.max_tokens,
            first_line=first_line,
            warn=warn,
        )

    def _shown(self, token: int) -> str:
        """The text of a token; as `tokens` shows it where it is no whole character."""
        text = self.vocabulary.decode([token]).strip()
        return self.vocabulary.tokens([token])[0] if "\ufffd" in text or not text else text

    def _masked(self, text: str, warn: Warn | None) -> tuple[list[int], int]:
        """The ids of a text with masks in it, and the mask's."""
        where, mask_id = str(self._run.path), self.vocabulary.mask_id
        if mask_id is None:
            raise ModelError(
                "the vocabulary has no mask token, so nothing can be filled", where=where
            )
        if not self.recipe.model.prediction_head:
            came_from = self.recipe.init
            raise ModelError(
                "the model has no prediction head, so it cannot fill masks",
                where=where,
                hint=f"Use the run that it came from: {came_from}" if came_from else "",
            )
        checked = checked_string(text, "text")
        first, *others = checked.split(MASK)
        if not others:
            raise DataError(
                f"there is no {MASK} in it", where="text", hint=f'As in "The {MASK} is on."'
            )
        # A mask stands for a token together with the space before it.
        ids = self.vocabulary.encode(first.removesuffix(" "))
        for place, part in enumerate(others, start=1):
            more = part if place == len(others) else part.removesuffix(" ")
            ids += [mask_id, *self.vocabulary.encode_more(more)]
        longest = self.recipe.data.max_tokens
        if mask_id in ids[room_for_text(self.vocabulary, longest) :]:
            raise ModelError(
                f"a {MASK} is behind the {longest:,} tokens that data.max_tokens has room for",
                where="text",
                hint="Leave out what is far from it.",
            )
        return framed_row(
            self.vocabulary, ids, longest=longest, name="the text", warn=warn
        ), mask_id
