"""Jobs about which only Slurm's state is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.outcome_words import end_text
from coach.lookback.history import History
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogFile, LogTail
from coach.model.training.run import Run, RunExit
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import causes, run, tail_of

LAUNCH = {"recipe": "ddp"}


def no_log(
    launched: Run | None = None, job: Job | None = None, ended: RunExit | None = None, log: str = ""
) -> list[str]:
    tails = (LogTail("stdout.log", 1, (log,), len(log), 1),) if log else ()
    snapshot = TargetSnapshot("17", 2.0, run=launched, job=job, exit=ended, log_tails=tails)
    return causes(Engine(build()).diagnose(snapshot, History()))


def job(state: str, reason: str | None = None) -> Job:
    times = (3, 0, 600, 1.0, 2.0, 5.0)
    return Job("17", "mine", "user", state, reason, "gpu", "node4", 1, 2, 0, *times)


def test_a_launched_job_that_failed_without_a_word_is_a_finding_that_says_where_to_look() -> None:
    launched = run(state="FAILED", launch=LAUNCH)
    snapshot = TargetSnapshot("run", 2.0, run=launched, job=job("FAILED", "RaisedSignal:53"))
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    assert (finding.rule, finding.cause, finding.subject.node) == ("JOB017", "no_log", "node4")
    said = [item.text for item in finding.evidence]
    assert "state FAILED, reason RaisedSignal:53" in said
    assert any("its folder does not exist" in text for text in said)
    assert [item.file for item in finding.evidence if item.file] == [
        "/runs/.logs/ddp.out",
        "/runs/.logs/ddp.err",
    ]
    assert finding.fixes[0].command == "srun -w node4 ls -ld /runs/.logs"


MISSING = LogFile("/home/ada/logs/17.out", is_found=False)


def foreign(state: str, *files: LogFile) -> TargetSnapshot:
    return TargetSnapshot("17", 2.0, job=job(state), log_files=files)


def test_a_foreign_job_whose_log_was_looked_for_and_not_found_is_a_finding_too() -> None:
    assert causes(Engine(build()).diagnose(foreign("BOOT_FAIL", MISSING), History())) == [
        "slurm_node_fail",
        "no_log",
    ]
    empty = replace(MISSING, path="/home/ada/logs/17.err", is_found=True)
    (finding,) = Engine(build()).diagnose(foreign("LAUNCH_FAILED", MISSING, empty), History()).findings
    said = {item.file: item.text for item in finding.evidence if item.file}
    assert said == {MISSING.path: "looked for here: there is no such file", empty.path: "it is empty"}
    assert finding.fixes[0].command == "srun -w node4 ls -ld /home/ada/logs"


def test_a_log_that_would_lie_in_the_working_directory_names_that_directory_as_the_suspect() -> None:
    gone = replace(foreign("FAILED", MISSING), job=replace(job("FAILED"), work_dir="/home/ada/logs"))
    (finding,) = Engine(build()).diagnose(gone, History()).findings
    assert "working directory (--chdir)" in finding.fixes[0].title
    elsewhere = replace(gone, job=replace(job("FAILED"), work_dir="/home/ada"))
    (finding,) = Engine(build()).diagnose(elsewhere, History()).findings
    assert "working directory" not in finding.fixes[0].title


def test_a_foreign_job_with_an_unknown_or_unreadable_log_does_not_count_as_one_without_a_log() -> None:
    denied = replace(MISSING, is_found=True, problem="/home/ada/logs/17.out: Permission denied")
    for files in ((), (denied,), (MISSING, denied)):
        told = causes(Engine(build()).diagnose(foreign("FAILED", *files), History()))
        assert told == ["unknown_failure"], files


def test_a_launched_job_whose_log_is_there_and_empty_is_not_sent_to_look_for_its_folder() -> None:
    files = tuple(LogFile(f"/runs/ddp/{name}", is_found=True) for name in ("stdout.log", "stderr.log"))
    for backend, commands in (("slurm", ["scontrol", "None"]), ("local", ["None"])):
        launched = run(state="FAILED", launch=LAUNCH, backend=backend)
        ended = RunExit("FAILED", 3, 2.0, (), None)
        snapshot = TargetSnapshot("run", 2.0, run=launched, exit=ended, log_files=files)
        finding = Engine(build()).diagnose(snapshot, History()).findings[0]
        assert (finding.rule, finding.summary) == (
            "JOB017",
            "The job ended with status 3 and printed nothing",
        )
        assert [(each.text, each.file) for each in finding.evidence if each.file] == [
            ("it is empty", file.path) for file in files
        ]
        assert finding.evidence[-1].text.startswith("causes of an empty log")
        assert sorted(str(fix.command).split()[0] for fix in finding.fixes) == sorted(commands)


def test_coachs_own_verdict_in_a_log_is_no_output_of_the_job() -> None:
    verdict = "coach: why: 17  FAILED: it ended with exit status 3\n"
    launched = run(state="FAILED", launch=LAUNCH)
    for said, told in ((verdict, "no_log"), ("starting\n" + verdict, "unknown_failure")):
        snapshot = TargetSnapshot("run", 2.0, run=launched, log_tails=(tail_of(said),))
        assert causes(Engine(build()).diagnose(snapshot, History())) == [told]


def test_a_batch_file_that_slurm_has_forgotten_is_not_sent_to_a_folder_that_it_never_used() -> None:
    launched = run(state="FAILED", launch={"recipe": "job", "own": {"kind": "batch"}})
    links = tuple(LogFile(f"/runs/ddp/{name}", is_found=False) for name in ("stdout.log", "stderr.log"))
    for files in ((), links):
        snapshot = TargetSnapshot("run", 2.0, run=launched, log_files=files)
        (finding,) = Engine(build()).diagnose(snapshot, History()).findings
        assert (finding.rule, finding.summary) == ("JOB017", "The job ended as FAILED and left no log")
        assert not [item.file for item in finding.evidence if item.file]
        assert not [fix for fix in finding.fixes if "ls -ld" in str(fix.command)]
    own = LogFile("/home/ada/logs/17.out", is_found=False)
    snapshot = TargetSnapshot("run", 2.0, run=launched, log_files=(own,), job=job("FAILED"))
    (finding,) = Engine(build()).diagnose(snapshot, History()).findings
    assert finding.fixes[0].command == "srun -w node4 ls -ld /home/ada/logs"


def test_a_run_without_slurm_is_never_told_to_ask_slurm() -> None:
    launched = run(state="FAILED", launch=LAUNCH, backend="local")
    files = (LogFile("/runs/ddp/stdout.log", is_found=False),)
    finding = (
        Engine(build())
        .diagnose(TargetSnapshot("run", 2.0, run=launched, log_files=files), History())
        .findings[0]
    )
    assert finding.rule == "JOB017"
    assert [fix.command for fix in finding.fixes] == ["ls -ld /runs/ddp"]


def test_a_launched_job_with_a_log_that_may_not_be_read_has_not_printed_nothing() -> None:
    denied = LogFile("/runs/ddp/stdout.log", is_found=True, problem="/runs/ddp/stdout.log: Stale file handle")
    launched = run(state="FAILED", launch=LAUNCH)
    snapshot = TargetSnapshot("run", 2.0, run=launched, log_files=(denied,))
    assert causes(Engine(build()).diagnose(snapshot, History())) == ["unknown_failure"]
    never_opened = replace(snapshot, job=replace(job("FAILED"), exit_code=128 + 53))
    (finding,) = Engine(build()).diagnose(never_opened, History()).findings
    assert finding.rule == "JOB017"
    assert finding.fixes[0].command == "srun -w node4 ls -ld /runs/.logs"


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED", "PREEMPTED", "RUNNING", "PENDING", None])
def test_a_job_that_owes_no_explanation_is_not_asked_for_its_log(state: str | None) -> None:
    assert "no_log" not in no_log(run(state=state, launch=LAUNCH))


def test_a_log_and_a_command_that_kept_its_own_output_are_no_missing_log() -> None:
    assert no_log(run(state="FAILED", launch=LAUNCH), log="starting") == ["unknown_failure"]
    assert no_log(run(state="FAILED")) == ["unknown_failure"]


def test_the_rules_that_need_a_log_say_where_it_was_looked_for() -> None:
    denied = LogFile("/o/17.err", is_found=True, problem="/o/17.err: Permission denied")
    diagnosis = Engine(build()).diagnose(foreign("RUNNING", MISSING, denied), History())
    (because,) = {item.because for item in diagnosis.not_measured if item.what == "log"}
    assert because == "/home/ada/logs/17.out: no such file; /o/17.err: Permission denied"


def test_a_job_that_slurm_never_started_was_refused_and_not_ended_by_a_signal() -> None:
    refused = replace(job("FAILED", "BadConstraints"), nodes=None, time_used_s=0, exit_code=129)
    diagnosis = Engine(build()).diagnose(
        TargetSnapshot("17", 2.0, job=refused, log_files=(MISSING,)), History()
    )
    (finding,) = diagnosis.findings
    assert (finding.rule, finding.evidence[1].text) == ("JOB011", "asked for: 1 node, 2 CPUs")
    assert "--exclude" in finding.fixes[0].title  # it may ask for little, of nodes that it leaves out
    assert "[qc]NodeList" in (finding.fixes[0].command or "")
    assert diagnosis.outcome is not None
    assert end_text(diagnosis.outcome) == "Slurm never started it: no node fits its request"
    started = replace(refused, nodes="node4", time_used_s=3)
    again = Engine(build()).diagnose(TargetSnapshot("17", 2.0, job=started, log_files=(MISSING,)), History())
    assert [each.rule for each in again.findings] == ["JOB017"]


def test_a_job_that_missed_its_deadline_before_it_started_ran_into_no_time_limit() -> None:
    waited = replace(job("DEADLINE", "DeadLine"), nodes=None, time_used_s=0)
    (finding,) = Engine(build()).diagnose(TargetSnapshot("17", 9.0, job=waited), History()).findings
    assert finding.rule == "JOB002"
    assert "never ran" in finding.summary
    (fix,) = finding.fixes
    assert "--deadline" in fix.title


def test_a_job_cancelled_for_its_dependency_names_it() -> None:
    waited = replace(
        job("CANCELLED", "DependencyNeverSatisfied"), nodes=None, dependency="afterok:16(failed)"
    )
    (finding,) = Engine(build()).diagnose(TargetSnapshot("17", 2.0, job=waited), History()).findings
    assert finding.rule == "JOB005"
    assert "a job that it depends on did not end as asked (afterok:16(failed))" in finding.summary
    ran = replace(waited, nodes="node4")
    (other,) = Engine(build()).diagnose(TargetSnapshot("17", 2.0, job=ran), History()).findings
    assert "nothing in the program ended it" in other.summary


def test_a_run_that_ended_at_the_signal_before_its_limit_met_the_limit_though_slurm_calls_it_failed() -> None:
    text = (
        "step 100  epoch 0  loss 2.1\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 17 got signal: 10\n"
        "srun: error: node4: task 0: Exited with exit code 1\n"
    )
    signalled = TargetSnapshot(
        "17",
        9.0,
        run=run(state="FAILED"),
        job=job("FAILED"),
        exit=RunExit("TIMEOUT", 1, 5.0, ()),
        log_tails=(tail_of(text),),
    )
    (finding,) = Engine(build()).diagnose(signalled, History()).findings
    assert (finding.rule, finding.cause) == ("JOB002", "slurm_timeout")
    assert finding.summary.startswith("The program ended at Slurm's signal before the time limit")
    assert finding.evidence[0].text == "state TIMEOUT in exit.json"
    failed = replace(signalled, exit=RunExit("FAILED", 1, 5.0, ()))
    assert "slurm_timeout" not in causes(Engine(build()).diagnose(failed, History()))
