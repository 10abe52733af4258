"""The keys of a config.json: each is translated, known to change nothing, or refused by name."""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from regard.errors import CheckpointError

Values = Mapping[str, Any]

# What says nothing about what the model computes: how it is trained, stored, or generated from.
_WITHOUT_EFFECT: Final = (
    "_attn_implementation _attn_implementation_autoset _attn_implementation_internal "
    "_commit_hash _name_or_path _num_labels architectures attn_implementation bad_words_ids "
    "begin_suppress_tokens bos_token_id chunk_size_feed_forward decoder_start_token_id "
    "diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size "
    "eos_token_id exponential_decay_length_penalty finetuning_task "
    "force_bos_token_to_be_generated forced_bos_token_id forced_eos_token_id "
    "gradient_checkpointing id2label init_std initializer_factor initializer_range label2id "
    "length_penalty max_length min_length model_type no_repeat_ngram_size num_beam_groups "
    "num_beams num_labels num_return_sequences output_attentions output_hidden_states "
    "output_past output_scores pad_token_id pooler_fc_size pooler_num_attention_heads "
    "pooler_num_fc_layers pooler_size_per_head pooler_type prefix problem_type "
    "remove_invalid_values repetition_penalty return_dict return_dict_in_generate "
    "sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss "
    "tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p "
    "use_bfloat16 use_cache "
)
MOST_LAYERS: Final = 1000
_MOST: Final = 2**31 - 1
# What must have the first of these values, or be left out: with another the model is another.
_SETTLED: Final[Values] = {
    "add_cross_attention": False,
    "auto_map": None,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
    "tie_encoder_decoder": False,
}


class Keys:
    """The keys of a config.json, or of a table in it, asked for one by one.

    Args:
        values: what the file holds.
        where: the file, for errors.
        table: the table's name in it, with a dot; empty for the whole.
    """

    def __init__(self, values: Values, where: str, table: str = "") -> None:
        self.where = where
        self._values = values
        self._table = table
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def says(self, name: str) -> bool:
        """Whether it says anything of a key; null is something."""
        return name in self._values

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of 0 or more; without a default it must be there."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.refuse(name, "a whole number of 0 or more")
        if value > _MOST:
            self.refuse(name, f"at most {_MOST:,}")
        return value

    def layers(self, name: str, default: int) -> int:
        """A number of layers; one that no model has is refused before any is made."""
        value = self.whole(name, default)
        if value > MOST_LAYERS:
            self.refuse(name, f"at most {MOST_LAYERS} layers")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number; without a default it must be there."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(name, "a number")
        if not abs(value) <= _MOST:  # what is no number (NaN) is not
            self.refuse(name, f"a number of at most {_MOST:,}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be there."""
        value = self._value(name, default)
        if not isinstance(value, str):
            self.refuse(name, "a text")
        return value

    def content(self, name: str) -> str:
        """A token's name, which may be in a table with more of it; empty where it is left out."""
        value = self._value(name, "")
        return (
            self.table(name).text("content", "") if isinstance(value, dict) else self.text(name, "")
        )

    def texts(self, name: str) -> list[str]:
        """A list of texts, empty where it is left out."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(name, "a list of texts")
        return value

    def table(self, name: str) -> "Keys":
        """A table in it, empty where it is left out."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            self.refuse(name, "a table")
        return Keys(value, self.where, f"{self._table}{name}.")

    def entries(self, name: str) -> Values:
        """All that a table in it says, empty where it is left out."""
        self.table(name)
        value: Values = self._value(name, {})
        return value

    def one_of(self, name: str, choices: Mapping[str, Any], default: str | None = None) -> Any:  # noqa: ANN401 - whatever they stand for
        """What a text stands for, of those that are known."""
        value = self.text(name, default)
        if value not in choices:
            self.refuse(name, f"one of {', '.join(choices)}")
        return choices[value]

    def settled(self, name: str, *allowed: Any) -> None:  # noqa: ANN401 - whatever JSON holds
        """Refuse a key that has another value than those, left out and null excepted."""
        value = self._value(name, allowed[0])
        if not any(type(value) is type(one) and value == one for one in allowed):
            self.refuse(name, " or ".join(shown(one) for one in allowed))

    def without_effect(self, *names: str) -> None:
        """Pass over keys that change nothing of what the model computes when it is used."""
        self._asked.update(names)

    def close(self, *, general: bool = True) -> None:
        """Refuse every key that nobody asked for.

        Args:
            general: pass over what every config.json may have.

        Raises:
            CheckpointError: there are such keys; all are named.
        """
        if general:
            for name, value in _SETTLED.items():
                if name not in self._asked:
                    self.settled(name, value)
            self._asked.update(_WITHOUT_EFFECT.split())
        unknown = [
            name
            for name, value in self._values.items()
            if name not in self._asked and value is not None
        ]
        if unknown:
            found = ", ".join(
                f"{self._table}{name} = {shown(self._values[name])}" for name in unknown
            )
            raise CheckpointError(
                f"regard does not know what this changes of the model: {found}",
                where=self.where,
                hint="If it changes nothing, take it out of the file and import again.",
            )

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Say that a key has a value that no model here can honour, and what is wanted.

        Raises:
            CheckpointError: always.
        """
        if name not in self._values:
            problem = f"{self._table}{name} is missing, wanted {wanted}"
        else:
            found = shown(self._values[name])
            problem = f"{self._table}{name} = {found} can't be honoured, wanted {wanted}"
        raise CheckpointError(problem, where=self.where)

    def _value(self, name: str, default: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
        self._asked.add(name)
        value = self._values.get(name)
        return default if value is None else value


def labels(keys: Keys, classes: int) -> tuple[str, ...]:
    """The names of a classifier's classes, by `id2label` or else their numbers.

    Raises:
        CheckpointError: it tells numbers or several labels of a text, not one class of it, or
            its classes have not one good name each.
    """
    keys.settled("problem_type", None, "single_label_classification")
    if classes == 1:
        raise CheckpointError(
            "its classifier has one output, which is a number and no class: wanted 2 or more",
            where=keys.where,
        )
    numbers = [str(number) for number in range(classes)]
    named = keys.entries("id2label") or dict(zip(numbers, numbers, strict=True))
    if {*named} != {*numbers}:
        keys.refuse("id2label", f"a name for each of 0 to {classes - 1}, its classifier's rows")
    names = tuple(str(named[number]) for number in numbers)
    if len({*names}) < len(names):
        keys.refuse("id2label", "a name of its own for each class")
    if any(not name.strip() or {*name} & {*"\t\n\r"} for name in names):
        keys.refuse("id2label", "names that are not empty, and without tabs and line breaks")
    _agrees(keys, names)
    return names


def _agrees(keys: Keys, names: tuple[str, ...]) -> None:
    """Refuse a label2id that contradicts id2label; what transformers makes up says nothing."""
    for name, number in keys.entries("label2id").items():
        made_up = name == f"LABEL_{number}"
        if not made_up and str(number) not in {str(i) for i, n in enumerate(names) if n == name}:
            keys.refuse("label2id", "the same numbers and names as in id2label")


def shown(value: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """A value as JSON has it, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
