"""Every number that a recipe may hold, walked from the configs, and how a run with one ends."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regard.recipes.keys import is_union, kinds, table_of
from regard.recipes.load import load_recipe
from regard.recipes.recipe import FAMILIES, AnyRecipe, Family

# A recipe of each family that trains in no time.
SMALL = {
    "seq2seq": ["vocabulary.size=280", "data.valid_pairs=3", "decoding.max_extra_tokens=3"],
    "decoder": ["vocabulary.size=280", "generation.max_tokens=4"],
    "encoder": ["vocabulary.size=280"],
}
SHAPE = [
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "training.device=cpu",
    "training.precision=float32", "training.batch_tokens=200", "data.max_tokens=24",
]  # fmt: skip
LAYERS = {
    "seq2seq": ["model.encoder_layers=1", "model.decoder_layers=1"],
    "decoder": ["model.num_layers=1"],
    "encoder": ["model.num_layers=1"],
}
# What a number needs beside it to be of use.
NEEDS = {
    "model.experts.top": ["model.experts.number=4"],
    "model.experts.balance": ["model.experts.number=2"],
    "model.experts.z_loss": ["model.experts.number=2"],
    "model.window_from": ["model.window=3"],
    **{
        f"decoding.{name}": ["decoding.method=sample"]
        for name in ("temperature", "top_k", "top_p", "min_p", "seed")
    },
}


@dataclass(frozen=True)
class Number:
    """A key that takes a number, and the changes that choose the tables it is in."""

    family: Family
    key: str
    whole: bool
    field: FieldInfo
    tables: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([self.family, *self.tables, self.key])

    def recipe(self, value: Any, folder: Path) -> AnyRecipe:
        """The small recipe of the family with this number in it."""
        file = folder / f"{self.family}.toml"
        if not file.exists():
            file.write_text(f'family = "{self.family}"\n', encoding="utf-8")
        small = [*SMALL[self.family], *SHAPE, *LAYERS[self.family]]
        changes = [*small, *self.tables, *NEEDS.get(self.key, []), f"{self.key}={value}"]
        return load_recipe(str(file), changes)

    @property
    def ends(self) -> Iterator[float]:
        """The least and the most that its bounds allow, where they are said."""
        for bound in self.field.metadata:
            match bound:
                case Ge(ge=limit) | Le(le=limit):
                    yield limit  # type: ignore[misc]
                case Gt(gt=limit):
                    yield 5e-324 if limit == 0 else limit  # type: ignore[misc]
                case Lt(lt=limit):
                    yield 1 - 2**-53 if limit == 1 else limit - 1  # type: ignore[operator, misc]
                case _:
                    pass


def numbers(family: Family) -> list[Number]:
    """All numbers of a family's recipes."""
    return list(_walk(family, FAMILIES[family], "", ()))


def _walk(
    family: Family, model: type[BaseModel], prefix: str, tables: tuple[str, ...]
) -> Iterator[Number]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        table = table_of(field)
        types = {field.annotation, *get_args(field.annotation)}
        if table is not None:
            yield from _walk(family, table, f"{key}.", tables)
        elif is_union(field):
            for kind, member in kinds(field).items():
                yield from _walk(family, member, f"{key}.", (*tables, f"{key}.kind={kind}"))
        elif types & {int, float}:
            yield Number(family, key, int in types, field, tables)


def all_numbers() -> list[Number]:
    """Those of every family; what families share comes once."""
    every = itertools.chain.from_iterable(numbers(family) for family in FAMILIES)
    return list(every)
