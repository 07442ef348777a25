"""Tables read by a schema: their values, and an error for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.model.toml_schema import FLAG, STRING, TABLE, Key, Schema, TomlFile, list_of, one_of, whole

SCHEMA: Schema = {
    "name": Key(STRING, "Its name.", is_needed=True),
    "ranks": Key(whole(1, 8), "Ranks in all.", default=1),
    "devices": Key(list_of(one_of(("cpu", "gpu"))), "What it trains on.", default=()),
    "is_live": Key(FLAG, "True while it runs."),
    "drill": Key(TABLE, "The planted fault."),
}
PATH = Path("mine.toml")


def test_a_table_without_mistakes_has_its_values_and_the_defaults_of_absent_keys() -> None:
    file = TomlFile(PATH, 'name = "ddp"\ndevices = ["gpu"]\n')
    assert file.values("", file.table, SCHEMA) == {
        "name": "ddp",
        "ranks": 1,
        "devices": ("gpu",),
        "is_live": None,
        "drill": None,
    }


def test_each_mistake_of_a_table_is_named_with_its_line_and_what_would_be_right() -> None:
    file = TomlFile(PATH, '[a]\nrank = 2\nranks = 9\ndevices = [\n"tpu"]\nis_live = 1\n')
    with pytest.raises(UserError) as refused:
        file.values("a", file.table["a"], SCHEMA)
    assert (refused.value.message, refused.value.hint) == (
        "mine.toml:2: unknown key a.rank",
        "did you mean ranks?",
    )
    assert refused.value.diff == (
        "mine.toml:1: the key a.name is missing: expected text",
        "mine.toml:3: a.ranks = 9: expected a whole number from 1 to 8",
        "mine.toml:4: a.devices = ['tpu']: expected one of cpu, gpu",
        "mine.toml:6: a.is_live = 1: expected true or false",
    )


def test_a_key_of_an_inline_table_has_the_line_of_the_table() -> None:
    file = TomlFile(PATH, '\n"a.b" = { c = 1 }\n')
    assert file.at("a.b.c.d") == "mine.toml:2"
    assert file.at("elsewhere") == "mine.toml"


def test_text_that_is_no_toml_is_one_line_with_its_place() -> None:
    with pytest.raises(UserError, match=r"^mine\.toml:2: not valid TOML: "):
        TomlFile(PATH, "a = 1\nb =\n")
