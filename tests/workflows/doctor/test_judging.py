"""The verdict of `coach doctor` on each thing that it checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.config import Lock, Settings
from coach.launch.disk_space import Room
from coach.launch.environment_check import EnvironmentCheck
from coach.model.judging.doctor_report import Check, CheckState, Report
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.slurm.cluster import GpuCount, Partition
from coach.sources.machine.disk import Space
from coach.sources.machine.file_clock import Skew, read_skew
from coach.sources.machine.quota import Quota
from coach.sources.machine.terminal import Terminal
from coach.workflows.doctor import course, environments, here, places, slurm

OK, WARNING, WRONG, UNKNOWN = CheckState.OK, CheckState.WARNING, CheckState.WRONG, CheckState.UNKNOWN


def report(*checks: Check) -> Report:
    return Report(checks, 0.1)


def test_the_exit_status_says_if_a_launch_would_work() -> None:
    fine = Check("slurm", "a", OK)
    assert report(fine, Check("gpus", "b", WARNING)).exit_status == 0
    assert report(fine, Check("terminal", "b", UNKNOWN, is_needed=False)).exit_status == 0
    assert report(fine, Check("launch", "b", UNKNOWN)).exit_status == 2
    assert report(Check("launch", "b", UNKNOWN), Check("roots", "c", WRONG)).exit_status == 1


def test_the_doctor_s_verdict_names_the_check_that_decided_it() -> None:
    fine, unsure = Check("slurm", "a", OK), Check("launch", "environment", UNKNOWN)
    wrong = Check("roots", "runs", WRONG)
    assert report(fine).verdict == "all well: a launch works here"
    assert report(fine, unsure).verdict == "cannot tell whether a launch works here: launch (environment)"
    assert report(unsure, wrong).verdict == "one thing does not work here: roots (runs)"
    assert report(wrong, wrong).verdict == "2 things do not work here: roots (runs), roots (runs)"


def test_a_launch_with_a_warning_is_not_all_well() -> None:
    warned = report(Check("slurm", "a", WARNING), Check("launch", "plan of baseline", WARNING))
    assert warned.exit_status == 0
    assert warned.verdict == "nothing fails here, but a launch has a warning: launch (plan of baseline)"
    assert report(Check("slurm", "a", WARNING)).verdict == "all well: a launch works here"


@pytest.mark.parametrize("version", ["19.05.5", "20.11.9", "22.05.8", "23.11.4-1.2ubuntu5", "25.05.0"])
def test_a_slurm_with_all_features_that_coach_needs_passes(version: str) -> None:
    assert {check.state for check in slurm.judge_config({"SLURM_VERSION": version})} == {OK}


def test_an_old_slurm_gets_a_warning_with_the_needed_version_and_setting() -> None:
    *_, lacking = slurm.judge_config({"SLURM_VERSION": "18.08.4", "ClusterName": "old"})
    assert (lacking.state, lacking.because) == (WARNING, "from 19.05 on")
    assert 'launch.gpu_request = "gres"' in (lacking.todo or "")


def test_without_a_version_the_features_of_slurm_are_unknown() -> None:
    assert slurm.judge_config({})[-1].state is UNKNOWN


def test_coach_uses_at_most_a_quarter_of_a_tight_rate_limit() -> None:
    config = {"SlurmctldParameters": "rl_enable,rl_bucket_size=40,rl_refill_rate=4,rl_refill_period=60"}
    tight = slurm.judge_pace(config)
    assert (tight.state, tight.todo) == (OK, None)
    assert tight.value == "40 requests, then 4 every 60 seconds"
    assert "at most 1 RPC/min" in (tight.because or "")
    assert "a quarter" in (tight.because or "")


def test_coach_keeps_its_own_pace_with_slurm_s_default_rate_limit_and_without_one() -> None:
    for config in ({"SlurmctldParameters": "rl_enable"}, {}):
        pace = slurm.judge_pace(config)
        assert pace.state is OK
        assert "at most 24 RPC/min" in (pace.because or "")


@pytest.mark.parametrize(
    ("config", "error", "state", "words"),
    [
        (
            {"AccountingStorageType": "accounting_storage/none", "MinJobAge": "300 sec"},
            "x",
            OK,
            "after 300 sec",
        ),
        (None, "Slurm accounting storage is disabled", OK, "soon forgotten"),
        ({"AccountingStorageType": "accounting_storage/slurmdbd"}, None, OK, "own runs"),
        (None, "sacct: command not found", OK, "own runs"),
        ({}, "sacct: no answer within 3.0 s", WARNING, "no answer"),
    ],
)
def test_without_accounting_coach_still_knows_its_own_runs(
    config: dict[str, str] | None, error: str | None, state: CheckState, words: str
) -> None:
    check = slurm.judge_accounting(config, error)
    assert check.state is state
    assert words in (check.because or "")
    assert not check.is_needed


def test_an_unreadable_queue_is_wrong_and_a_partly_readable_one_a_warning() -> None:
    assert slurm.judge_queue(3, 0, None).state is OK
    assert slurm.judge_queue(3, 1, None).state is WARNING
    refused = slurm.judge_queue(0, 0, "Invalid job format specification: tres-per-task")
    assert (refused.state, refused.because) == (WRONG, "Invalid job format specification: tres-per-task")


def test_gpus_are_listed_by_partition_and_missing_gpus_with_the_reason() -> None:
    def partition(name: str, state: str, *gpus: GpuCount) -> Partition:
        per_node = 4 if gpus else 0
        return Partition(name, False, state, None, None, 2, 2, 8, 0, gpus, per_node)

    up, down = slurm.judge_gpus(
        [
            partition("a", "up", GpuCount("a100", 8, 0)),
            partition("b", "drain", GpuCount(None, 4, 0)),
            partition("c", "up"),
        ],
        {},
    )
    assert (up.what, up.state, up.value) == ("a", OK, "8 × a100")
    assert (down.what, down.state, down.because) == ("b", WARNING, "it is drain")
    (none,) = slurm.judge_gpus([partition("c", "up")], {})
    assert (none.state, none.because) == (WARNING, "Slurm has no GresTypes=gpu")
    assert "node" in (slurm.judge_gpus([], {"GresTypes": "gpu"})[0].because or "")


@pytest.mark.parametrize(
    ("problem", "space", "quota", "state"),
    [
        ("/home is on a read-only file system", None, None, WRONG),
        (None, None, None, OK),
        (None, Space(10**12, 2 * 10**12, 10**6, 10**7), None, OK),
        (None, Space(5 * 10**8, 10**10, None, None), None, WARNING),
        (None, Space(10**6, 10**10, None, None), None, WRONG),
        (None, Space(10**12, 2 * 10**12, 3, 10**7), None, WRONG),
        (None, Space(10**12, 2 * 10**12, None, None), Quota(10**10, 10**10 + 10, 5, None), WRONG),
    ],
)
def test_a_directory_passes_if_it_is_writable_and_has_room(
    problem: str | None, space: Space | None, quota: Quota | None, state: CheckState
) -> None:
    room = Room("/scratch/ada", "runs_root", space, quota, {})
    check = places.judge_place("runs", room, problem)
    assert check.state is state
    assert (check.todo is None) == (state is OK)
    assert "/scratch/ada" in (check.value or "")


def test_a_runs_root_that_is_not_the_first_choice_names_the_rejected_ones() -> None:
    room = Room("/home/ada/coach/runs", "runs_root", None, None, {})
    chosen = (
        "/home/ada/coach/runs (home); passed over: /scratch/ada/coach/runs ($SCRATCH): cannot be written by "
        "you"
    )
    assert "passed over: /scratch" in (places.judge_place("runs", room, None, chosen).because or "")


TERMINAL = Terminal("xterm-256color", 256, "UTF-8", 120, 40, None)


@pytest.mark.parametrize(
    ("terminal", "states"),
    [
        (TERMINAL, [OK, OK, OK]),
        (Terminal("tmux-256color", 2**24, "UTF-8", 80, 24, "tmux"), [OK, OK, OK]),
        (Terminal("dumb", 0, "UTF-8", 80, 24, None), [WRONG, OK, OK]),
        (Terminal("vt220", 0, None, 79, 24, None), [WARNING, WARNING, WARNING]),
        (Terminal("strange", None, "ISO-8859-1", 120, 40, "screen"), [WARNING, OK, WARNING]),
        (Terminal("xterm", 8, "UTF-8", None, None, None), [UNKNOWN]),
    ],
)
def test_a_terminal_is_judged_by_the_needs_of_the_screens(
    terminal: Terminal, states: list[CheckState]
) -> None:
    checks = here.judge_terminal(terminal)
    assert [check.state for check in checks] == states
    assert all(check.todo for check in checks if check.state is not OK)


def test_a_missing_terminal_does_not_fail_the_doctor() -> None:
    (check,) = here.judge_terminal(Terminal(None, 0, None, None, None, None))
    assert not check.is_needed


def test_a_file_server_s_wrong_clock_is_reported_with_its_offset(tmp_path: Path) -> None:
    assert places.judge_skew(tmp_path, read_skew(tmp_path)).state is OK
    assert list(tmp_path.iterdir()) == []
    ahead = places.judge_skew(tmp_path, Skew(90.0, 0.1))
    assert (ahead.state, ahead.value) == (WARNING, f"{tmp_path}: 90.0 s ahead of this machine's")
    close = places.judge_skew(tmp_path, Skew(-1.5, 0.2))
    assert (close.state, close.value) == (OK, f"{tmp_path}: within 1.70 s of this machine's")


def test_clocks_are_not_called_equal_by_a_file_server_that_answers_late(tmp_path: Path) -> None:
    slow = places.judge_skew(tmp_path, Skew(-3.0, 15.0))
    assert (slow.state, slow.value) == (UNKNOWN, f"{tmp_path}: within 18.00 s of this machine's")
    assert slow.because == "its answer took 30 s, too long to compare the clocks"
    assert not slow.is_needed
    assert places.judge_skew(tmp_path, Skew(90.0, 15.0)).state is WARNING


def test_found_environments_name_the_option_that_uses_them() -> None:
    bare, full = environments.Prefix(Path("/c/base"), None), environments.Prefix(Path("/c/torch"), "2.6.0")
    (conda,) = environments.judge_conda([bare, full], 2, has_program=True)
    assert conda.value == "/c/torch (torch 2.6.0); /c/base and 2 more"
    assert conda.todo == "--env conda=/c/torch"
    (without,) = environments.judge_conda([bare], 0, has_program=True)
    assert (without.because, without.todo) == ("there is no torch in them", None)
    (images,) = environments.judge_images([Path("/i/a.sif")], [])
    assert images.todo == "--env apptainer=/i/a.sif"
    assert "on the PATH here" in (images.because or "")


def test_a_configured_environment_that_is_gone_is_wrong_only_when_launches_use_it() -> None:
    gone = Environment(EnvironmentKind.VENV, "pt", path="/sw/pt", origin="/etc/coach/site.toml:4")
    check = EnvironmentCheck(problem="/sw/pt: no such folder", hint="make it")
    used = environments.judge_configured(gone, check, is_used=True)
    assert (used.state, used.value, used.todo) == (
        WRONG,
        "venv=/sw/pt",
        "make it; correct /etc/coach/site.toml:4",
    )
    assert environments.judge_configured(gone, check, is_used=False).state is WARNING


def test_an_environment_with_unknown_torch_asks_for_its_version_in_the_config() -> None:
    modules = Environment(EnvironmentKind.MODULES, "pt", modules=("pytorch/2.6",))
    check = environments.judge_configured(
        modules, EnvironmentCheck(unknown="not checked until the job starts"), True
    )
    assert (check.state, check.value) == (OK, "modules=pytorch/2.6")
    assert 'add its version to [environments.pt], for example torch = "2.6.0"' in (check.todo or "")
    known = environments.judge_configured(modules, EnvironmentCheck(torch="2.6.0"), True)
    assert (known.value, known.todo) == ("modules=pytorch/2.6, torch 2.6.0", None)


def test_keys_without_effect_and_locked_keys_are_reported(tmp_path: Path) -> None:
    settings = Settings(
        runs_root=tmp_path,
        cache_dir=tmp_path,
        config_dir=tmp_path,
        notes=("config.toml:3: partition is ignored",),
        locks={"launch.partition": Lock("exam week", "site.toml:9")},
    )
    files, note, locked = here.judge_config(settings)
    assert files.value == "no file: every value is a default"
    assert (note.state, note.because) == (WARNING, "config.toml:3: partition is ignored")
    assert locked.value == "launch.partition"


@pytest.mark.parametrize(
    ("config", "is_there", "state", "words"),
    [
        ({"MailProg": "/usr/bin/mail"}, True, OK, "by /usr/bin/mail"),
        ({"MailProg": "/usr/bin/mail"}, False, CheckState.UNKNOWN, "not on this machine"),
        ({"MailProg": "/bin/true"}, True, WARNING, "a job that ends sends no mail"),
        ({}, False, WARNING, "not set"),
    ],
)
def test_a_slurm_without_a_mail_program_gets_a_warning_and_another_way(
    config: dict[str, str], is_there: bool, state: CheckState, words: str
) -> None:
    check = slurm.judge_mail(config, lambda program: is_there)
    assert check.state is state
    assert words in f"{check.value} {check.because}"
    assert check.todo
    assert not check.is_needed


def test_a_site_that_forbids_training_on_the_login_node_is_reported(tmp_path: Path) -> None:
    settings = Settings(runs_root=tmp_path, cache_dir=tmp_path, config_dir=tmp_path)
    check = here.judge_permission(settings, "switched off by the site (site.toml:2)")
    assert (check.state, check.because) == (WRONG, "switched off by the site (site.toml:2)")


def test_the_shared_folder_and_the_roster_are_checked(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert course.judge_share("roots", str(tmp_path)).state is OK
    tmp_path.chmod(0o777)
    unsafe = course.judge_share("roots", str(tmp_path))
    assert (unsafe.what, unsafe.state) == ("shared folder", WRONG)
    assert "could replace" in (unsafe.because or "")
    assert course.judge_share("roots", str(tmp_path / "nowhere")).state is WRONG
    roster = tmp_path / "people"
    settings = Settings(tmp_path, tmp_path, tmp_path, roster=roster)
    assert course.judge_roster("roots", settings).state is WARNING
    roster.write_text("ada\nbob\n")
    assert course.judge_roster("roots", settings).value == f"{roster}: 2 names"
