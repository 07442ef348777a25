"""The mail filter and the epilog: they add the verdict of a job, and never cost a mail or a node."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.installed import REPOSITORY
from tests.ordinary_user import NOBODY, make_open_directory

HOOKS = REPOSITORY / "site" / "hooks"
SUBJECT = "Slurm Job_id=17 Name=a'b Failed, Run time 00:01:00, FAILED, ExitCode 1"
LINES = "17  FAILED: MEM001 out of memory\n  train.py:12\n  fix: batch_size 32"
FAILED = {"SLURM_JOB_ID": "17", "SLURM_JOB_STATE": "FAILED"}

pytestmark = pytest.mark.root  # the job's user is not the user who calls the hooks


class Site:
    """A site's settings, a mailer that stores its mails, and a coach that a test writes."""

    def __init__(self) -> None:
        self.folder = make_open_directory("hooks")
        self.mail = self.folder / "mail.txt"
        self.verdicts = self.folder / "verdicts"
        self.verdicts.mkdir(mode=0o755)
        self.program("mailer", f'{{ printf "%s\\n" "$@"; echo --; cat; }} > {self.mail}')
        self.coach(f'echo "$(id -u) $*" > {self.folder}/asked/by; cat <<E\n{LINES}\nE\nexit 1')
        (self.folder / "asked").mkdir()
        os.chown(self.folder / "asked", NOBODY, NOBODY)
        self.conf = self.folder / "hooks.conf"
        self.choose()

    def program(self, name: str, body: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def coach(self, body: str) -> None:
        self.program("coach", body)

    def choose(self, *more: str) -> None:
        lines = (f"MAILER={self.folder}/mailer", f"COACH={self.folder}/coach", f"VERDICTS={self.verdicts}")
        self.conf.write_text("\n".join((*lines, "PATIENCE=2", *more)) + "\n")

    def call(
        self, hook: str, *arguments: str, text: str = "", **job: str
    ) -> subprocess.CompletedProcess[str]:
        env = {"COACH_HOOKS_CONF": str(self.conf), "SLURM_JOB_UID": str(NOBODY), **job}
        argv = [HOOKS / hook, *arguments]
        return subprocess.run(argv, env=env, input=text, capture_output=True, text=True, timeout=30)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_mail_about_a_failed_job_has_the_verdict_below_its_text(site: Site) -> None:
    done = site.call("coach-mail", "-s", SUBJECT, "ada", text="Slurm's own text\n", **FAILED)
    assert done.returncode == 0
    assert site.mail.read_text() == f"-s\n{SUBJECT}\nada\n--\nSlurm's own text\n\n{LINES}\n"
    assert (site.folder / "asked" / "by").read_text() == f"{NOBODY} why --ended FAILED 17\n", (
        "asked as the job's user"
    )


def test_the_job_is_known_by_the_subject_where_slurm_says_no_more(site: Site) -> None:
    site.call("coach-mail", "-s", SUBJECT.replace("17", "17_3", 1), "ada")
    assert (site.folder / "asked" / "by").read_text() == f"{NOBODY} why 17_3\n"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda site: site.coach("exit 2"), id="it fails"),
        pytest.param(lambda site: site.coach("trap '' TERM; sleep 60; echo late"), id="it hangs"),
        pytest.param(lambda site: (site.folder / "coach").unlink(), id="it is not there"),
        pytest.param(lambda site: site.coach(f"printf '{'x' * 200000}'"), id="it floods"),
        pytest.param(lambda site: site.coach("echo all; echo is well"), id="the job is healthy"),
    ],
)
def test_if_coach_fails_the_mail_goes_out_as_slurm_wrote_it(
    site: Site, spoil: Callable[[Site], object]
) -> None:
    spoil(site)
    began = time.monotonic()
    done = site.call("coach-mail", "-s", SUBJECT, "ada", text="body\n", **FAILED)
    assert done.returncode == 0
    assert site.mail.read_text() == f"-s\n{SUBJECT}\nada\n--\nbody\n"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("broken", ["if", "exit 3", "MAILER='", "COACH=/nowhere"])
def test_a_broken_file_of_choices_costs_no_mail(site: Site, broken: str, tmp_path: Path) -> None:
    site.choose(broken)
    mailer = site.folder / "mailer"
    hooks = site.folder / "share"
    hooks.mkdir()
    for name in ("coach-mail", "verdict.sh"):
        text = (HOOKS / name).read_text().replace("/usr/bin/mail", str(mailer))
        (hooks / name).write_text(text)
        (hooks / name).chmod(0o755)
    env = {"COACH_HOOKS_CONF": str(site.conf), "SLURM_JOB_UID": str(NOBODY), **FAILED}
    argv = [hooks / "coach-mail", "-s", SUBJECT, "ada"]
    done = subprocess.run(argv, env=env, input="body\n", capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert site.mail.read_text() == f"-s\n{SUBJECT}\nada\n--\nbody\n"


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_controller_that_is_not_root_takes_the_lines_of_the_epilog(site: Site, is_kept: bool) -> None:
    site.mail.touch()
    os.chown(site.mail, NOBODY, NOBODY)
    if is_kept:
        (site.verdicts / "17").write_text(LINES + "\n")
    env = {"COACH_HOOKS_CONF": str(site.conf), "SLURM_JOB_UID": "1000", **FAILED}
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    argv = [*drop, HOOKS / "coach-mail", "-s", SUBJECT, "ada"]
    done = subprocess.run(argv, env=env, input="body\n", capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    words = f"\n{LINES}\n" if is_kept else ""
    assert site.mail.read_text() == f"-s\n{SUBJECT}\nada\n--\nbody\n{words}"
    assert not (site.folder / "asked" / "by").exists(), "it asks no coach in another's name"


@pytest.mark.parametrize("subject", ["Job_id=$(touch x)", "Job_id=../../x", "", "no job"])
def test_a_subject_that_names_no_job_asks_nothing(site: Site, subject: str) -> None:
    assert site.call("coach-mail", "-s", subject, "ada").returncode == 0
    assert not (site.folder / "asked" / "by").exists()
    assert site.mail.read_text().startswith("-s\n")


def test_a_job_that_begins_and_a_job_of_root_are_not_asked_about(site: Site) -> None:
    site.call(
        "coach-mail",
        "-s",
        "Slurm Job_id=17 Name=x Began",
        "ada",
        SLURM_JOB_ID="17",
        SLURM_JOB_STATE="RUNNING",
    )
    site.call("coach-mail", "-s", SUBJECT, "root", **FAILED, SLURM_JOB_UID="0")
    assert not (site.folder / "asked" / "by").exists()


def test_the_epilog_leaves_the_lines_for_the_user_and_says_nothing(site: Site) -> None:
    done = site.call("coach-epilog", SLURM_JOB_ID="17", SLURMD_NODENAME="n1", SLURM_JOB_NODELIST="n1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    kept = site.verdicts / "17"
    assert kept.read_text() == LINES + "\n"
    assert (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (NOBODY, 0o440)
    assert [path.name for path in site.verdicts.iterdir()] == ["17"]


def test_only_the_first_node_asks(site: Site) -> None:
    site.call("coach-epilog", SLURM_JOB_ID="17", SLURMD_NODENAME="n2", SLURM_JOB_NODELIST="n1")
    assert list(site.verdicts.iterdir()) == []


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda site: site.coach("exit 2"), id="coach fails"),
        pytest.param(lambda site: site.coach("trap '' TERM; sleep 60"), id="coach hangs"),
        pytest.param(lambda site: site.verdicts.rmdir(), id="the folder is gone"),
        pytest.param(lambda site: os.chown(site.verdicts, NOBODY, NOBODY), id="the folder is a user's"),
        pytest.param(lambda site: site.choose("if"), id="the choices are broken"),
        pytest.param(lambda site: site.conf.unlink(), id="nothing is chosen"),
        pytest.param(lambda site: site.choose("READERS=no-such-group"), id="the group is unknown"),
    ],
)
def test_an_epilog_never_fails_its_node_and_leaves_nothing_half_done(
    site: Site, spoil: Callable[[Site], object]
) -> None:
    spoil(site)
    began = time.monotonic()
    done = site.call("coach-epilog", SLURM_JOB_ID="17", SLURMD_NODENAME="n1", SLURM_JOB_NODELIST="n1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not site.verdicts.exists() or list(site.verdicts.iterdir()) == []
    assert time.monotonic() - began < 10
