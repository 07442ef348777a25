"""A threshold that the config accepts makes no rule fail; one that a rule cannot use is refused with its
place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from coach.model.errors import UserError
from coach.rules.base import Rule
from coach.rules.blindness import Sight
from coach.rules.from_logs.outcome import judge
from coach.rules.registry import build
from coach.rules.thresholds import LARGEST, check_threshold
from tests.rules.proofs import PROOFS, source

WITH_THRESHOLDS = [rule for rule in build() if rule.thresholds]
TINY = 1e-9
RICH = (
    "hosts/hanging",
    "input-bound",
    "nan",
    "ranks/straggler",
    "ranks/same-samples",
    "slowing-down",
    "foreign/loss-spikes/metrics.csv",
    "foreign/not-learning/metrics.csv",
    "trainer/rate-of-zero.log",
    "slurm/time-limit.log",
    "typed/cuda-oom.log",
)
"""Recordings that hold the measurements of most rules."""


def accepted(rule: Rule) -> Iterator[Mapping[str, float]]:
    """The extreme values that the config accepts, of one threshold and of all together."""
    bounds = {threshold.name: threshold.at_least for threshold in rule.thresholds}
    extremes = [
        bounds,
        {name: least or TINY for name, least in bounds.items()},
        dict.fromkeys(bounds, LARGEST),
    ]
    yield from extremes
    for name in bounds:
        yield from ({name: values[name]} for values in extremes)


@pytest.mark.parametrize("rule", WITH_THRESHOLDS, ids=lambda rule: rule.code)
def test_a_rule_judges_with_every_accepted_threshold(rule: Rule) -> None:
    proof = tomllib.loads(PROOFS.read_text(encoding="utf-8")).get(rule.code, {})
    for name in filter(None, (proof.get("fires"), proof.get("silent"), *RICH)):
        snapshot, history = source(name)
        snapshot = replace(snapshot, outcome=judge(snapshot, history))
        if not Sight.of(snapshot, history).can_judge(rule):
            continue
        for values in accepted(rule):
            for key, value in values.items():
                check_threshold(type(rule), key, value, "config.toml:1")
            list(type(rule)(values, rule.wordings).check(snapshot, history))


@pytest.mark.parametrize("rule", WITH_THRESHOLDS, ids=lambda rule: rule.code)
def test_a_threshold_below_its_least_value_is_refused(rule: Rule) -> None:
    for threshold in rule.thresholds:
        least = threshold.at_least
        assert least <= threshold.default
        below = least / 2 if least else -1.0
        with pytest.raises(UserError) as refused:
            check_threshold(type(rule), threshold.name, below, "config.toml:7")
        assert refused.value.message == (
            f"config.toml:7: rules.{rule.code}.{threshold.name} = {below:g}: expected a number, "
            + (f"at least {least:g}" if least else "not below zero")
        )


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300])
def test_a_threshold_that_no_rule_could_reach_is_refused(value: float) -> None:
    rule = WITH_THRESHOLDS[0]
    name = rule.thresholds[0].name
    with pytest.raises(
        UserError, match=rf"config.toml:7: rules.{rule.code}.{name} = .*: expected a number, "
    ):
        check_threshold(type(rule), name, value, "config.toml:7")
