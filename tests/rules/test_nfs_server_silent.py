"""A file server that does not answer: told with its line, until it answers or the training goes on."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import diagnose_whole, run, scan
from tests.rules.recorded import diagnose

SILENT = "nfs: server home01 not responding, still trying\n"
BACK = "nfs: server home01 OK\n"
STEPS = "step 10 loss: 2.30\nstep 20 loss: 2.11\n"
TIMED = "2026-11-21T04:00:00+00:00 node1 kernel: " + SILENT


def of(findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.rule == "ENV024"]


def of_running(text: str, written_s: float | None, now_s: float) -> list[Finding]:
    """What is said of a job that still runs, whose log was last written at `written_s`."""
    lines = tuple(text.splitlines())
    tail = LogTail("train.log", 1, lines, len(text), len(lines), written_s=written_s)
    snapshot = TargetSnapshot("run", now_s, run=run(), log_hits=scan(text), log_tails=(tail,))
    return of(Engine(build()).diagnose(snapshot, History()).findings)


def test_a_server_that_never_answers_is_named_with_its_line_and_what_to_do() -> None:
    (finding,) = of(diagnose("typed/nfs-server-silent.log").findings)
    assert (finding.cause, finding.severity) == ("nfs_server_silent", Severity.WARNING)
    assert finding.summary == "The job waits for its file server: home01 does not answer"
    assert (finding.evidence[0].line, finding.evidence[0].text) == (3, SILENT.strip())
    assert "administrators" in finding.fixes[0].title


def test_a_server_that_answers_again_is_no_trouble_any_more() -> None:
    assert not of(diagnose("typed/nfs-server-back.log").findings)


def test_a_server_that_fell_silent_again_is_told_from_its_newest_silence_on() -> None:
    (finding,) = of(diagnose_whole(STEPS + SILENT + BACK + SILENT).findings)
    assert finding.evidence[0].line == 5


def test_another_servers_answer_does_not_help() -> None:
    (finding,) = of(diagnose_whole(STEPS + SILENT + BACK.replace("home01", "data02")).findings)
    assert "home01" in finding.summary


@pytest.mark.parametrize(
    "text",
    [
        STEPS + SILENT + STEPS,
        STEPS + SILENT + "Training finished\n",
        "# nfs: server home01 not responding, still trying: see the wiki\n" + STEPS,
        "+ grep -c 'nfs: server home01 not responding, still trying' old.log\n0\n",
        "2026-11-21 04:00:00,101 WARNING nfs: server home01 not responding, still trying\n" + STEPS,
        "the server home01 is not responding, still trying\n",
    ],
)
def test_a_training_that_goes_on_does_not_wait(text: str) -> None:
    assert not of(diagnose_whole(text).findings)


def test_a_running_job_must_have_waited_for_a_while() -> None:
    assert not of_running(STEPS + SILENT, written_s=1000.0, now_s=1030.0)
    assert of_running(STEPS + SILENT, written_s=1000.0, now_s=1090.0)


def test_the_time_in_the_line_counts_where_it_has_one() -> None:
    began = scan(TIMED)[0].time_s
    assert began is not None
    assert not of_running(STEPS + TIMED, written_s=began, now_s=began + 30)
    assert of_running(STEPS + TIMED + TIMED, written_s=began + 85, now_s=began + 90)
