"""Every command, with hostile text in every part of a cluster, runs, logs, recipes and settings that another
user may write."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from coach.cli import COMMANDS, guarded, run_command
from coach.launch.recipe import data_dir
from coach.sources.machine.user import user_name
from tests.hostile import CONTROLS, HOSTILE, LONG, MARKUP, assert_harmless, poisoned
from tests.json_documents import check_printed

RECORDINGS = Path(__file__).parent / "recordings"
RUN, OTHER = "20261121-043902-baseline-bca6", "20261121-043902-baseline-0002"
FIRST = CONTROLS + MARKUP
"""For what stands in lines: without an end of line of its own."""

CLIENT = """#!{python} -SE
import json, os, sys
first = {first!r}
texts, me, program = json.load(open({table!r})), {me!r}, os.path.basename(sys.argv[0])
words = sys.argv[1:]
def say(text):
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
KNOWN = dict(state="RUNNING", numnodes="1", numcpus="4", numtasks="1", timeused="1:00", timeleft="9:00", timelimit="10:00",
    submittime="2026-11-21T12:00:00", starttime="2026-11-21T12:00:01", endtime="N/A", exit_code="0", prioritylong="7", restartcnt="0",
    requeue="1", nodelist="node1", workdir="/tmp", JobIDRaw="", User=me, State="FAILED", NNodes="1", NCPUS="4", ElapsedRaw="60",
    TimelimitRaw="10", Submit="2026-11-21T12:00:00", Start="2026-11-21T12:00:01", End="2026-11-21T12:01:01", ExitCode="1:0",
    TotalCPU="00:10", MaxRSS="10M", NTasks="1", AllocTRES="cpu=4", ReqTRES="cpu=4", ReqMem="1G", TRESUsageInTot="")
if program == "squeue":
    columns = [column.partition(":") for column in words[-1].split(",")]
    for number, text in enumerate(texts):
        job = dict(KNOWN, jobarrayid=str(100 + number), jobid=str(100 + number), username=me if number % 3 else text)
        if number % 2:
            job.update(state="PENDING", nodelist="")
        say("".join(job.get(name, "" if name.startswith("tres") else text) + end for name, _, end in columns) + "\\n")
elif program == "sacct" and "--delimiter" in words:
    columns, end = words[-1].split(","), words[words.index("--delimiter") + 1]
    for number, text in enumerate(texts):
        row = dict(KNOWN, JobID=str(200 + number))
        say("".join(row.get(name, text) + end for name in columns) + "\\n")
elif program == "sprio":
    pieces = words[-1].split("%")
    for number, text in enumerate(texts):
        row = dict(i=str(100 + number), u=me, r=text, T=text)
        say("".join(row.get(piece[:1], "5") + piece[1:] for piece in pieces[1:]) + "\\n")
elif program == "sshare":
    say("Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare\\n")
    say(f"{{first}}|{{me}}|{{first}}|0.5|10|0.5|0.5\\n")
elif program == "sacctmgr":
    columns = words[-1].partition("=")[2].split(",")
    say("|".join(columns) + "\\n" + "|".join(first for _ in columns) + "\\n")
elif program == "scontrol" and "nodes" in words:
    for number, text in enumerate(texts):
        say(f"NodeName=node{{number}} CPUAlloc=1 CPUTot=16 RealMemory=64000 AllocMem=100 Gres=gpu:a100:2 GresUsed=gpu:a100:0(IDX:N/A) "
            f"State=IDLE+DRAIN Partitions={{text.split()[0]}} Comment={{text}} Reason={{text}} [{{me}}@2026-11-21T12:00:00]\\n")
elif program == "scontrol" and "partitions" in words:
    for number, text in enumerate(texts):
        say(f"PartitionName={{text.split()[0]}} AllowAccounts={{text}} AllowQos=ALL Default=NO State=UP MaxTime=1-00:00:00 "
            f"TotalNodes=1 Nodes=node{{number}} TotalCPUs=16\\n")
elif program == "scontrol" and "reservations" in words:
    for text in texts:
        say(f"ReservationName={{text}} StartTime=2026-11-21T12:00:00 EndTime=2026-11-22T12:00:00 Nodes=node1 NodeCnt=1 State=ACTIVE Users={{text}}\\n")
elif program == "scontrol" and "jobs" in words:
    for number, text in enumerate(texts):
        say(f"JobId={{100 + number}} JobName={{text}}\\n   UserId={{me}}(0)\\n     Nodes=node1 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:0)\\n\\n")
elif program == "scontrol" and "ping" in words:
    say("Slurmctld(primary) at " + first + " is UP\\n")
else:
    sys.stderr.write(program + ": error: " + first + "\\n")
    sys.exit(1)
"""

_CONFIGURED = [
    ["SCRIPT", "--backend", "local", "--dry-run", "--set", "batch_size=4", "--", "--config", config]
    for config in ("PATHS", "BASES", "RAW")
]
"""An own program with a config file that is copied, and with some that are refused and shown as a diff."""
INVOCATIONS: dict[str, list[list[str]]] = {
    "init": [["--dry-run"]],
    "launch": [
        ["OWN", "--backend", "local", "--dry-run"],
        ["OWN", "--dry-run", "--format", "json"],
        [FIRST],
        *_CONFIGURED,
    ],
    "drill": [[], ["--format", "json"], [FIRST], [RUN, "--give-up"], ["typo", "--answer", FIRST]],
    "fix": [
        [RUN, "--list"],
        [RUN],
        [RUN, "--list", "--format", "json"],
        [RUN, "--dry-run"],
        [FIRST, "--list"],
    ],
    "cohort": [["SHARED"], ["SHARED", "--format", "json"], [FIRST], ["SHARED", "--group", FIRST]],
    "recipes": [[], ["OWN"], ["OWN", "--diff"], ["OWN", "--format", "json"], [MARKUP]],
    "ladder": [[], ["--format", "json"], [MARKUP], ["OWN"]],
    "data": [[], ["--format", "json"]],
    "runs": [[], ["--format", "json"], ["clean", "--keep", "1"]],
    "jobs": [
        *([], ["--all"], ["--all", "--why"], ["--unfold"], ["--all", "--format", "json"], ["name:" + MARKUP]),
        ["--all", "--columns", "id,user,state,reason,name"],
    ],
    "history": [
        *([], ["--days", "3650", "--limit", "50"], ["--days", "3650", "--format", "json"]),
        ["--days", "3650", "--columns", "id,state,reason,end,name", "--format", "json"],
    ],
    "nodes": [
        *([], ["--gpus"], ["--format", "json"], ["--gpus", "--format", "json"]),
        *(["--reserved"], ["--reserved", "--format", "json"]),
        ["--columns", "name,state,gpu,part,reason", "--format", "json"],
    ],
    "partitions": [[], ["--format", "json"]],
    "check": [
        ["RUN"],
        ["RUN", "--format", "json"],
        ["LOG"],
        ["LOG", "--format", "json"],
        [],
        ["101"],
        [FIRST],
    ],
    "why": [
        *(["RUN"], ["RUN"], ["RUN", "--format", "json"], ["LOG"], []),
        *(["--write-verdict", "RUN"], ["101"], [FIRST]),
        ["--ended", "FAILED", "101"],
    ],
    "ticket": [["RUN"], ["LOG", "-o", "NEW", "--yes"], ["101", "--format", "json"], ["104"], [FIRST]],
    "watch": [["RUN", "OTHER"], ["RUN", "--format", "json"], ["LOG"], [FIRST]],
    "explain": [[], ["MEM001"], [FIRST]],
    "compare": [
        *(["RUN", "OTHER"], ["RUN", "OTHER", "--format", "json"], ["RUN", "--format", "json"]),
        [FIRST, FIRST],
    ],
    "cancel": [["--dry-run", "101"], ["--dry-run", RUN], [FIRST]],
    "hold": [["--dry-run", "101"], [FIRST]],
    "release": [["--dry-run", "101"], [FIRST]],
    "requeue": [["--dry-run", "104"], [FIRST]],
    "timelimit": [["5", "--dry-run", "101"], [FIRST, "101"]],
    "resubmit": [["--dry-run", "104"], ["--dry-run", RUN], [FIRST]],
    "resume": [["--dry-run", RUN], ["--dry-run", FIRST]],
    "shell": [["--dry-run", "104"], [FIRST]],
    "attach": [["--dry-run", "104"], ["--dry-run", "101"], [FIRST]],
    "trace": [["TRACE"], ["TRACE", "--format", "json"], ["RUN"], [FIRST]],
    "stacks": [["--dry-run", "104"], ["--dry-run", RUN], [FIRST]],
    "doctor": [["--backend", "slurm"], ["--backend", "slurm", "--format", "json"]],
    "workshop": [["example"], ["check", "TOML"], ["check", FIRST]],
    "config": [
        *([], ["--explain"], ["--explain", FIRST], ["--format", "json"]),
        *(["--check", "TOML"], ["--check", "RULES"]),
    ],
    "record": [["/nowhere/" + MARKUP, "--for", "0.1"]],
    "run": [["--run-dir", "NEW", "--", "true"]],
    "sample": [["--once"]],
}
"""How each command is tried: a new one has to be added here. Words in capitals stand for paths of the
test."""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home, a cluster and two runs of an attacker who wants to take over the terminal."""
    clients, home = tmp_path / "bin", tmp_path / "home"
    clients.mkdir()
    table = tmp_path / "texts.json"
    table.write_text(json.dumps(HOSTILE))
    text = CLIENT.format(python=sys.executable, table=str(table), me=user_name(), first=FIRST)
    for name in ("squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "sprio", "sshare", "sbatch", "scancel"):
        (clients / name).write_text(text, encoding="utf-8")
        (clients / name).chmod(0o755)
    home.mkdir()
    runs = home / "runs"
    for run_id, source in ((RUN, "nan"), (OTHER, "healthy")):
        run_dir = runs / run_id
        shutil.copytree(RECORDINGS / source, run_dir)
        for name in ("run.json", "exit.json"):
            path = run_dir / name
            record = poisoned(json.loads(path.read_text()), FIRST)
            kept = {"schema": 1, "state": "FAILED", "recipe": FIRST + "baseline", "run_id": run_id}
            path.write_text(json.dumps({**record, **kept}))
        with (run_dir / "stdout.log").open("ab") as log:
            log.write(b"healthy line\n" * 1000)  # with a NUL near its beginning it would be no text
            log.writelines(_log_line(words) for words in HOSTILE)
    own = tmp_path / "own"
    own.mkdir()
    recipe = (data_dir() / "recipes" / "baseline.toml").read_text()
    words = json.dumps(FIRST)[1:-1]
    for key in ("title", "summary", "teaches", "expect", "duration"):
        recipe = re.sub(rf'\n{key} = ("""\\\n|")', lambda begins: begins[0] + words, recipe, count=1)
    (own / "own.toml").write_text(
        recipe.replace('key = "1"\n', "").replace('name = "baseline"', 'name = "own"')
    )
    shutil.copy(data_dir() / "trainers" / "baseline.py", own / "baseline.py")
    (home / "config.toml").write_text(f'[launch]\naccount = "{MARKUP}"\n')
    site = tmp_path / "site.toml"
    site.write_text(f'[advice.NUM001]\ntext = "{MARKUP}"\n')
    monkeypatch.setenv("COACH_SITE", str(site))
    shared = tmp_path / "shared"
    shared.mkdir()
    for number, words_ in enumerate(HOSTILE):
        told = {"schema": 1, "run_id": f"run-{number}", "recipe": words_[:200], "state": words_[:200]}
        told |= {"is_judged": True, "updated_time_s": 1.0}
        (shared / f"{os.geteuid()}-run-{number}.json").write_text(json.dumps(told))
    (shared / f"{CONTROLS}{MARKUP.replace('/', '')}.json").write_text("{")
    toml = tmp_path / "broken.toml"
    toml.write_text(f'[launch]\n"{words}" = "{words}"\npartition = 3\n')
    monkeypatch.setenv("COACH_HOME", str(home))
    monkeypatch.setenv("PATH", f"{clients}:{os.environ['PATH']}")
    return {
        "OWN": str(own / "own.toml"),
        **_write_program(own),
        "RUN": str(runs / RUN),
        "OTHER": str(runs / OTHER),
        "LOG": str(runs / RUN / "stdout.log"),
        "SHARED": str(shared),
        "TOML": str(toml),
        "RULES": str(_hostile_rules(tmp_path / "rows.toml", tmp_path / "rules.toml")),
        "TRACE": str(_hostile_trace(tmp_path / "trace.json")),
        "NEW": str(tmp_path / "new"),
    }


def _write_program(own: Path) -> dict[str, str]:
    """An own program and config files for it."""
    (own / "train.py").write_text("import torch\n")
    for name, key in (("paths.json", "out"), ("bases.json", "defaults"), ("raw.json", "out")):
        values = {"batch_size": 8, key: f"./{FIRST}", FIRST: FIRST}
        (own / name).write_text(json.dumps(values, indent=1, ensure_ascii=name != "raw.json"))
    files = {"SCRIPT": "train.py", "PATHS": "paths.json", "BASES": "bases.json", "RAW": "raw.json"}
    return {word: str(own / name) for word, name in files.items()}


def _hostile_trace(path: Path) -> Path:
    timed = {"ph": "X", "pid": FIRST, "tid": 1, "ts": 0, "dur": 10}
    events = [{**timed, "cat": kind, "name": words} for words in HOSTILE for kind in ("kernel", "cpu_op")]
    path.write_text(json.dumps({"deviceProperties": [{"name": FIRST}], "traceEvents": events}))
    return path


def _hostile_rules(path: Path, config: Path) -> Path:
    """A config file that names a file of rules."""
    row = {"rule": "ENV010", "kind": "full", "wording": [{"pattern": f"gone {re.escape(FIRST)}"}]}
    row["wording"][0] |= {"example": FIRST, "seen": FIRST}  # type: ignore[index]
    path.write_text(f"group = [{_inline(row)}]")
    config.write_text(f"[rules]\nfiles = [{json.dumps(str(path))}]\n")
    return config


def _inline(value: object) -> str:
    """As TOML writes it; JSON's strings are TOML's."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + "}"
    return f"[{', '.join(map(_inline, value))}]" if isinstance(value, list) else json.dumps(value)


def _log_line(words: str) -> bytes:
    said = words.encode("utf-8", "surrogateescape")
    return (
        b"torch.OutOfMemoryError: CUDA out of memory. " + said + b"\0\nFileNotFoundError: '" + said + b"'\n"
    )


def test_every_command_is_tried() -> None:
    assert set(INVOCATIONS) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_escape_sequences_of_others(
    command: str, places: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    statuses = []
    for arguments in INVOCATIONS[command]:
        words = [places.get(word, word) for word in arguments]
        with contextlib.suppress(SystemExit):  # argparse refuses
            statuses.append(guarded(lambda words=words: run_command(command, words)))  # type: ignore[misc]
        out, err = capfd.readouterr()
        where = f"coach {command} {arguments}"
        assert "Traceback" not in err, err
        assert_harmless(out, where)
        assert_harmless(err, where)
        if "json" in arguments and out:
            assert out.isascii(), where
            assert isinstance(json.loads(out), dict), where
            check_printed([command, *words], out)
    is_refused = command in ("init", "fix", "release", "resubmit", "resume", "record", "attach")
    assert is_refused or statuses[0] in (0, 1), "refused at once, there was nothing to see"


def test_names_are_shown_as_they_stand_and_json_has_them_verbatim(
    places: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    run_command("jobs", ["--all", "--format", "json"])
    told: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert sorted(job["name"] for job in told["jobs"]) == sorted(HOSTILE)
    run_command("jobs", ["--all"])
    shown = capfd.readouterr().out
    assert MARKUP in shown
    assert max(len(row) for row in shown.splitlines()) < len(LONG)
