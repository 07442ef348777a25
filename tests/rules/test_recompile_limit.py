"""torch.compile that gave a function up: told with the function and the guard that failed, and only worth
knowing."""

from __future__ import annotations

import pytest

from coach.model.judging.finding import Finding, Severity
from tests.rules.examples import diagnose_whole
from tests.rules.recorded import RECORDINGS

OLD = """\
[2024-01-05 14:04:56] torch._dynamo.convert_frame: [WARNING] torch._dynamo hit config.cache_size_limit (64)
[2024-01-05 14:04:56,743] torch._dynamo.convert_frame: [WARNING]    function: 'forward' (/home/u/net.py:32)
   reasons:  ['x == 3']
step 1 loss 0.3
step 2 loss 0.2
"""


def of_log(text: str) -> list[Finding]:
    return [finding for finding in diagnose_whole(text).findings if finding.rule == "TOR005"]


def test_the_function_and_the_guard_that_failed_are_named() -> None:
    (finding,) = of_log((RECORDINGS / "silent/recompile-limit.log").read_text())
    assert (finding.cause, finding.severity) == ("recompile_limit", Severity.INFO)
    assert finding.summary == (
        "torch.compile reached recompile_limit (8) of loss_of, which runs eagerly from there on: "
        "0/7: epoch == 8"
    )
    assert [evidence.line for evidence in finding.evidence] == [9, 10, 11]


def test_the_older_name_of_the_limit_is_known() -> None:
    (finding,) = of_log(OLD)
    assert finding.summary.startswith("torch.compile reached cache_size_limit (64)")
    assert finding.summary.endswith(": ['x == 3']")


def test_a_recompile_limit_is_reported_without_a_reason_from_a_distant_line() -> None:
    far = "step 1 loss 0.3\n" * 20
    (finding,) = of_log(
        f"WARNING torch._dynamo hit config.accumulated_recompile_limit (256)\n{far}{OLD[200:]}"
    )
    assert finding.summary == (
        "torch.compile reached accumulated_recompile_limit (256), which runs eagerly from there on"
    )
    assert len(finding.evidence) == 1


@pytest.mark.parametrize(
    "line",
    [
        "torch._dynamo.config.recompile_limit = 64",
        "# torch._dynamo hit config.recompile_limit (8): see the wiki",
        "   function: 'loss_of' (/home/u/train.py:8)",
        "   last reason: 0/7: epoch == 8",
        'To log all recompilation reasons, use TORCH_LOGS="recompiles".',
        "hit config.recompile_limit",
    ],
)
def test_words_around_a_limit_that_was_not_reached_are_silent(line: str) -> None:
    assert not of_log(f"{line}\nstep 1 loss 0.3\nstep 2 loss 0.2\n")
