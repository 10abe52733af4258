"""The settings inside a Marian model: lines of YAML in the few forms that Marian writes."""

from collections.abc import Mapping

from regard.errors import CheckpointError

Value = str | list[str]


def read_settings(text: str, *, where: str) -> dict[str, Value]:
    """Keys to values, of `key: value` lines and lists below a key; all stay text.

    Raises:
        CheckpointError: a line has another form, or a key comes twice.
    """
    settings: dict[str, Value] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        held = settings.get(key)
        if stripped.startswith("- ") and isinstance(held, list):
            held.append(_unquoted(stripped[2:]))
            continue
        key, colon, value = stripped.partition(":")
        if line[0].isspace() or not colon or not key or key in settings:
            raise CheckpointError(
                f"line {number} of the settings is {line[:80]!r}, wanted a new `key: value`",
                where=where,
            )
        value = value.strip()
        settings[key] = [] if value in ("", "[]") else _unquoted(value)
    return settings


class MarianSettings:
    """The settings of a model, asked for one by one.

    Args:
        values: what `read_settings` read.
        where: the file, for errors.
    """

    def __init__(self, values: Mapping[str, Value], *, where: str) -> None:
        self._values = values
        self._where = where

    def text(self, key: str, default: str | None = None) -> str:
        """A setting that is one word or none.

        Raises:
            CheckpointError: it is missing and has no default, or it is a list.
        """
        value = self._values.get(key, default)
        if value is None:
            raise CheckpointError(f"the settings lack {key}", where=self._where)
        if isinstance(value, list):
            raise CheckpointError(f"{key} is a list of {len(value)}", where=self._where)
        return value

    def number(self, key: str) -> int:
        """A setting that is a whole number from 1 on.

        Raises:
            CheckpointError: it is missing, or anything else.
        """
        value = self.text(key)
        if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value)):
            raise CheckpointError(
                f"{key} is {value!r}, wanted a whole number from 1 on", where=self._where
            )
        return int(value)

    def flag(self, key: str) -> bool:
        """A setting that is true or false; false where it is missing.

        Raises:
            CheckpointError: it is anything else.
        """
        value = self.text(key, "false")
        if value not in ("true", "false"):
            raise CheckpointError(f"{key} is {value!r}, wanted true or false", where=self._where)
        return value == "true"

    def operations(self, key: str) -> str:
        """A setting that is a chain of letters, one an operation, dropout left out."""
        value = self._values.get(key, "")
        return "" if value == [] else self.text(key, "").replace("d", "")

    def require(self, wanted: Mapping[str, Value]) -> None:
        """Refuse a model whose settings say otherwise; what they don't say is as it is wanted.

        Raises:
            CheckpointError: a setting has another value.
        """
        for key, value in wanted.items():
            found = self._values.get(key, value)
            if found != value:
                raise CheckpointError(
                    f"{key} is {_shown(found)}, and regard reads only {_shown(value)}",
                    where=self._where,
                )


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else "[" + ", ".join(value) + "]"


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text
