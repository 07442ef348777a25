from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator

import pytest

from coach.launch.recipe import find_drills, find_recipes
from coach.model.errors import UserError
from coach.rules.documentation import HEADINGS, page_text, rule_page
from coach.rules.registry import build, find, rule_classes
from coach.rules.wordings.rows import shipped
from tests.installed import REPOSITORY

LINE_CHARS = 10_000
LINE_LIMIT_S = 1.0


def search_s(pattern: re.Pattern[str], line: str) -> float:
    """CPU time of one search."""
    start = time.thread_time()
    pattern.search(line)
    return time.thread_time() - start


def test_every_rule_file_is_found_and_no_code_is_used_twice() -> None:
    codes = [rule.code for rule in rule_classes()]
    assert {"MEM001", "MEM007", "NUM001", "GPU003", "GPU005"} <= set(codes)
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("rule", rule_classes(), ids=lambda rule: rule.code)
def test_every_rule_explains_itself_under_five_headings(rule: type) -> None:
    text = page_text(rule_page(rule))
    assert all(f"\n{heading}\n" in text for heading in HEADINGS)


@pytest.mark.parametrize("rule", rule_classes(), ids=lambda rule: rule.code)
def test_every_signature_has_literals_and_a_name_of_its_own(rule: type) -> None:
    assert all(signature.rule == rule.code and signature.literals for signature in rule.signatures)
    names = {signature.name for signature in rule.signatures}
    assert len(names) == len(rule.signatures)
    assert names.isdisjoint(row.name for row in shipped().get(rule.code, ()))


@pytest.mark.parametrize("rule", rule_classes(), ids=lambda rule: rule.code)
def test_a_line_that_repeats_a_rules_own_words_costs_no_time(rule: type) -> None:
    for signature in (*rule.signatures, *shipped().get(rule.code, ())):
        for words in (*signature.literals, " ".join(signature.literals)):
            for before in ("", "Error: "):
                line = (before + words) * (LINE_CHARS // len(before + words))
                # At a quarter of the length a cubic pattern takes a 64th of the time.
                if search_s(re.compile(signature.pattern), line[: LINE_CHARS // 4]) > LINE_LIMIT_S / 64:
                    assert search_s(re.compile(signature.pattern), line) < LINE_LIMIT_S, (
                        signature.name,
                        line[:60],
                    )


def test_a_muted_rule_is_not_built() -> None:
    assert "GPU003" not in [rule.code for rule in build(muted=["GPU003"])]


def test_a_threshold_of_the_config_replaces_the_default_and_is_shown() -> None:
    values = {"warning_share": 0.3}
    rule = next(rule for rule in build({"GPU005": values}) if rule.code == "GPU005")
    assert rule.values["warning_share"] == 0.3
    assert "warning_share = 0.3 of step time (default 0.1)" in page_text(rule_page(type(rule), values))


@pytest.mark.parametrize(
    ("thresholds", "muted", "wrong", "meant"),
    [
        ({"GPU05": {"warning_share": 0.3}}, [], "no rule 'GPU05'", "GPU005"),
        ({"GPU005": {"warnin_share": 0.3}}, [], "no threshold 'warnin_share'", "warning_share"),
        ({"GPU005": {"warning_share": float("nan")}}, [], "expected a number", None),
        ({}, ["nun001"], "no rule 'nun001'", "NUM001"),
    ],
)
def test_a_mistake_in_the_config_is_refused_with_its_place(
    thresholds: dict[str, dict[str, float]], muted: list[str], wrong: str, meant: str | None
) -> None:
    origins = {"rules.GPU05": "c.toml:3", "rules.GPU005": "c.toml:3", "rules.mute": "c.toml:3"}
    with pytest.raises(UserError) as raised:
        build(thresholds, muted, origins)
    assert raised.value.message.startswith("c.toml:3: ")
    assert wrong in raised.value.message
    assert meant is None or meant in (raised.value.hint or "")


def test_a_rule_is_found_by_code_name_or_cause_and_a_slip_gets_a_hint() -> None:
    assert find("mem001") is find("cuda-out-of-memory") is find("cuda_oom")
    with pytest.raises(UserError) as raised:
        find("MEM01")
    assert raised.value.hint == "did you mean MEM001?"


def names_of_recipes() -> set[str]:
    return {recipe.name for found in (find_recipes, find_drills) for recipe in found()[0]}


def texts_beside_a_recipe(source: str) -> Iterator[str]:
    """The texts of each function that reads `.recipe`, and those given as `recipe` in a dictionary or a
    call."""
    for node in ast.walk(ast.parse(source)):
        texts: list[ast.AST] = []
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and any(
            isinstance(each, ast.Attribute) and each.attr == "recipe" for each in ast.walk(node)
        ):
            texts = [node]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            texts = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "recipe"]
        elif isinstance(node, ast.keyword) and node.arg == "recipe":
            texts = [node.value]
        for text in texts:
            yield from (
                each.value
                for each in ast.walk(text)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def test_no_rule_knows_a_recipe_by_its_name() -> None:
    names = names_of_recipes()
    parts = names | {part for name in names for part in name.split("_")}
    assert "data_parallel" in names
    sources = (REPOSITORY / "coach" / "rules").rglob("*.py")
    known = {path.name: parts & set(texts_beside_a_recipe(path.read_text())) for path in sources}
    assert {name: words for name, words in known.items() if words} == {}, "declare it in the recipe's TOML"


def test_a_recipes_name_in_a_rule_is_noticed() -> None:
    by_word = 'def is_uneven(run):\n    return any(word in run.recipe for word in ("pipeline", "3d"))'
    assert {"pipeline", "3d"} <= set(texts_beside_a_recipe(by_word))
    assert "ddp" in set(texts_beside_a_recipe('fix = Fix("x", {"recipe": "ddp"})'))
