"""Keys that a person chose in the config: refused in one line, or shown and heard."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path

import pytest
from textual.keys import _character_to_key

from coach import config
from coach.config import Settings
from coach.config.keys import FIXED_SCREEN_KEYS, SCREEN_KEYS
from coach.model.errors import UserError
from coach.tui.keys import KEYS, in_force, keys_in_force
from tests.tui.driving import Driver, opened
from tests.tui.test_palette import offered


def settings_of(directory: Path, keys: str) -> Settings:
    (directory / "config.toml").write_text(f"[keys]\n{keys}\n")
    return config.load({"COACH_HOME": str(directory)})


def chosen(**keys: str) -> Settings:
    return Settings(Path("/runs"), Path("/cache"), Path("/config"), chosen_keys=keys)


def test_the_config_knows_the_ids_of_all_keys() -> None:
    assert {*SCREEN_KEYS, *FIXED_SCREEN_KEYS} == {key.id for key in KEYS}
    assert set(FIXED_SCREEN_KEYS) == {key.id for key in KEYS if key.is_answer} | {"back"}


def test_a_chosen_key_is_that_of_its_id(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'cancel = "X"\nlog = "f2"\nfilter = "ctrl+f"\n6 = "compile"')
    assert settings.recipe_keys == {"6": "compile"}
    keys = keys_in_force(settings)
    table = keys.table
    shown = {key_id: (table[key_id].key, table[key_id].label) for key_id in ("cancel", "log", "filter")}
    assert shown == {"cancel": ("X", "X"), "log": ("f2", "F2"), "filter": ("ctrl+f", "^f")}
    assert table["hold"] == in_force({})["hold"]
    assert {name: key for name, key in keys.keymap.items() if name.startswith("runs.")} == {
        "runs.cancel": "X",
        "runs.log": "f2",
        "runs.filter": "ctrl+f",
    }


@pytest.mark.parametrize(
    ("line", "words", "hint"),
    [
        ('cancle = "X"', "unknown key keys.cancle", "did you mean keys.cancel?"),
        ('cancel = "meta+x"', "no terminal sends this key", "a character"),
        ('cancel = "ctrl+i"', "no terminal sends this key", "other than c h i j m z"),
        ('cancel = " "', "no terminal sends this key", "space"),
        ('cancel = ""', "expected a string", None),
        ("cancel = 3", "expected a string", None),
        ('cancel = "3"', "the digits launch recipes", "another character"),
        ('confirm = "Z"', "cannot be changed", None),
        ('back = "Z"', "cannot be changed", None),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_file_and_line(
    tmp_path: Path, line: str, words: str, hint: str | None
) -> None:
    with pytest.raises(UserError) as refused:
        settings_of(tmp_path, line)
    assert refused.value.message.startswith(f"{tmp_path}/config.toml:2: ")
    assert words in refused.value.message
    assert (hint or "") in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('cancel = "r"', "keys.cancel = 'r': on the cluster screen it is keys.runs (All your runs)"),
        ('cancel = "j"', "keys.cancel = 'j': it moves in every list and text"),
        ('cancel = "B"\nhold = "B"', "keys.cancel = 'B': on the cluster screen it is keys.hold (Hold"),
        ('help = "q"', "keys.help = 'q': on the cluster screen it is keys.leave (One step back"),
    ],
)
def test_a_key_that_another_has_on_the_same_screen_is_refused(tmp_path: Path, keys: str, words: str) -> None:
    settings = settings_of(tmp_path, keys)
    with pytest.raises(UserError) as refused:
        keys_in_force(settings)
    assert refused.value.message.startswith(f"{tmp_path}/config.toml:2: {words}")
    free = (refused.value.hint or "").removeprefix("free: ").split()
    assert free
    for letter in free:
        keys_in_force(chosen(cancel=letter))


def test_two_keys_may_change_places() -> None:
    table = keys_in_force(chosen(cancel="h", hold="x")).table
    assert (table["cancel"].label, table["hold"].label) == ("h", "x")


def test_a_character_has_the_name_that_textual_gives_it() -> None:
    taken = {key.label for key in KEYS} | set("123456789gjkG")
    for character in {*string.punctuation, *string.ascii_letters, "ö", "§"} - taken:
        quantity = keys_in_force(chosen(quantity=character)).table["quantity"]
        assert (quantity.key, quantity.label) == (_character_to_key(character), character)


async def last_line_has(driver: Driver, words: str) -> None:
    await driver.until(lambda: words in driver.text().splitlines()[-1], words)


CHOICES: Mapping[str, str] = {"cancel": "X", "runs": "x", "compare": "B"}


async def test_footer_help_palette_and_words_show_the_chosen_key_and_it_works() -> None:
    async with opened(size=(120, 36), settings=chosen(**CHOICES)) as driver:
        await last_line_has(driver, " X cancel")
        assert offered(driver.app)["Cancel your job"].startswith("X  ")
        await driver.press("c")
        await last_line_has(driver, "c is no key: ? lists the keys")
        await driver.press("m")
        await last_line_has(driver, "m marks a run to compare: list them with x first")
        await driver.press("question_mark")
        await driver.sees("       X  Cancel your job")
        await driver.press("end")
        await driver.sees("X cancel · ")
        await driver.press("escape", "X")
        await driver.sees("$ scancel 17")
        await driver.press("escape", "x")
        await driver.reaches("runs")
        await driver.press("m", "r")
        await last_line_has(driver, "r is no key: ? lists the keys")


async def test_a_click_on_the_footer_presses_the_chosen_key() -> None:
    async with opened(size=(120, 36), settings=chosen(**CHOICES)) as driver:
        column = driver.text().splitlines()[-1].index("X cancel")
        await driver.pilot.click(offset=(column, 35))
        await driver.sees("$ scancel 17")
