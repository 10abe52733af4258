"""A language model as a Python object: `regard.load_language_model("runs/gpt").generate("The")`."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypedDict, Unpack, overload

from pydantic import ValidationError

from regard.arguments import path_of, plain_numbers, require_teller
from regard.decoding.generate import Continuation, generate, stream
from regard.decoding.generation import GenerationConfig
from regard.decoding.score_texts import TextScore, score_texts
from regard.decoding.scored import MOST_SCORED
from regard.models.decoder import LanguageModel
from regard.recipes.explain import explain
from regard.recipes.recipe import DecoderRecipe
from regard.serving.choosing import check_names, keeps_from, wanted_device
from regard.serving.opening import (
    OpenedLanguageModel,
    RunPath,
    open_language_model,
)
from regard.serving.place import Place
from regard.serving.readers import EngineReader, language_reader
from regard.serving.strings import checked_string, checked_strings, refuse_unknown
from regard.text.vocabulary import Vocabulary


class GenerationOptions(TypedDict, total=False):
    """The keys of `GenerationConfig`, each of which a call may set for itself."""

    max_tokens: int
    samples: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    stop: tuple[str, ...]
    seed: int


def load_language_model(
    path: RunPath,
    *,
    device: str = "auto",
    threads: int | None = None,
    engine: str = "auto",
    dtype: str | None = None,
) -> "Generator":
    """Open the run of a decoder, to go on with texts.

    ```python
    import regard

    generator = regard.load_language_model("runs/gpt")
    print(generator.generate("Once upon a time", temperature=0.8, max_tokens=100))
    for piece in generator.stream("Once upon a time"):
        print(piece, end="", flush=True)
    ```

    Args:
        path: a run folder.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1".
        threads: CPU threads to use, in the whole process; None leaves torch's setting, and
            gives the engine all cores.
        engine: who reads texts and says what may follow: "native" is the engine, "torch" is
            PyTorch, "auto" the engine where there is one, on the CPU.
        dtype: what the engine computes with, "float32" (the default), "bfloat16", "int8", "int4".
            A run of `regard quantize` has but the one that it was packed in.

    Raises:
        RunFolderError: the folder is not there or damaged, or its parts do not belong together.
        RecipeError: the run is of another family; says which command is for it.
        RegardError: there is no such device, engine or dtype; or the engine must go on with
            texts and can't (`EngineError`).
    """
    check_names(engine, dtype)
    path = path_of(path, "path")
    place = Place(wanted_device(device, engine, [path]), threads).check()
    run = open_language_model(path, place)
    problem = keeps_from([run], engine=engine, dtype=dtype)
    if problem is None:
        return Generator(run, language_reader(run, dtype=dtype, threads=place.threads))
    run.held.make()
    return Generator(run, torch_serves=problem)


class Generator:
    """A trained language model and all it takes to go on with texts; from `load_language_model`.

    `torch_serves` says what of the model keeps the engine from it; it is empty where the engine
    serves, PyTorch was asked for, or there is no engine. `generation` says how it draws tokens
    where a call says nothing else; it is the recipe's, and may be replaced.
    """

    def __init__(
        self,
        run: OpenedLanguageModel,
        reader: EngineReader | None = None,
        *,
        torch_serves: str = "",
    ) -> None:
        self._run = run
        self.torch_serves = torch_serves
        self._reader = reader
        self.generation: GenerationConfig = run.recipe.generation

    @property
    def model(self) -> LanguageModel:
        """The model, a plain `torch.nn.Module`."""
        return self._run.model

    @property
    def engine(self) -> str:
        """Who goes on with texts: "torch", or the engine with its dtype and instructions."""
        return "torch" if self._reader is None else str(self._reader)

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of prompts and texts."""
        return self._run.vocabulary

    @property
    def recipe(self) -> DecoderRecipe:
        """What made the model."""
        return self._run.recipe

    # A str is a sequence of strings too, but nobody wants it continued letter by letter.
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: str, **options: Unpack[GenerationOptions]
    ) -> str | list[str]: ...

    @overload
    def generate(
        self, prompts: Iterable[str], **options: Unpack[GenerationOptions]
    ) -> list[str] | list[list[str]]: ...

    def generate(
        self, prompts: str | Iterable[str], **options: Unpack[GenerationOptions]
    ) -> str | list[str] | list[list[str]]:
        """Go on with prompts; give what comes after each, without the prompt.

        `prompt + text` reads right. With `samples` above 1 each prompt gets a list of so many
        texts. A single prompt gives a single text, or a single list of them. An empty prompt
        begins a text.

        Args:
            prompts: what to go on with.
            options: of `GenerationConfig`, in place of those in `generation`.

        Raises:
            RegardError: an option is unknown or has a bad value.
            DataError: a prompt can't be encoded in UTF-8, or is no string; says which.
            ModelError: a prompt is longer than the model, or the model's output is NaN.
        """
        single = isinstance(prompts, str)
        if isinstance(prompts, str):
            prompts = [checked_string(prompts, "prompts")]
        found = self.continuations(prompts, **options)
        texts = [[each.text for each in samples] for samples in found]
        if self._config(options).samples > 1:
            return texts[0] if single else texts
        firsts = [samples[0] for samples in texts]
        return firsts[0] if single else firsts

    def continuations(
        self,
        prompts: Iterable[str],
        *,
        first_prompt: int = 1,
        warn: Callable[[str], None] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> list[list[Continuation]]:
        """As `generate`, with all there is to know: tokens, log-probability, why it stopped.

        Args:
            prompts: what to go on with.
            first_prompt: the number of the first prompt, for warnings and errors.
            warn: is told of a prompt that leaves no room for as many tokens as were asked for.
            options: of `GenerationConfig`, in place of those in `generation`.

        Raises:
            As `generate`.
        """
        require_teller(first_prompt, "first_prompt", warn)
        return generate(
            self._reader or self.model,
            self.vocabulary,
            checked_strings(prompts, "prompts"),
            self._config(options),
            first_prompt=first_prompt,
            warn=warn,
        )

    def stream(
        self,
        prompt: str,
        *,
        warn: Callable[[str], None] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Iterator[str]:
        """Go on with one prompt, and give the text in pieces as soon as they are certain.

        Joined, they are the text that `generate` gives; of `samples` it is the first.

        Args:
            prompt: what to go on with.
            warn: is told when there is no room for as many tokens as were asked for.
            options: of `GenerationConfig`, in place of those in `generation`.

        Raises:
            As `generate`, all of it but NaN before the first piece is asked for.
        """
        checked_string(prompt, "prompt")
        require_teller(1, "", warn)
        return stream(
            self._reader or self.model, self.vocabulary, prompt, self._config(options), warn=warn
        )

    def score(self, texts: Iterable[str]) -> list[TextScore]:
        """How likely each text is, from its beginning to its end.

        ```python
        for score in generator.score(["The light is on.", "Light the on is."]):
            print(score.log_prob, score.tokens, score.perplexity)
        ```

        A text may have 4,096 tokens, or `data.max_tokens` if those are more, and no more than
        the model has positions.

        Raises:
            DataError: a text can't be encoded in UTF-8, or is no string; says which.
            ModelError: a text is too long; says which.
        """
        most = max(MOST_SCORED, self.recipe.data.max_tokens)
        checked = checked_strings(texts, "texts")
        return score_texts(self.model, self.vocabulary, checked, most=most)

    def _config(self, options: GenerationOptions) -> GenerationConfig:
        refuse_unknown(options, GenerationConfig.model_fields, "generate")
        if not options:
            return self.generation
        settings = {**self.generation.model_dump(), **plain_numbers(options)}
        merged = {**self.recipe.model_dump(), "generation": settings}
        try:
            return DecoderRecipe.model_validate(merged).generation
        except ValidationError as error:
            raise explain(error, DecoderRecipe, source="generate", changed=()) from None
