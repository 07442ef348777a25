"""A job that ended badly always gets a finding: where no rule knows why, its state, its exit status and its
last error."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogFile, LogTail
from coach.model.training.run import RankExit, RunExit
from coach.rules.engine import Engine
from coach.rules.from_logs.last_error_block import MAX_BLOCK_LINES, last_error_block
from coach.rules.registry import build
from tests.rules.examples import causes, of_a_whole_log, run, scan, tail_of
from tests.rules.recorded import RECORDINGS, read

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/ada/train.py", line 3, in <module>',
    "    main()",
    "TheEnd: the flux capacitor is empty",
)
OF_NO_CLASS = (*TRACEBACK[:-1], "The flux capacitor is empty")
"""A traceback whose last line has no exception's name."""


def tail(*lines: str, file: str = "stderr.log") -> LogTail:
    return tail_of("\n".join(lines) + "\n", file)


def job(state: str, exit_code: int | None = 1, reason: str | None = None) -> Job:
    times = (3, 0, 600, 1.0, 2.0, 5.0)
    return Job("17", "mine", "ada", state, reason, "gpu", "node4", 1, 2, 0, *times, exit_code=exit_code)


def ended(
    state: str, *lines: str, exit_code: int | None = 1, reason: str | None = None, **more: object
) -> TargetSnapshot:
    text = "\n".join(lines) + "\n"
    tails = (tail(*lines, file="train.log"),) if lines else ()
    of = TargetSnapshot("17", 5.0, job=job(state, exit_code, reason), log_hits=scan(text), log_tails=tails)
    return replace(of, **more)  # type: ignore[arg-type]


def found(snapshot: TargetSnapshot) -> list[Finding]:
    return [each for each in Engine(build()).diagnose(snapshot, History()).findings if each.severity > 1]


def only(snapshot: TargetSnapshot) -> Finding:
    (finding,) = found(snapshot)
    assert (finding.rule, finding.cause, finding.severity.word) == ("END001", "unknown_failure", "warning")
    return finding


def test_a_missing_command_is_reported_with_the_last_line_of_stderr() -> None:
    words = "/runs/ddp/job.sh: line 11: mkdir: command not found"
    exit_ = RunExit("FAILED", 127, 5.0, ())
    local = run(state="FAILED", backend="local", launch={"recipe": "ddp"})
    snapshot = TargetSnapshot("run", 5.0, run=local, exit=exit_, log_tails=(tail(words),))
    finding = only(snapshot)
    assert finding.summary == (
        "The job ended as FAILED with exit status 127 (a command was not found); the cause is not "
        "recognised;"
        f" the last error: {words}"
    )
    assert (finding.evidence[0].text, finding.evidence[0].file, finding.evidence[0].line) == (
        words,
        "stderr.log",
        1,
    )
    assert finding.fixes[0].command == "less +1 stderr.log"


@pytest.mark.parametrize(
    "state", ["FAILED", "BOOT_FAIL", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT", "DEADLINE"]
)
def test_no_bad_end_is_left_without_a_finding(state: str) -> None:
    assert found(ended(state, "starting", "step 1"))


def test_the_last_traceback_is_quoted_before_the_exit_status_of_its_launcher() -> None:
    echo = "srun: error: node4: task 0: Exited with exit code 1"
    rest = (*OF_NO_CLASS, echo, "job ended", "disk frob", "good bye")
    finding = only(ended("FAILED", "step 1 loss 2.0", *rest, "x", "y"))
    assert OF_NO_CLASS[-1] in finding.summary
    assert [item.text.strip() for item in finding.evidence[:4]] == [
        OF_NO_CLASS[-1],
        *(line.strip() for line in OF_NO_CLASS[:3]),
    ]


@pytest.mark.parametrize(
    "said",
    [
        "slurmstepd-node1: error: execve(): frobnicator: Permission was lost",
        "the flux capacitor: no such plug",
        "frob: cannot open the plug",
    ],
)
@pytest.mark.parametrize("between", [(), ("good bye",), ("", "frob ended", "good bye")])
def test_sruns_exit_status_is_not_the_last_error_if_an_error_stands_above_it(
    said: str, between: tuple[str, ...]
) -> None:
    echo = "srun: error: node1: task 0: Exited with exit code 2"
    finding = only(ended("FAILED", "starting", said, *between, echo))
    assert finding.summary.endswith(f"the last error: {said}")
    assert only(ended("FAILED", "starting", echo)).summary.endswith(f"the last error: {echo}")


def test_stderr_comes_before_stdout_and_its_last_lines_where_nothing_sounds_like_an_error() -> None:
    logs = (
        tail("all files read", "and good bye", file="stdout.log"),
        tail("one", "", "two", file="stderr.log"),
    )
    finding = only(ended("FAILED", log_tails=logs))
    assert [(item.text, item.file, item.line) for item in finding.evidence[:2]] == [
        ("two", "stderr.log", 3),
        ("one", "stderr.log", 1),
    ]
    assert "its last line: two" in finding.summary


@pytest.mark.parametrize(
    ("exit_code", "reason", "said"),
    [
        (137, None, "exit status 137: signal 9 (SIGKILL)"),
        (3, None, "exit status 3"),
        (126, None, "exit status 126 (the command cannot be executed)"),
        (None, "RaisedSignal:9", "signal 9 (SIGKILL)"),
        (None, "RaisedSignal:53(RTMAX-11)", "signal 53"),
        (192, None, "exit status 192"),
    ],
)
def test_signals_have_their_names(exit_code: int | None, reason: str | None, said: str) -> None:
    finding = only(ended("FAILED", "starting", exit_code=exit_code, reason=reason))
    assert f"ended as FAILED with {said}" in finding.summary


def test_without_a_log_the_finding_names_the_paths_that_were_searched() -> None:
    denied = LogFile("/logs/17.out", True, "/logs/17.out: Permission denied")
    finding = only(ended("FAILED", exit_code=9, log_files=(denied,)))
    assert finding.summary.endswith(
        "exit status 9; the cause is not recognised; its log was not read: /logs/17.out: Permission denied"
    )
    assert ("/logs/17.out: Permission denied", "/logs/17.out") in [
        (item.text, item.file) for item in finding.evidence
    ]
    assert finding.fixes[-1].command == "coach check 17 --log FILE"
    nowhere = only(ended("FAILED", exit_code=9))
    assert nowhere.summary.endswith("the cause is not recognised; no log was found")
    assert "where it writes its log is not known" in [item.text for item in nowhere.evidence]


def test_a_rank_that_ended_is_named() -> None:
    ranks = (RankExit(0, 1, None, None, True), RankExit(1, None, 9, None, False))
    finding = only(ended("FAILED", "starting", exit=RunExit("FAILED", 1, 5.0, ranks)))
    assert "rank 1 ended with signal 9 (SIGKILL)" in [item.text for item in finding.evidence]


@pytest.mark.parametrize(
    "state",
    ["COMPLETED", "CANCELLED", "PREEMPTED", "REVOKED", "RUNNING", "PENDING", "REQUEUED", "COMPLETING"],
)
def test_a_job_that_did_not_fail_has_no_failure(state: str) -> None:
    exit_code = 0 if state == "COMPLETED" else None
    assert "unknown_failure" not in causes(
        Engine(build()).diagnose(ended(state, *TRACEBACK, exit_code=exit_code), History())
    )


def test_end001_withdraws_as_soon_as_another_finding_explains_the_end() -> None:
    engine = Engine(build())
    first = engine.diagnose(ended("FAILED", "starting"), History())
    assert causes(first) == ["unknown_failure"]
    error = "ModuleNotFoundError: No module named 'torchvision'"
    known = ended("FAILED", "starting", *TRACEBACK[:3], error)
    assert causes(engine.diagnose(known, History())) == ["module_not_found"]
    assert causes(engine.diagnose(ended("FAILED", "starting"), History())) == ["unknown_failure"]


def test_a_failure_that_the_recipe_shows_on_purpose_is_explained() -> None:
    snapshot = ended("FAILED", *TRACEBACK[:3], "ModuleNotFoundError: No module named 'torchvision'")
    shown = replace(snapshot, run=run(state="FAILED", expects=("ENV007", "COD001")))
    assert found(shown) == []


def test_a_finding_about_speed_does_not_explain_an_end_and_stands_below_it() -> None:
    snapshot, history = read("input-bound")
    failed = replace(snapshot, job=job("FAILED"))
    told = Engine(build()).diagnose(failed, history).findings
    assert [finding.rule for finding in told if finding.severity > 1] == ["END001", "GPU005"]


@pytest.mark.parametrize(
    "lines",
    [
        ("FATAL: the flux capacitor of the container is empty",),
        ("step 1 loss 2.0", *OF_NO_CLASS),
        ("step 1 loss 2.0", "ERROR: the flux capacitor is empty"),
        ("step 1 loss 2.0", "oops", "srun: error: node1: task 0: Exited with exit code 3"),
        ("thread 'main' panicked at src/main.rs:3:5:", "index out of bounds"),
        (
            "slurmstepd: error: pyxis: the flux capacitor is empty",
            "srun: error: task 0: Exited with exit code 1",
        ),
        ("make: *** [Makefile:3: train] Error 2",),
        ("[rank1]: F1122 10:00:00.000000 12 data.cc:3] Check failed: size > 0",),
    ],
)
def test_a_log_that_ends_with_an_error_is_a_failure(lines: tuple[str, ...]) -> None:
    assert of_a_whole_log(*lines) == ["unknown_failure"]


@pytest.mark.parametrize(
    "below",
    [
        ("epoch 2: accuracy 0.7",),
        ("Retrying in 3 s",),
        ("10%|# | 1/10 [00:01<00:09, 1.0it/s]",),
        ("Training finished",),
        ("===== 12 passed in 3.10s =====",),
    ],
)
@pytest.mark.parametrize(
    "error", [TRACEBACK, ("FATAL: no answer",), ("job.sh: line 3: frob: command not found",)]
)
def test_an_error_with_life_below_it_is_no_failure(error: tuple[str, ...], below: tuple[str, ...]) -> None:
    assert "unknown_failure" not in of_a_whole_log("start", *error, *below)


@pytest.mark.parametrize(
    "lines",
    [
        ("epoch 3", "Error: 0.25"),
        ("test error: 3.1%",),
        ("ERROR:wandb.sdk:retry later",),
        ("Training finished", "error: cannot remove /tmp/x"),
        ("step 9 loss 0.1", "job.sh: line 30: nvidia-smi: command not found"),
        ("step 9 loss 0.1", "Exception ignored in: <function Pool.__del__ at 0x7f>", *TRACEBACK),
        ("step 9 loss 0.1", "Exception in thread Thread-3:", *TRACEBACK),
        ("step 9 loss 0.1", "--- Logging error ---", *TRACEBACK),
        ("done, exit code: 0",),
        ("reading", "error_rate: 3", "0 errors"),
        ("fatal: not a git repository (or any of the parent directories): .git",),
        ("fatal: No names found, cannot describe anything.",),
        (),
        ("",),
    ],
)
def test_words_that_only_sound_like_an_error_are_no_failure(lines: tuple[str, ...]) -> None:
    assert "unknown_failure" not in of_a_whole_log(*lines)


@pytest.mark.parametrize(
    "line",
    [
        "Training will be done on cuda:0",
        "Training is done on 4 GPUs",
        "Training is done with mixed precision",
        "Training can be done in bf16",
        "Training could not be completed",
        "Training hasn't finished",
        "Training finished with exit code 1",
        "Training completed with errors",
        "Training completed only 3 of 10 epochs",
        "The job was not completed successfully",
    ],
)
def test_a_line_about_a_training_that_has_no_good_end_hides_no_error(line: str) -> None:
    assert of_a_whole_log(line, "ERROR: cannot read /data/vocab.txt") == ["unknown_failure"]


@pytest.mark.parametrize(
    "line",
    [
        "Training finished. Best accuracy 0.9",
        "Training complete in 34m 12s",
        "Training completed with a loss of 0.21",
        "training is done!",
        "Training done on 2026-11-21 10:00:01",
        "Training completed (0 failed)",
        "job 17 completed successfully",
    ],
)
def test_a_failed_clean_up_below_a_good_end_is_no_failure(line: str) -> None:
    assert of_a_whole_log(line, "error: cannot remove /tmp/x") == []


def test_the_good_end_of_another_log_of_the_same_target_counts() -> None:
    alone = TargetSnapshot("runs", None, log_tails=(tail("FATAL: no answer"),))
    assert causes(Engine(build()).diagnose(alone, History())) == ["unknown_failure"]
    well = replace(alone, log_tails=(*alone.log_tails, tail("Training finished", file="stdout.log")))
    assert causes(Engine(build()).diagnose(well, History())) == []


@pytest.mark.parametrize("log", sorted((RECORDINGS / "unknown").glob("*.log")), ids=lambda log: log.stem)
def test_recorded_scripts_that_died_and_that_went_on_are_distinguished(log: Path) -> None:
    told = of_a_whole_log(*log.read_text(encoding="utf-8").splitlines())
    cause = "file_not_found" if log.stem == "command-missing" else "unknown_failure"
    assert told == ([] if log.stem.startswith("lived-on-") else [cause])


def test_a_block_is_bounded_and_takes_no_longer_for_long_lines() -> None:
    block = last_error_block(tail(*(f"error: number {i} failed" for i in range(300))))
    assert block is not None
    assert len(block.lines) <= MAX_BLOCK_LINES
    long = TRACEBACK[0], *(f'  File "/a{i}.py", line 1, in f' for i in range(150)), TRACEBACK[-1]
    block = last_error_block(tail(*long))
    assert block is not None
    assert (len(block.lines), block.lines[-1]) == (MAX_BLOCK_LINES, TRACEBACK[-1])
    began_s = time.process_time()
    for piece in ("a: ", "1: ", "exit ", "[1] ", "Error", "x.", " ", "error: 1", "make: ", "\t:"):
        last_error_block(tail(*[piece * 4000] * 50))
    assert time.process_time() - began_s < 20.0  # about 1 s; a quadratic pattern takes minutes


def test_a_line_of_the_log_is_quoted_unchanged_and_cut() -> None:
    said = "error: \x1b[31m[bold]" + "x" * 3000
    finding = only(ended("FAILED", log_tails=(LogTail("train.log", 1, (said,), len(said), 1),)))
    assert len(finding.summary) < 400
    assert len(finding.evidence[0].text) <= 400
    assert "\x1b[31m[bold]" in finding.evidence[0].text


def _beneath(error: str, below: str) -> list[str]:
    return [
        *("start", "Traceback (most recent call last):", '  File "/home/ada/train.py", line 3, in <module>'),
        *("    loss.backward()", f"RuntimeError: {error}"),
        *(below.format(n) for n in range(3000)),
    ]


CUDA = "CUDA error: an illegal memory access was encountered"


def test_the_only_error_of_a_failed_job_is_its_likely_cause_though_thousands_of_lines_follow() -> None:
    (finding,) = found(ended("FAILED", *_beneath(CUDA, "worker {}: flushed a shard")))
    assert (finding.rule, finding.is_primary, finding.confidence) == ("CUD003", True, 0.5)
    assert finding.summary.endswith(": the only error, but 3,000 lines before the end of the log")
    assert finding.evidence[0].line == 5


@pytest.mark.parametrize(
    ("state", "lines"),
    [
        ("COMPLETED", _beneath(CUDA, "worker {}: flushed a shard")),
        ("FAILED", _beneath(CUDA, "step {} loss 0.5")),  # the training went on
        ("FAILED", [*_beneath(CUDA, "a {}"), *_beneath("no such shard", "b {}")]),  # two errors
        ("CANCELLED", _beneath(CUDA, "worker {}: flushed a shard")),
    ],
)
def test_an_error_that_the_program_survived_or_one_of_several_is_no_cause(
    state: str, lines: list[str]
) -> None:
    assert not [each for each in found(ended(state, *lines)) if each.rule == "CUD003" and each.severity > 1]


def test_an_unknown_failure_names_the_only_error_of_its_log_and_does_not_call_it_the_cause() -> None:
    (finding,) = found(ended("FAILED", *_beneath("no such shard", "worker {}: flushed a shard")))
    assert finding.rule == "END001"
    said = "the only error in its log, 3,000 lines before the end: RuntimeError: no such shard"
    assert finding.summary.endswith(f"; the cause is not recognised; {said}")
    assert finding.evidence[0].line == 5
