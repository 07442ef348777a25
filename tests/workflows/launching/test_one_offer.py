"""The command and the screens offer the same launch for the same finding."""

from __future__ import annotations

from pathlib import Path

from coach.config import Settings
from coach.sources.io import SystemIo, scrubbed_environment
from coach.tui.live_ports import LiveFixes, Reach
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from tests.cli.test_fix import PARENT, Shell


class FrontEnds:
    """One run with a NaN loss, and its fix as each front end would launch it."""

    def __init__(self, root: Path) -> None:
        self.shell = Shell(root)
        self.shell.run(PARENT, {"lr": 1000.0})
        self.settings = Settings(root / "runs", root / "cache", root)
        self.io = SystemIo(scrubbed_environment(self.shell.env))
        self.checked: Checked = Checker(self.settings, self.io).target(PARENT)

    def on_the_screen(self, is_trial: bool = False) -> RelaunchOffer:
        checked = self.checked
        assert checked.snapshot.run is not None
        fixes = LiveFixes(Reach(self.settings, self.shell.env))
        finding = checked.diagnosis.findings[0]
        return fixes.offer_fix(
            checked.snapshot.run, finding, finding.fixes[0], checked.snapshot, checked.history, is_trial
        )

    def by_the_command(self, *options: str) -> list[str]:
        done = self.shell.coach(PARENT, "--dry-run", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def test_both_front_ends_plan_the_same_launch_for_the_same_finding(tmp_path: Path) -> None:
    front_ends = FrontEnds(tmp_path)
    offered = front_ends.on_the_screen()
    assert any(name == "lr" for name, _, _ in offered.changes)
    assert front_ends.by_the_command() == [line.expandtabs() for line in offered.lines]


def test_a_trial_is_as_short_on_the_screen_as_by_the_command(tmp_path: Path) -> None:
    front_ends = FrontEnds(tmp_path)
    offered = front_ends.on_the_screen(is_trial=True)
    assert offered.plan.parameters["max_steps"] == 39, "no more than the whole run took"
    assert front_ends.by_the_command("--trial") == [line.expandtabs() for line in offered.lines]
