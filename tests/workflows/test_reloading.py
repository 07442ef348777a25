"""A running session takes up new settings: rules, advice, permissions, polling intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coach import config
from coach.config import Advice, Settings
from coach.config.reload import Follower
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import TargetSnapshot, Watch
from coach.workflows.judging.judge import Context
from coach.workflows.watching.live_session import WatchSession
from coach.workflows.watching.world import World, slurm_sources
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import squeue
from tests.waiting import wait_until
from tests.workflows.watching.test_live_session import RUN, QueueAndDisk, Updates, make_run, sessions

__all__ = ["sessions"]


def test_a_changed_site_file_counts_in_a_running_session(
    sessions: list[WatchSession], tmp_path: Path
) -> None:
    site = tmp_path / "site.toml"
    site.write_text("")
    env = {"COACH_HOME": str(tmp_path), "COACH_SITE": str(site), "COACH_AS_ROOT": "1"}
    settings = config.load(env)
    make_run(settings, RUN)
    taken: list[Settings] = []
    updates = Updates()
    session = WatchSession(
        settings,
        World("slurm", QueueAndDisk(), "me"),
        follower=Follower(settings, env),
        on_settings=taken.append,
    )
    sessions.append(session)
    session.start(updates)
    session.watch(Watch(targets=(RUN,)))

    def threshold() -> float | None:
        last = updates.last
        return (
            last.diagnoses[RUN].thresholds.get("NUM001.consecutive")
            if last and RUN in last.diagnoses
            else None
        )

    def problem() -> str:
        source = session.snapshot.sources.get("config")
        return (source.error if source is not None else None) or ""

    wait_until(lambda: threshold() == 2, 20, "the run is judged")
    site.write_text("readonly = true\n[rules.NUM001]\nconsecutive = 7\n[poll]\nmin_jobs_interval_s = 45\n")
    session.refresh_soon()
    wait_until(lambda: threshold() == 7, 10, "the new threshold is in force")
    assert [(one.is_readonly, one.jobs_interval_s) for one in taken] == [(True, 45.0)]
    site.write_text("[rules.NUM001]\nconsecutive = 'many'\n")
    session.refresh_soon()
    wait_until(lambda: f"{site}:2: rules.NUM001.consecutive" in problem(), 10, "the broken file is told")
    assert threshold() == 7
    site.write_text("")
    session.refresh_soon()
    wait_until(lambda: threshold() == 2 and not problem(), 10, "the mended file is in force")


def test_a_changed_interval_makes_a_new_source() -> None:
    settings = Settings(Path("/r"), Path("/c"), Path("/d"))
    slower = replace(settings, jobs_interval_s=60.0)
    before = slurm_sources(FakeIo(), settings, "me", Watch())
    after = slurm_sources(FakeIo(), slower, "me", Watch())
    assert set(before) & set(after) == {"nodes 60"}


def test_the_pause_that_the_site_demands_holds_also_for_a_job_that_has_just_come() -> None:
    settings = Settings(Path("/r"), Path("/c"), Path("/d"), jobs_interval_s=60.0, least_jobs_interval_s=20.0)
    io = FakeIo()
    sources = slurm_sources(io, settings, "me", Watch())
    (source,) = (make() for name, make in sources.items() if name.startswith("jobs"))
    for ids in ((), ("1",)):
        rows = squeue(*({"job_id": job_id, "user": "me", "state": "PENDING"} for job_id in ids))
        io.answer("jobs", rows)
        list(source.poll())
    assert source.interval_s == 20


def test_muting_and_advice_that_change_while_coach_runs_apply_at_the_next_look() -> None:
    settings = Settings(Path("/r"), Path("/c"), Path("/d"))
    context = Context(settings, FakeIo())
    snapshot = TargetSnapshot(target="17", now_s=None, job=None, run=None, exit=None)

    def judged() -> Diagnosis:
        return context.diagnose(snapshot, History())

    assert "NUM001.consecutive" in judged().thresholds
    context.use(replace(settings, muted_rules=frozenset({"NUM001"})))
    assert "NUM001.consecutive" not in judged().thresholds
    context.use(replace(settings, muted_rules=frozenset({"NUM01"})))
    assert "NUM001.consecutive" in judged().thresholds
    assert "there is no rule 'NUM01'" in (context.problem or "")
    context.use(replace(settings, advice={"NUM001": Advice("x")}))
    assert judged().findings == ()
    assert context.problem is None
