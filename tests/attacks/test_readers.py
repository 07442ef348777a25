"""Files that a command takes or finds, and that are no files, belong to somebody else, or never end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attacks.mallory import Mallory
from tests.installed import InstalledCoach
from tests.waiting import PATIENCE

MEMORY_BYTES = 2 << 30
"""Address space of a command; coach itself takes a tenth."""


def run(
    coach: InstalledCoach, *args: str, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command of the victim in a folder, with little memory and little time."""
    return subprocess.run(
        coach.user.argv(["prlimit", f"--as={MEMORY_BYTES}", *coach.argv(*args)]),
        env=coach.env(env),
        cwd=folder or coach.user.home,
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
    )


@dataclass(frozen=True)
class Kind:
    """A kind of file: where it lies below the home, and the command that reads it."""

    name: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    """Name of another file → its text; `{home}` is the home."""
    is_refused: bool = True
    """False: the command goes on without it."""
    is_stream: bool = False
    """True: read in parts, however long it is."""


HERE = ("--backend", "local", "--dry-run")
KINDS = (
    Kind(".config/coach/config.toml", ("recipes",)),
    Kind(".config/coach/remembered.toml", ("recipes",), is_refused=False),
    Kind("site.toml", ("recipes",), env={"COACH_SITE": "{home}/site.toml"}),
    Kind("coach.toml", ("launch", "pretrain", *HERE)),
    Kind("coach.toml", ("launch", "coach.toml:pretrain", *HERE)),
    Kind("pyproject.toml", ("recipes",), is_refused=False),
    Kind("own.toml", ("launch", "own.toml", *HERE)),
    Kind("train.py", ("launch", "train.py", *HERE)),
    Kind("job.sh", ("launch", "job.sh", *HERE)),
    Kind("names", ("cohort", ".", "--roster", "names")),
    Kind(
        "words.toml",
        ("check", "log"),
        beside={".config/coach/config.toml": "rules.files = ['{home}/words.toml']\n", "log": "step 1\n"},
    ),
    Kind("day.toml", ("workshop", "check", "day.toml")),
    Kind("cifar.tar.gz", ("data", "fetch", "--file", "cifar.tar.gz"), is_stream=True),
    Kind("seen.coach", ("check", "seen.coach"), is_stream=True),
    Kind("trace.json", ("trace", "trace.json"), is_stream=True),
    Kind("slurm.conf", ("recipes",), env={"SLURM_CONF": "{home}/slurm.conf"}, is_refused=False),
    Kind(
        "conf.yaml",
        ("launch", "train.py", *HERE, "--", "--config", "conf.yaml"),
        beside={"train.py": "print(1)\n"},
        is_refused=False,
    ),
)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _long(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 3 << 30)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        pytest.param(kind, make, id=f"{kind.name}-{kind.args[-1]}-{name}")
        for kind in KINDS
        for name, make in (("pipe", os.mkfifo), ("endless", _endless), ("long", _long))
        if not (kind.is_stream and name == "long")
    ],
)
def test_what_is_no_file_or_too_long_is_refused_in_one_line_at_once(
    local_coach: InstalledCoach, kind: Kind, make: Callable[[Path], None]
) -> None:
    home = local_coach.user.home
    for name, text in (*kind.beside.items(), (kind.name, None)):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            make(path)
            path.parent.chmod(0o755)
        else:
            path.write_text(text.format(home=home))
        os.chown(path, local_coach.user.uid, -1, follow_symlinks=False)
    done = run(local_coach, *kind.args, env={key: each.format(home=home) for key, each in kind.env.items()})
    assert "Traceback" not in done.stderr
    if not kind.is_refused:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2, done.stderr
    problem, *hints = done.stderr.splitlines()
    assert Path(kind.name).name in problem
    assert len(hints) <= 1
    words = " long" if make is _long else "not a file"
    assert words in problem


@pytest.mark.root
def test_a_link_of_another_user_to_my_project_file_launches_nothing_of_hers(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    own = local_coach.user.home / "coach.toml"
    own.write_text("[training.pretrain]\nscript = 'train.py'\n")
    os.chown(own, local_coach.user.uid, -1)
    local_coach.user.home.chmod(0o711)
    mallory.link(Path("coach.toml"), own)
    mallory.write(Path("train.py"), f"open('{marks}/ran', 'w')\n")
    place = f"{mallory.folder}/coach.toml"
    for name in ("pretrain", "coach.toml:pretrain", f"{place}:pretrain"):
        done = run(local_coach, "launch", name, "--backend", "local", "--wait", folder=mallory.folder)
        assert done.returncode == 2, done.stdout
        assert f"{place}: a symbolic link, not a file" in done.stderr
    assert run(local_coach, "recipes", folder=mallory.folder).returncode == 0
    assert list(marks.iterdir()) == []


@pytest.mark.root
def test_a_script_is_looked_for_where_the_opened_project_file_lies(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    project = local_coach.user.home / "project"
    project.mkdir()
    (project / "coach.toml").write_text("[training.pretrain]\nscript = 'train.py'\n")
    os.chown(project / "coach.toml", local_coach.user.uid, -1)
    (project / "train.py").write_text("print('mine')\n")
    mallory.link(Path("there"), project)
    there = f"{mallory.folder}/there/coach.toml:pretrain"
    done = run(local_coach, "launch", there, *HERE, folder=project)
    assert done.returncode == 0, done.stderr
    assert str(project) in done.stdout
    assert str(mallory.folder) not in done.stdout


@pytest.mark.root
def test_files_that_name_programs_count_only_if_they_are_mine_or_roots(
    local_coach: InstalledCoach, mallory: Mallory
) -> None:
    mallory.write(Path("coach.toml"), "[training.pretrain]\ncommand = 'true'\n")
    done = run(local_coach, "launch", "pretrain", *HERE, folder=mallory.folder)
    assert done.returncode == 2
    assert f"{mallory.folder}/coach.toml: belongs to uid 64999, not to nobody" in done.stderr
    config = local_coach.user.home / ".config" / "coach"
    config.mkdir(parents=True)
    theirs = mallory.write(Path("config.toml"), "theme = 'coach-light'\n")
    (config / "config.toml").symlink_to(theirs)
    done = run(local_coach, "recipes")
    assert done.returncode == 2
    assert "config.toml: cannot be read: belongs to uid 64999, not to nobody" in done.stderr


@pytest.mark.root
def test_a_linked_config_of_mine_and_a_recipe_or_script_of_a_colleague_work(
    local_coach: InstalledCoach, mallory: Mallory
) -> None:
    home = local_coach.user.home
    (home / "dotfiles").mkdir()
    own = home / "dotfiles" / "config.toml"
    own.write_text("launch.time = '00:07:00'\n")
    os.chown(own, local_coach.user.uid, -1)
    (home / ".config" / "coach").mkdir(parents=True)
    (home / ".config" / "coach" / "config.toml").symlink_to(own)
    script = mallory.write(Path("train.py"), "print(1)\n")
    (home / "theirs.py").symlink_to(script)
    for name in (str(script), "theirs.py"):
        done = run(local_coach, "launch", name, *HERE)
        assert done.returncode == 0, done.stderr
    assert "00:07:00" in run(local_coach, "config", "--explain", "launch.time").stdout


NINES = "9" * 4500
LARGE = "9" * 400


@pytest.mark.parametrize(
    ("name", "text", "args", "status"),
    [
        (
            "trace.json",
            '{"traceEvents":[{"ph":"X","ts":NUMBER,"dur":1,"name":"x","cat":"kernel"}]}',
            ("trace", "trace.json"),
            None,
        ),
        (
            "train.py",
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', default=NUMBER)\n",
            ("launch", "train.py", *HERE),
            0,
        ),
        ("c.json", '{"lr": NUMBER}', ("launch", *HERE, "--", "python", "-c", "1", "--config", "c.json"), 0),
        (".config/coach/config.toml", "poll.jobs_interval_s = NUMBER\n", ("recipes",), 2),
    ],
    ids=["trace", "argparse", "config file", "settings"],
)
def test_an_integer_of_thousands_of_digits_is_no_traceback(
    local_coach: InstalledCoach, name: str, text: str, args: tuple[str, ...], status: int | None
) -> None:
    path = local_coach.user.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in (NINES, LARGE):
        path.write_text(text.replace("NUMBER", number))
        done = run(local_coach, *args)
        assert "Traceback" not in done.stderr
        assert done.returncode in ((0, 2) if status is None else (status,)), done.stderr


def test_a_variable_with_an_integer_of_thousands_of_digits_is_no_traceback(
    local_coach: InstalledCoach,
) -> None:
    for value in (NINES, LARGE):
        done = run(local_coach, "recipes", env={"COACH_POLL_JOBS_INTERVAL_S": value})
        assert done.returncode == 2
        assert done.stderr.startswith("coach: environment variable COACH_POLL_JOBS_INTERVAL_S")
