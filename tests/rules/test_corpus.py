from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.score_corpus import score
from coach.rules.registry import rule_classes

CORPUS = os.environ.get("COACH_LOG_CORPUS")


@pytest.mark.skipif(not CORPUS, reason="COACH_LOG_CORPUS is not set: the real logs stay outside the project")
def test_real_logs_get_their_cause_and_healthy_ones_none() -> None:
    scores = score(Path(CORPUS or ""))
    causes = {rule.cause for rule in rule_classes()}
    assert not [(item.log, item.found) for item in scores if item.is_healthy and item.found]
    assert not [(item.log, item.found) for item in scores if item.labels[0] in causes and not item.is_right]
    assert not [(item.log, item.found, item.labels) for item in scores if item.found and not item.is_right]
