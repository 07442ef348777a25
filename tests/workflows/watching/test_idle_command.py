"""coach runs the user's own command when GPUs are idle: once per idle period, and only for the user's own
jobs. A failure of the command is reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach.analysis.jobs.idle_gpus import idle_gpus
from coach.config import Settings, Switch
from coach.lookback.history import History
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.model.training.telemetry import GpuSample, ProcessSample
from coach.sources.io import SystemIo
from coach.sources.runs.idle_claims import IdleClaims
from coach.workflows.watching import idle_command
from coach.workflows.watching.idle_command import IdleCommandSource, idle_command_sources, may_run

START_S = 10_000.0
JOB = Job(
    *("17", "train 'x'", "ada", "RUNNING", None, "gpu", "node1"),
    *(1, 2, 1, 5, 5, 10),
    submit_time_s=9000.0,
    start_time_s=9000.0,
    end_time_s=None,
)
NOTE = """#!{python}
import os, sys
names = ("COACH_JOB_ID", "COACH_IDLE_MINUTES", "COACH_NODE", "COACH_NUM_GPUS", "COACH_JOB_NAME")
with open({file!r}, "a") as out:
    out.write("|".join([*sys.argv[1:], *(os.environ[name] for name in names)]) + "\\n")
"""


class Clock(SystemIo):
    """A clock that the test sets."""

    def __init__(self) -> None:
        super().__init__({})
        self.now_s = START_S

    def now(self) -> float:
        return self.now_s


class Session:
    """The data that a session gives to its sources: one target, and the sampler's measurements."""

    def __init__(self, tmp_path: Path, command: tuple[str, ...] | None = None) -> None:
        self.notes = tmp_path / "notes"
        script = tmp_path / "note"
        script.write_text(NOTE.format(python=sys.executable, file=str(self.notes)))
        script.chmod(0o755)
        self.settings = Settings(
            *(tmp_path / name for name in ("runs", "cache", "config")),
            idle_command=command or (str(script), "a b"),
            idle_minutes_of_command=10.0,
        )
        self.io = Clock()
        self.job = JOB
        self.history = History()

    def source(self) -> IdleCommandSource:
        return IdleCommandSource(
            *(self.settings, self.io, "ada", self.picture, lambda target: self.history, {})
        )

    def picture(self) -> Snapshot:
        target = TargetSnapshot("17", self.io.now_s, job=self.job)
        return Snapshot(self.io.now_s, targets={"17": target})

    def measure(self, seconds: int, busy_pct: float = 0.0, every_s: int = 30, **sample: object) -> None:
        """Advance the clock, and add samples of the job's GPU and its shell."""
        for _ in range(seconds // every_s):
            self.io.now_s += every_s
            of_gpu = GpuSample("node1", self.io.now_s, 0, None, utilization_pct=busy_pct, memory_used_mib=3.0)
            of_shell = ProcessSample("node1", self.io.now_s, 7, "bash", cpu_pct=0.0)
            self.history.add_samples([replace(of_gpu, **sample), of_shell])  # type: ignore[arg-type]

    def told(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def looked(source: IdleCommandSource) -> str | None:
    (reading,) = source.poll()
    return reading.error


def test_the_command_is_run_once_with_the_facts_in_its_environment(session: Session) -> None:
    source = session.source()
    session.measure(300, busy_pct=90.0)
    assert looked(source) is None
    session.measure(570)
    looked(source)
    assert session.told() == []
    session.measure(60)
    assert looked(source) is None
    assert session.told() == ["a b|17|10|node1|1|train 'x'"]
    session.measure(3000)
    looked(source)
    assert len(session.told()) == 1


def test_a_second_coach_or_the_next_one_does_not_run_it_again(session: Session) -> None:
    session.measure(900)
    for _ in range(3):
        assert looked(session.source()) is None
    assert len(session.told()) == 1


def test_only_one_of_two_coaches_can_claim_the_same_idle_period(session: Session) -> None:
    one, other = (IdleClaims(session.settings.cache_dir, "c") for _ in range(2))
    assert (one.last_s(JOB), other.last_s(JOB)) == (None, None)
    assert [one.claim(JOB, None), other.claim(JOB, None)] == [True, False]
    last_s = one.last_s(JOB)
    assert last_s is not None
    assert other.claim(JOB, last_s), "the next idle period may be claimed"
    assert one.last_s(replace(JOB, submit_time_s=1.0)) is None


@pytest.mark.parametrize("is_new_coach", [False, True])
def test_the_command_is_run_again_after_the_gpus_worked_and_became_idle_again(
    session: Session, is_new_coach: bool
) -> None:
    source = session.source()
    session.measure(900)
    looked(source)
    (kept,) = (session.settings.cache_dir / "idle-gpus").iterdir()
    os.utime(kept, (session.io.now_s, session.io.now_s))  # imitates the file server's clock
    session.measure(120, busy_pct=50.0)
    looked(source)
    session.measure(660)
    looked(session.source() if is_new_coach else source)
    assert len(session.told()) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda s: setattr(s, "job", replace(JOB, user="bob")),
        lambda s: setattr(s, "job", replace(JOB, state="COMPLETING")),
        lambda s: setattr(s, "job", replace(JOB, num_gpus=2)),
        lambda s: setattr(s, "job", replace(JOB, num_gpus=None)),
        lambda s: setattr(s.io, "now_s", s.io.now_s + 600),
        lambda s: s.measure(30, memory_used_mib=20_000.0),
        lambda s: s.measure(30, memory_used_mib=None),
        lambda s: s.measure(30, utilization_pct=None),
    ],
    ids=[
        "somebody-else",
        "ends",
        "gpu-not-measured",
        "number-of-gpus-unknown",
        "old-samples",
        "memory-in-use",
        "memory-unknown",
        "utilization-unknown",
    ],
)
def test_the_command_is_not_run_for_another_user_s_job_or_if_idleness_is_uncertain(
    session: Session, change: Callable[[Session], object]
) -> None:
    session.measure(900)
    change(session)
    assert looked(session.source()) is None
    assert session.told() == []


@pytest.mark.parametrize("process", [{"cpu_pct": 95.0}, {"gpus": (0,)}, {"gpu_memory_mib": 300.0}])
def test_a_job_with_a_process_that_computes_or_uses_a_gpu_is_not_idle(
    session: Session, process: dict[str, object]
) -> None:
    session.measure(900)
    now_s = session.io.now_s
    quiet = ProcessSample("node1", now_s, 8, "python", cpu_pct=0.0)
    sample = replace(quiet, **process)  # type: ignore[arg-type]
    assert idle_gpus(session.history, 1, now_s) is not None
    session.history.add_samples([sample])
    assert idle_gpus(session.history, 1, now_s) is None


def test_a_new_process_is_not_work_but_without_an_older_one_idleness_is_unknown(
    session: Session,
) -> None:
    session.measure(900)
    now_s = session.io.now_s
    session.history.add_samples([ProcessSample("node1", now_s, 8, "sleep")])
    assert idle_gpus(session.history, 1, now_s) is not None
    session.history.add_samples([ProcessSample("node1", now_s + 1, 8, "sleep")])
    assert idle_gpus(session.history, 1, now_s) is None


def test_gpus_idle_since_the_first_sample_have_no_known_start_of_idleness() -> None:
    history = History()
    history.add_samples([ProcessSample("n", 90.0, 7, "bash", cpu_pct=0.0)])
    history.add_samples(
        [GpuSample("n", t, 0, None, utilization_pct=0.0, memory_used_mib=3.0) for t in (30.0, 90.0)]
    )
    found = idle_gpus(history, 1, 100.0)
    assert found is not None
    assert (found.since_s, found.is_start_seen, found.nodes) == (30.0, False, ("n",))
    assert idle_gpus(History(), 0, 100.0) is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/bin/sh", "-c", "echo no such room >&2; exit 3"), "exit status 3: no such room"),
        (("/nowhere/at-all",), "/nowhere/at-all: No such file or directory"),
        (("/bin/sh", "-c", "sleep 60"), "ended after 0 s"),
    ],
)
def test_a_failing_idle_command_is_reported_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(idle_command, "TIMEOUT_S", 0.2 if "sleep 60" in command else 60.0)
    session = Session(tmp_path, command)
    session.measure(900)
    source = session.source()
    assert looked(source) == f"idle_gpus.command for job 17: {words}"
    session.measure(60)
    assert looked(source) is not None, "the error is shown for a while"
    session.measure(900)
    assert looked(source) is None


def test_the_command_is_not_run_if_coach_cannot_record_that_it_ran(session: Session) -> None:
    session.settings.cache_dir.write_text("a file, where a folder is to be")
    session.measure(900)
    words = looked(session.source())
    assert words is not None
    assert "not run, since it cannot be remembered" in words
    assert session.told() == []


def test_the_idle_command_is_off_when_unset_read_only_or_switched_off_by_the_site(session: Session) -> None:
    settings = session.settings
    assert may_run(settings)
    off = frozenset({Switch.IDLE_COMMAND})
    for held in ({"idle_command": ()}, {"is_readonly": True}, {"switched_off": off}):
        other = replace(settings, **held)  # type: ignore[arg-type]
        assert not may_run(other)
        made = idle_command_sources(other, session.io, "ada", session.picture, lambda name: session.history)
        assert made == {}
    made = idle_command_sources(settings, session.io, "ada", session.picture, lambda name: session.history)
    assert len(made) == 1
