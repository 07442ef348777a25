from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.analysis.comparing.two_runs import compare
from coach.config import Settings
from coach.model.snapshot import Snapshot, Watch
from coach.recorder import open_recording
from coach.tui.app import CoachApp
from coach.tui.mode import Mode
from coach.tui.wiring import demo_recording_path, open_recorded
from coach.workflows.watching.live_session import WatchSession
from coach.workflows.watching.recording import open_replay
from tests.waiting import wait_until


class Clock:
    """Goes on only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Player:
    """The demo, played as far as the test says."""

    def __init__(self, settings: Settings) -> None:
        recording = open_recording(demo_recording_path())
        self.length_s = recording.end_s - recording.header.time_s
        self.clock = Clock()
        self.told: list[Snapshot] = []
        self.session: WatchSession = open_replay(demo_recording_path(), settings, clock=self.clock)
        self.session.start(self.told.append)

    @property
    def now(self) -> Snapshot:
        return self.told[-1] if self.told else self.session.snapshot

    def follow_all(self) -> None:
        wait_until(lambda: self.now.runs, 10, "runs are listed")
        self.session.watch(Watch(targets=tuple(run.run_id for run in self.now.runs)))

    def go_to(self, seconds: float) -> None:
        self.clock.now_s = seconds
        self.session.refresh_soon()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path / "config")


@pytest.fixture
def player(settings: Settings) -> Iterator[Player]:
    player = Player(settings)
    yield player
    player.session.stop()


def test_a_newcomer_sees_a_whole_cluster_from_the_first_moment(player: Player) -> None:
    wait_until(lambda: player.now.nodes and player.now.jobs, 5, "nodes and jobs")
    assert len(player.now.nodes) >= 3
    assert len(player.now.partitions) >= 2
    waiting = {job.reason for job in player.now.jobs if job.state == "PENDING"}
    assert {"Resources", "Dependency", "BeginTime"} <= waiting
    wait_until(lambda: [run.state for run in player.now.runs] == ["RUNNING"] * 2, 5, "two runs, which go on")


def test_the_demo_shows_a_finding_its_fix_and_the_result_of_the_fix(player: Player) -> None:
    player.go_to(player.length_s + 1)
    wait_until(lambda: len(player.now.runs) == 4, 10, "all runs")
    player.follow_all()
    (child,) = (run for run in player.now.runs if run.parent_run_id)
    parent = child.parent_run_id or ""
    wait_until(lambda: len(player.now.diagnoses) == 4, 10, "all runs are judged")
    wait_until(lambda: player.now.diagnoses[child.run_id].state == "COMPLETED", 10, "the child's end")
    wait_until(lambda: player.now.diagnoses[parent].findings, 10, "the parent's finding")
    (finding, *_) = player.now.diagnoses[parent].findings
    assert (finding.rule, finding.is_primary, finding.fixes[0].changes["lr"]) == ("NUM001", True, 0.01)
    assert player.now.diagnoses[parent].state == "CANCELLED"
    assert player.now.diagnoses[child.run_id].findings == ()
    assert child.fix is not None
    assert child.fix.rule == "NUM001"
    targets, history = player.now.targets, player.session.history
    told = compare(targets[parent], history(parent), targets[child.run_id], history(child.run_id))
    assert any("lr" in change for change in told.changes)
    (loss,) = (row for row in told.rows if row.because and "NaN" in row.because)
    assert loss.verdict == "better"


def test_the_trainings_on_stand_in_devices_are_measured_and_judged(player: Player) -> None:
    header = open_recording(demo_recording_path()).header
    named = {each.name: each for each in header.chapters}
    healthy, starved = named["healthy"].target or "", named["input"].target or ""
    player.go_to(named["nan"].at_s)
    player.follow_all()
    wait_until(lambda: {healthy, starved} <= player.now.diagnoses.keys(), 10, "both are judged")
    wait_until(lambda: player.now.diagnoses[starved].findings, 10, "one waits for its data")
    assert player.now.diagnoses[healthy].findings == ()
    assert player.now.diagnoses[starved].findings[0].rule == "GPU005"
    for run_id, num_gpus in ((healthy, 1), (starved, 2)):
        history = player.session.history(run_id)
        newest = [history.gpu(*key)[-1] for key in history.gpus]
        assert [gpu.name for gpu in newest] == ["A100 stand-in"] * num_gpus
        assert all(len(history.gpu(*key)) >= 5 for key in history.gpus)
        assert len(history.steps(0)) >= 40
    losses = [step.loss for step in player.session.history(healthy).steps(0) if step.loss is not None]
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])


def test_the_finding_appears_while_its_run_goes_on(player: Player) -> None:
    def is_found() -> bool:
        return any(
            diagnosis.state == "RUNNING" and any(each.rule == "NUM001" for each in diagnosis.findings)
            for diagnosis in player.now.diagnoses.values()
        )

    chapters = open_recording(demo_recording_path()).header.chapters
    player.go_to(next(each.at_s for each in chapters if each.name == "nan") + 1)
    wait_until(lambda: len(player.now.runs) == 3, 10, "the broken run")
    player.follow_all()
    wait_until(is_found, 10, "a finding on a running run")


async def test_the_screens_play_it_under_its_watermark_and_write_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    app = CoachApp(open_recorded(settings, demo_recording_path(), Mode.DEMO), time.monotonic)
    async with app.run_test(size=(120, 36)) as pilot:

        def text() -> str:
            return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

        async def sees(*words: str) -> None:
            deadline = time.monotonic() + 20
            while not all(word in text() for word in words):
                assert time.monotonic() < deadline, text()
                await pilot.pause(0.05)

        await sees("node3", "train_small", "DEMO", "1/6 a cluster at work")
        # A step moves the cursor to the job of the caption, and no other key is accepted.
        for number in ("2/6", "3/6"):
            await pilot.press("full_stop")
            await sees(number)
        await sees("train_big")
        await pilot.press("enter")
        await sees("› run train_big", "3/6", "D shows its idle GPUs")
        await pilot.press("escape", "escape")
        await sees("queue")
        assert "3/6" not in text()
        await pilot.press("full_stop")
        await sees(". is no key")
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_it_names_the_machine_that_made_it() -> None:
    recording = open_recording(demo_recording_path())
    assert recording.header.is_anonymized
    text = gzip.decompress(demo_recording_path().read_bytes()).decode()
    for word in ("/tmp", "/root", "/work", "nobody"):
        assert word not in text
