"""The mail filter and the epilog on a real Slurm: the verdict reaches the mail, and no node is drained."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import REPOSITORY, InstalledCoach
from tests.ordinary_user import User
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

HOOKS = REPOSITORY / "site" / "hooks"
TRACEBACK = "#!/bin/bash\n#SBATCH --mail-type=END,FAIL\npython3 -c 'raise ValueError(\"11 classes\")'\n"
HEALTHY = "#!/bin/bash\n#SBATCH --mail-type=END,FAIL\necho step 1 loss 0.5\n"


class Mails:
    """A cluster whose mails land in files, with coach in both hooks."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.box = folder / "mails"
        self.verdicts = folder / "verdicts"
        for place in (folder, self.box, self.verdicts):
            place.mkdir(mode=0o755)
        mailer = folder / "mailer"
        mailer.write_text(f'#!/bin/sh\ncat > "{self.box}/.new.$$"; mv "{self.box}/.new.$$" "{self.box}/$2"\n')
        mailer.chmod(0o755)
        choices = [f"MAILER={mailer}", f"VERDICTS={self.verdicts}", f"COACH={python.parent}/coach"]
        conf = folder / "hooks.conf"
        more = []
        for key, name in (("MailProg", "coach-mail"), ("Epilog", "coach-epilog")):
            hook = folder / name
            hook.write_text(f'#!/bin/sh\nCOACH_HOOKS_CONF={conf} exec {HOOKS / name} "$@"\n')
            hook.chmod(0o755)
            more.append(f"{key}={hook}")
        self.cluster = SlurmCluster(folder / "slurm", num_nodes=2, num_gpus=0, more_conf="\n".join(more))
        home = folder / "slurm" / "home"  # another one than the machine's own passwd says
        choices += [f"export SLURM_CONF={self.cluster.conf}", f"USER_ENV=HOME={home}"]
        conf.write_text("\n".join(choices) + "\n")

    def of(self, job_id: str, words: str) -> str:
        """The text of the mail about this job whose subject has these words."""
        found: list[Path] = []

        def arrived() -> bool:
            found[:] = [
                path for path in self.box.iterdir() if f"Job_id={job_id} " in path.name and words in path.name
            ]
            return bool(found)

        wait_until(arrived, 60, f"the mail of job {job_id}")
        return found[0].read_text()

    def submit(self, user: User, script: str) -> str:
        path = user.home / f"job-{secrets.token_hex(3)}.sh"
        path.write_text(script)
        os.chown(path, user.uid, user.gid)
        done = self.cluster.run(["sbatch", "--parsable", "-N2", path])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def mails(open_directory: Path, bare_python: Path) -> Iterator[Mails]:
    mails = Mails(open_directory / f"mails-{secrets.token_hex(3)}", bare_python)
    mails.cluster.start()
    yield mails
    mails.cluster.stop()


def test_the_mail_of_a_failed_job_says_why_and_the_epilog_keeps_it(mails: Mails) -> None:
    user = mails.cluster.user
    job_id = mails.submit(user, TRACEBACK)
    text = mails.of(job_id, "Failed")
    assert "ValueError: 11 classes" in text
    assert len(text.strip().splitlines()) <= 6
    kept = mails.verdicts / job_id
    wait_until(kept.exists, 30, "the epilog's lines")
    assert kept.read_text().strip().splitlines()[1:] == text.strip().splitlines()[1:]
    mails.cluster.wait_idle()


def test_a_healthy_job_gets_slurm_s_own_mail_alone(mails: Mails) -> None:
    job_id = mails.submit(mails.cluster.user, HEALTHY)
    assert mails.of(job_id, "Ended") == ""
    mails.cluster.wait_idle()
    assert not (mails.verdicts / job_id).exists()


def test_the_mail_of_a_launched_run_holds_the_verdict_that_its_job_kept(
    mails: Mails, bare_python: Path
) -> None:
    user = mails.cluster.user
    (user.home / "broken.py").write_text("raise ValueError('10 classes expected')\n")
    coach = InstalledCoach(bare_python, user, mails.cluster.env)
    words = ("--gpus", "0", "--time", "5:00", "--sbatch", "mail-type=FAIL", "--wait", "--format", "json")
    done = coach("launch", "broken.py", *words, timeout_s=120)
    assert done.returncode == 1, done.stderr
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    text = mails.of(answer["job_id"], "Failed").strip()
    assert "ValueError: 10 classes expected" in text
    assert Path(answer["run_dir"], "verdict.json").exists()
    assert text == coach("why", answer["job_id"]).stdout.strip()
