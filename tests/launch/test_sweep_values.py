"""The values of a sweep, as people type them."""

from __future__ import annotations

import pytest

from coach.launch.parameters import Parameter
from coach.launch.sweep_values import combinations, names_several, words_of
from coach.model.errors import UserError

KNOWN = {
    "lr": Parameter("lr", "float", 0.1, "", above=0.0),
    "batch_size": Parameter("batch_size", "int", 8, "", min=1),
    "precision": Parameter("precision", "str", "fp32", "", choices=("fp32", "bf16")),
    "amp": Parameter("amp", "bool", False, ""),
}


def values(name: str, text: str) -> list[object]:
    return [each[name] for each in combinations(KNOWN, {name: text})]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lr", "1e-4, 3e-4,1e-3", [1e-4, 3e-4, 1e-3]),
        ("lr", "1e-4..1e-2*10", [1e-4, 1e-3, 1e-2]),
        ("lr", "0.1..0.3+0.1", [0.1, 0.2, 0.3]),
        ("batch_size", "16..128*2", [16, 32, 64, 128]),
        ("batch_size", "2..5", [2, 3, 4, 5]),
        ("batch_size", "2..9+3", [2, 5, 8]),
        ("precision", "fp32,bf16", ["fp32", "bf16"]),
        ("amp", "true,false,true", [True, False]),
    ],
)
def test_lists_and_ranges_are_read_as_the_values_of_their_type(
    name: str, text: str, expected: list[object]
) -> None:
    assert values(name, text) == expected


def test_each_combination_of_several_parameters_is_a_run_and_the_last_changes_fastest() -> None:
    found = combinations(KNOWN, {"lr": "0.1,0.2", "batch_size": "8,16"})
    assert [words_of(each) for each in found] == ["0.1, 8", "0.1, 16", "0.2, 8", "0.2, 16"]


def test_random_runs_are_the_same_for_the_same_words_and_differ_from_each_other() -> None:
    said = {"lr": "1e-5..1e-1", "batch_size": "8,16"}
    first = combinations(KNOWN, said, 8)
    assert first == combinations(KNOWN, said, 8)
    assert len({words_of(each) for each in first}) == 8
    rates = sorted(float(each["lr"]) for each in first)
    assert 1e-5 <= rates[0] < 1e-3 < rates[-1] <= 1e-1  # even in the logarithm, and not in the value


def test_random_values_of_a_narrow_range_stay_in_it() -> None:
    for each in combinations(KNOWN, {"lr": "0.123451..0.123459"}, 4):
        assert 0.123451 <= float(each["lr"]) <= 0.123459


def test_a_range_may_end_where_the_next_value_would_overflow() -> None:
    assert values("lr", "1..1e308*1e300") == [1.0, 1e300]


@pytest.mark.parametrize("text", ["1..1e999*10", "1..5+1e999", "1..5*1e999", "1e400..1e500"])
def test_a_number_beyond_floating_point_is_refused(text: str) -> None:
    for name in ("lr", "batch_size"):
        with pytest.raises(UserError, match="a number is too large"):
            values(name, text)


def test_random_runs_are_no_more_than_there_are_combinations() -> None:
    assert len(combinations(KNOWN, {"batch_size": "8,16", "amp": "true,false"}, 9)) == 4


@pytest.mark.parametrize(
    ("said", "num_random", "words"),
    [
        ({"rl": "0.1"}, None, "--sweep rl: no such parameter"),
        ({"lr": "0.1,x"}, None, "expected a number"),
        ({"lr": "0,1"}, None, "must be above 0"),
        ({"lr": "1e-4..1e-2"}, None, "a step is missing"),
        ({"lr": "1e-2..1e-4*10"}, None, "the first value must be less than the last"),
        ({"lr": "1e-4..1e-2*1"}, None, "the values do not grow"),
        ({"batch_size": "1..4+0.5"}, None, "1.5 is not a whole number"),
        ({"precision": "1..4"}, None, "a range needs a number"),
        ({"lr": "1..99999+0.01"}, None, "more than 1000 values"),
        ({"lr": "1..9+1", "batch_size": "1..9"}, None, "9 × 9 values: at most 32 runs"),
        ({"lr": "1..9+1"}, 0, "--random 0: must be 1 to 32"),
    ],
)
def test_invalid_values_are_refused_in_one_line(
    said: dict[str, str], num_random: int | None, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        combinations(KNOWN, said, num_random)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "is_several"),
    [
        ("lr", "0.1,0.3", True),
        ("lr", "0.1,x", True),  # the launch says what is wrong with it
        ("batch_size", "16..64*2", True),
        ("precision", "fp32,bf16", True),
        ("lr", "0.1", False),
        ("batch_size", "many", False),
        ("note", "one, two", False),  # any text is a value of it
    ],
)
def test_a_list_or_a_range_that_is_no_value_itself_names_several(
    name: str, text: str, is_several: bool
) -> None:
    known = {**KNOWN, "note": Parameter("note", "str", "", "")}
    assert names_several(known[name], text) == is_several
