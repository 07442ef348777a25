"""What a command prints on a terminal that shows no UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.installed import REPOSITORY

pytestmark = pytest.mark.real

LOCALE = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONCOERCECLOCALE")


def printed(words: str, variables: Mapping[str, str]) -> bytes:
    env = {name: value for name, value in os.environ.items() if name not in LOCALE}
    done = subprocess.run(
        [sys.executable, "-m", "coach", *words.split()],
        env={**env, **variables},
        cwd=REPOSITORY,
        capture_output=True,
        timeout=120,
    )
    assert b"Error" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("words", ["launch --help", "check tests/recordings/input-bound"])
@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C"},
        {"LANG": ""},
        {"LC_ALL": "en_US.ISO-8859-1"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"},
    ],
    ids=str,
)
def test_a_terminal_without_utf_8_gets_readable_ascii(words: str, variables: dict[str, str]) -> None:
    shown = printed(words, variables)
    whole = printed(words, {"LC_ALL": "C.UTF-8"}).decode()
    assert shown.isascii()
    assert b"??" not in shown
    assert not whole.isascii()
    assert len(shown.decode().splitlines()) == len(whole.splitlines())


def test_a_chosen_encoding_is_kept() -> None:
    whole = printed("launch --help", {"LC_ALL": "C.UTF-8"})
    assert not whole.isascii()
    assert printed("launch --help", {"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}) == whole
    latin = printed("launch --help", {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"})
    assert b"ARGUMENTS ~" in latin
    assert json.loads(printed("recipes --format json", {"LC_ALL": "C"}))["recipes"]
