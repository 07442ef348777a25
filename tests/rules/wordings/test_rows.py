"""A mistake in a table of wordings is named with its place and its correction."""

from __future__ import annotations

import pytest

from coach.model.errors import UserError
from coach.rules.wordings.rows import parse, parse_file

GOOD = """
[[group]]
rule = "ENV010"
kind = "full"
head = 'scratch: '
unless = 'rehearsal'

[[group.wording]]
pattern = '(?P<what>quota of /\\S+ used up)'
example = 'scratch: quota of /scratch/ada used up'
seen = "our prolog"
"""


def test_a_row_is_a_signature_with_the_words_of_its_group() -> None:
    (row,) = parse(GOOD, "site.toml")
    assert row.signature.pattern == r"scratch: (?P<what>quota of /\S+ used up)"
    assert row.signature.literals == ("scratch: quota of /",)
    assert (row.signature.unless, row.signature.is_heeded, row.signature.in_error) == (
        "rehearsal",
        True,
        False,
    )


REMEDY = """
[[remedies.room]]
title = "Clean {what}"
command = "du -sh {what}"
needs = ["scheduler:slurm"]
"""


def test_a_row_names_its_own_fixes_and_cause() -> None:
    (row,) = parse(REMEDY + GOOD + 'remedy = "room"\ncause = "disk_quota"\n', "site.toml")
    assert row.signature.cause == "disk_quota"
    (fix,) = row.signature.fixes
    assert (fix.title, fix.command, fix.needs) == ("Clean {what}", "du -sh {what}", ("scheduler:slurm",))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('remedy = "room"', 'remedy = "rom"', "there is no remedy 'rom'"),
        ("scheduler:slurm", "scheduler:mine", "coach cannot see 'scheduler:mine'"),
        ("title = ", "titel = ", "unknown key remedies.room[1].titel"),
        ("[[remedies.room]]", "[remedies.room]", "expected a list; each: a table"),
        ("command = ", "changes = ", "remedies.room[1].changes = 'du -sh {what}': expected a table"),
    ],
)
def test_a_mistake_in_a_remedy_is_named_with_its_place(old: str, new: str, words: str) -> None:
    text = REMEDY + GOOD + 'remedy = "room"\n'
    assert old in text
    with pytest.raises(UserError, match=r"site\.toml") as caught:
        parse(text.replace(old, new), "site.toml")
    assert words in caught.value.message


def test_a_file_may_hold_thresholds_alone() -> None:
    assert parse_file("[thresholds.GPU005]\nwarning_share = 0.3\n", "site.toml").thresholds == {
        "GPU005": {"warning_share": 0.3}
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('rule = "ENV010"', "", "the key group[1].rule is missing"),
        ('kind = "full"', "kind = 3", "group[1].kind = 3: expected text"),
        ("example = ", "exampel = ", "unknown key group[1].wording[1].exampel"),
        ('seen = "our prolog"', "", "give seen or source, the place where the wording occurred"),
        ("(?P<what>quota", "(?P<what>quota(", "missing ), unterminated subpattern"),
        ("unless = 'rehearsal'", "unless = 'rehearsal('", "group[1].unless = 'rehearsal(': missing )"),
        ("(?P<what>quota", "x{99999999999}(?P<what>quota", "the repetition number is too large"),
        pytest.param(
            "(?P<what>quota", "(" * 5000 + "(?P<what>quota", "maximum recursion depth exceeded", id="brackets"
        ),
        ("(?P<what>quota of /\\S+ used up)", "\\d+", None),
        ("[[group]]", "[[groups]]", "unknown key groups"),
        ("[[group.wording]]", "[group.wording]", "expected [[group.wording]]"),
        ("unless = 'rehearsal'", "any_level = 1", "group[1].any_level = 1: expected true or false"),
        ("[[group]]", "[[group]", "Expected"),
    ],
)
def test_a_mistake_in_a_row_is_named_with_its_place(old: str, new: str, words: str | None) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new)
    if words is None:
        assert parse(text, "site.toml")
        return
    with pytest.raises(UserError, match=r"site\.toml") as caught:
        parse(text, "site.toml")
    assert words in caught.value.message
