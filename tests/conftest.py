"""Fixtures for all tests: a real Slurm, coach as an ordinary user runs it, and a real terminal.

| fixture | is |
|---|---|
| `slurm` | the booted cluster (`SlurmCluster`), repaired after every test; fixtures of wider scope take `slurm_cluster` |
| `site_slurm` | another booted cluster, with a site's habits (`tests/cluster/site_slurm.py`); its nodes do not see the home of its user |
| `user_coach` | `coach(*args)` as an ordinary user of that cluster with a new home; its environment has torch |
| `bare_coach` | the same with coach in an environment without torch; `train_python` is an interpreter with torch |
| `local_coach` | the same on a machine without Slurm: no client and no `slurm.conf`; its environment has torch |
| `open_terminal` | opens a `Terminal`, closed at the end of the test |
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from tests.cluster.processes import with_environment
from tests.cluster.site_slurm import open_reservation, site_cluster
from tests.cluster.slurm import ON_CPUS, SlurmCluster, booted
from tests.ignored_signals import let_children_hear
from tests.installed import (
    SHARED,
    InstalledCoach,
    compile_sources,
    own_environment,
    shared_environment,
    shared_wheel,
)
from tests.ordinary_user import User, make_open_directory, make_user
from tests.own_cache import OwnCache
from tests.requirements import REQUIREMENTS
from tests.terminal.tmux import Terminal

_OWN_CACHE = pytest.StashKey[OwnCache]()
KINDS = ("terminal", "cluster", "train")
_INSTALLS = frozenset(("coach_wheel", "bare_python"))
"""Fixtures that build a wheel or an environment."""

_STARTS = "clean_env"
"""The fixture of tests that start coach's node code as a job does, in processes of its own."""

_SLURM_CLIENTS = re.compile(
    r"s(acct|acctmgr|alloc|attach|batch|bcast|cancel|control|diag|info|prio|queue|report|run|share|stat)"
)


def pytest_configure(config: pytest.Config) -> None:
    """Allow coach to run as root, and keep torch out of the suite's own process: DeepSpeed registers a seeder
    with pytest-randomly that would import torch."""
    let_children_hear()
    keep_bytecode()
    os.environ["COACH_AS_ROOT"] = "1"
    os.environ["LC_ALL"] = "C.UTF-8"  # commands print ASCII where the locale names no UTF-8
    if not hasattr(config, "workerinput"):
        os.environ[SHARED] = str(make_open_directory("coach-shared"))
    with contextlib.suppress(ImportError):
        import pytest_randomly

        pytest_randomly.entrypoint_reseeds = []


def keep_bytecode() -> None:
    """Let this process and the programs that it starts keep compiled modules.

    Container images set PYTHONDONTWRITEBYTECODE. With it, each of hundreds of programs would compile all of
    coach again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(SHARED), ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the requirements of its fixtures, each real one as `real`, and of these `story`
    those that `README.md` names: `make test` runs them. `make test-real` runs the others.

    A test is real if it needs a cluster, a terminal or a training, installs coach, or says so itself. Each
    kind is one group of pytest-xdist and runs in one process, so its tests share the booted programs, and no
    kind waits for another. Tests with a terminal and no cluster are a group of their own (`screens`). Long
    stories at a terminal (`stories`) and trainings on a cluster (`cluster-trainings`) name their groups
    themselves. pytest-xdist starts the six largest groups first, one in each process.

    A real test that fails is tried once more, and so is one that starts node code, because their programs
    share the machine with other tests. The last lines of the output name the tests that were tried twice. A
    test that runs in the suite's own process is never tried twice.
    """
    named = stories()
    for item in items:
        for requirement in REQUIREMENTS:
            if requirement.fixtures.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(requirement.marker)
        kinds = [kind for kind in KINDS if item.get_closest_marker(kind) is not None]
        if kinds:
            group = "screens" if kinds[0] == "terminal" and "cluster" not in kinds else kinds[0]
            # Two markers would make a third group: pytest-xdist joins their names.
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(group))
        installs = not _INSTALLS.isdisjoint(getattr(item, "fixturenames", ()))
        is_real = bool(kinds) or installs or item.get_closest_marker("real") is not None
        if is_real or _STARTS in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if not is_real:
            continue
        item.add_marker("real")
        name = item.nodeid.removeprefix("tests/")
        if name in named or name.partition("[")[0] in named:
            item.add_marker("story")


def stories() -> frozenset[str]:
    """The real tests of `make test`: `FILE::TEST` of each test that `README.md` lists below its file, with
    `[…]` for one case of it."""
    text = (Path(__file__).parent / "README.md").read_text().partition("## Stories")[2]
    found = re.findall(r"^`([^`]+)`$|^- `([^`]+)`$", text, re.MULTILINE)
    files = accumulate((file for file, _ in found), lambda before, file: file or before)
    return frozenset(f"{file}::{test}" for file, (_, test) in zip(files, found, strict=True) if test)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the collected objects from later garbage collections, which saves 7 % of the processor time.
    Then check that no test lost its group.

    Without groups, every process would boot a cluster of its own, and all would train at once.
    """
    gc.collect()
    gc.freeze()
    if session.config.getoption("loadgroup", False):
        lost = [
            item.nodeid
            for item in session.items
            if any(item.iter_markers("xdist_group")) and "@" not in item.nodeid
        ]
        assert not lost, (
            f"pytest-xdist lost the group of {len(lost)} tests; does it know this version of pytest?"
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that cannot run here, with the reason. If the suite must run it (`…=require`), fail it
    instead."""
    for requirement in REQUIREMENTS:
        if item.get_closest_marker(requirement.marker) is not None and (reason := requirement.why_not()):
            if requirement.is_required:
                pytest.fail(f"{requirement.variable}=require, but {reason}", pytrace=False)
            pytest.skip(f"{requirement.marker}: {reason}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note the person's own cache before any test."""
    session.config.stash[_OWN_CACHE] = OwnCache.of(os.environ)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test wrote into the person's own cache: its verdicts would count as runs of that person."""
    if session.config.stash[_OWN_CACHE].changed():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """End the output with the tests that were tried twice, and the number of skipped tests for each
    reason."""
    yield
    for name in terminalreporter.config.stash[_OWN_CACHE].changed():
        words = f"WROTE INTO YOUR CACHE: {name}: a test, or a coach that is open beside the tests"
        terminalreporter.write_line(words, red=True, bold=True)
    twice = {report.nodeid for report in terminalreporter.stats.get("rerun", [])}
    for nodeid in sorted(twice):
        terminalreporter.write_line(f"TRIED TWICE: {nodeid}", yellow=True, bold=True)
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        skipped[reason.removeprefix("Skipped: ")] += 1
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"NOT TESTED: {count} of {reason}", yellow=True, bold=True)
    may_be = {
        report.nodeid
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if "flaky" in getattr(report, "keywords", ())
    }
    if may_be:
        rate_pct = 100 * len(twice) / len(may_be)
        terminalreporter.write_line(
            f"TRIED TWICE in all: {len(twice)} of {len(may_be)} that may be ({rate_pct:.1f} %)"
        )


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cache for the programs that a test starts, so none writes into the person's own. It is made by the
    first of them."""
    monkeypatch.delenv("SCRATCH", raising=False)
    monkeypatch.setenv(
        "XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / f"cache-{secrets.token_hex(4)}")
    )


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restore the signal handlers and the signal mask after each test.

    A command under test that runs in this process may change both. Then SIGPIPE would end a later test, or
    the programs of that test would not receive SIGUSR1.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    numbers = (signal.SIGPIPE, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if handler is not None:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.fixture(scope="session")
def open_directory() -> Iterator[Path]:
    """A temporary directory of the session that every user can enter (pytest's own are closed to others)."""
    directory = make_open_directory("coach-test")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """The cluster of the session. Tests take `slurm`, which repairs the cluster after each test."""
    with booted("coach-slurm", SlurmCluster) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm of three nodes with two GPUs each, idle. A test may kill its daemons, drain its nodes and
    leave its jobs behind."""
    yield slurm_cluster
    slurm_cluster.restore()


@pytest.fixture(scope="session")
def site_slurm_cluster() -> Iterator[SlurmCluster]:
    """The cluster with a site's habits. Tests take `site_slurm`, which repairs it after each test."""
    with booted("coach-site", site_cluster) as cluster:
        open_reservation(cluster)
        yield cluster


@pytest.fixture
def site_slurm(site_slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm whose submit plugin refuses jobs in a site's words. It has two nodes. One is reserved, and
    neither sees the user's home."""
    yield site_slurm_cluster
    site_slurm_cluster.restore()


@pytest.fixture
def user(open_directory: Path) -> Iterator[User]:
    """An ordinary user with a new home, so a test sees no runs, cache or configuration of another test. The
    user's remaining processes are killed at the end."""
    user = make_user(open_directory / f"home-{secrets.token_hex(4)}")
    yield user
    for process in with_environment(f"HOME={user.home}"):
        process.signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def coach_wheel() -> Path:
    """The built wheel of the tree, made once for all processes of the suite."""
    return shared_wheel()


@pytest.fixture(scope="session")
def train_python(request: pytest.FixtureRequest) -> Path:
    """An interpreter that every user can reach, with coach, torch and the frameworks of the recipes."""
    if (own := own_environment()) is not None:
        compile_sources()  # an ordinary user may not keep compiled modules in this checkout
        return own
    wheel: Path = request.getfixturevalue("coach_wheel")
    return shared_environment("venv-train", wheel, extras="train,frameworks,language")


@pytest.fixture(scope="session")
def bare_python(coach_wheel: Path) -> Path:
    """An interpreter that every user can reach, with coach and without torch."""
    return shared_environment("venv-bare", coach_wheel)


@pytest.fixture
def user_coach(slurm: SlurmCluster, user: User, train_python: Path) -> InstalledCoach:
    """coach as an ordinary user of the cluster. Trainings run in coach's own environment."""
    return InstalledCoach(train_python, user, {**slurm.env, **ON_CPUS})


@pytest.fixture
def bare_coach(slurm: SlurmCluster, user: User, bare_python: Path) -> InstalledCoach:
    """coach as an ordinary user of the cluster, in an environment without torch. To train, a test passes
    `train_python` to `--python`."""
    return InstalledCoach(bare_python, user, {**slurm.env, **ON_CPUS})


@pytest.fixture(scope="session")
def path_without_slurm(open_directory: Path) -> Path:
    """A folder for PATH that has the machine's programs, except Slurm's."""
    folder = open_directory / "bin"
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not _SLURM_CLIENTS.fullmatch(program.name):
            (folder / program.name).symlink_to(program)
    return folder


@pytest.fixture
def local_coach(user: User, train_python: Path, path_without_slurm: Path) -> InstalledCoach:
    """coach as an ordinary user of a machine without Slurm: neither a client on the PATH nor a
    configuration."""
    return InstalledCoach(train_python, user, {"PATH": str(path_without_slurm)})


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    """`open_terminal(argv, columns=120, rows=36, env=…, as_user=…)`: a terminal that is closed at the end of
    the test."""
    terminals: list[Terminal] = []

    def open_one(*args: object, **kwargs: object) -> Terminal:
        terminals.append(Terminal(*args, **kwargs))  # type: ignore[arg-type]
        return terminals[-1]

    yield open_one
    for terminal in terminals:
        terminal.close()
