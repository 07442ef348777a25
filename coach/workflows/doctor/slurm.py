"""Judge Slurm's answers: which uses of coach work here, and from which version on.

Kept apart from the asking, so that every odd answer can be tested without a cluster. coach parses Slurm's
text by its shape, never by its version. So features that can be tried are tried here; the version decides
only about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from coach.model.errors import hidden_by_site
from coach.model.judging.doctor_report import OK, UNKNOWN, WARNING, WRONG, Check
from coach.model.slurm.cluster import Partition
from coach.sources.rpc_budget import ACTIVE_PER_MIN, RpcBudget
from coach.sources.slurm.configuration import parse_rate_limit, parse_version, private_kinds

AREA = "slurm"
_TOLD_APART = frozenset({"jobs", "nodes", "partitions", "reservations"})
"""Words of PrivateData that change what coach shows."""
TESTED = ("22.05", "24.11")


_GPUS_PER_NODE_SINCE = (19, 5)


def judge_config(config: Mapping[str, str]) -> list[Check]:
    """The controller that answered: its name and version."""
    version = parse_version(config.get("SLURM_VERSION", ""))
    name = config.get("ClusterName")
    checks = [Check(AREA, "controller", OK, f"cluster {name} answers" if name else "answers")]
    if version is None:
        because = "the controller does not report its version"
        return [*checks, Check(AREA, "version", UNKNOWN, None, because, is_needed=False)]
    is_old = version < _GPUS_PER_NODE_SINCE
    because = (
        f"tested with {' and '.join(TESTED)}; --gpus-per-node works from 19.05 on, rate limits exist from "
        "23.02 on; what squeue and scontrol print is read as text, their JSON is not used"
    )
    state = WARNING if is_old else OK
    checks.append(Check(AREA, "version", state, config["SLURM_VERSION"].strip(), because))
    if is_old:
        because = "from 19.05 on"
        gres = "GPUs are then requested as --gres=gpu:N, which every version has"
        todo = f'set launch.gpu_request = "gres": {gres}'
        checks.append(Check(AREA, "--gpus-per-node", WARNING, "not in this version", because, todo))
    return checks


def judge_controller_silence(error: str, ping: str | None) -> list[Check]:
    """The controller that did not answer, in the words of the client that noticed."""
    because = error if ping is None else f"{error}; {ping}"
    todo = "ask the site, or try again: running jobs continue, and `coach runs` works without the controller"
    if "command not found" in error:
        todo = "put Slurm's clients on the PATH (module load slurm), or train here with --backend local"
    return [Check(AREA, "controller", WRONG, "does not answer", because, todo)]


def judge_pace(config: Mapping[str, str]) -> Check:
    """How often one user may ask here, and the share that coach uses."""
    budget, limit = RpcBudget(), parse_rate_limit(config)
    if limit is None:
        value = "none"
    else:
        value = f"{limit.bucket} requests, then {limit.refill} every {_seconds(limit.period_s)}"
        budget.limit_by_site(limit.per_s)
    because = f"coach asks at most {budget.limit_per_min:g} RPC/min while it is open"
    if limit is not None and budget.limit_per_min < ACTIVE_PER_MIN:
        because = f"{because}, a quarter of that: the screens show older data than on other clusters"
    return Check(AREA, "rate limit", OK, value, because)


def judge_privacy(config: Mapping[str, str], is_root: bool) -> list[Check]:
    """What the site hides from its users; empty if it hides nothing."""
    kinds = sorted(private_kinds(config) & _TOLD_APART)
    if not kinds:
        return []
    because = f"PrivateData={','.join(kinds)}: coach says so where this hides data"
    if is_root:
        because = f"PrivateData={','.join(kinds)}: from users, not from root"
    return [Check(AREA, "hidden by the site", OK, ", ".join(kinds), because, is_needed=False)]


def judge_accounting(config: Mapping[str, str] | None, error: str | None) -> Check:
    """Whether Slurm can be asked for ended jobs. coach's own runs are known from their directories in either
    case."""
    own = "coach knows its own runs from their directories"
    kind = (config or {}).get("AccountingStorageType", "")
    kept = (config or {}).get("MinJobAge", "")
    state, value, because, todo = OK, "sacct answers", own, None
    if kind.endswith("/none") or "accounting storage is disabled" in (error or ""):
        forgotten = f"forgotten after {kept}" if kept else "soon forgotten"
        value, because = "none", f"{own}; other ended jobs are {forgotten}"
    elif error is not None and "command not found" in error:
        value = "sacct is not here"
    elif error is not None:
        state, value, because = WARNING, "does not answer", f"{error}; {own}"
        todo = "nothing: only the history of jobs that coach did not launch is missing"
    return Check(AREA, "accounting", state, value, because, todo, is_needed=False)


def judge_mail(config: Mapping[str, str], is_there: Callable[[str], bool]) -> Check:
    """Whether Slurm can send mail, as `sbatch --mail-type` asks. `is_there` checks a path for a program on
    this machine; the controller, which calls it, may be another machine."""
    program = (config.get("MailProg") or "").strip()
    if program in ("", "(null)", "none") or Path(program).name in ("true", "false"):
        value = f"Slurm's MailProg is {program or 'not set'}"
        because = "a job that ends sends no mail"
        todo = "look with `coach why`: it names your last job that ended badly"
        return Check(AREA, "mail", WARNING, value, because, todo, is_needed=False)
    if is_there(program):
        todo = "add #SBATCH --mail-type=END,FAIL to a batch file, or --sbatch mail-type=END,FAIL to a launch"
        return Check(AREA, "mail", OK, f"by {program}", None, todo, is_needed=False)
    because = f"{program}, Slurm's MailProg, is not on this machine; the controller calls it on its own"
    todo = "send yourself one: sbatch --mail-type=END --wrap true"
    return Check(AREA, "mail", UNKNOWN, None, because, todo, is_needed=False)


def judge_queue(num_jobs: int, num_bad_rows: int, error: str | None) -> Check:
    """Judge the question that coach asks while it is open."""
    if error is not None:
        todo = "the queue cannot be shown; launching does not need it"
        return Check(AREA, "queue", WRONG, "cannot be read", error, todo)
    own = "1 own job" if num_jobs == 1 else f"{num_jobs} own jobs"
    if num_bad_rows:
        because = f"{num_bad_rows} of its rows cannot be read: this squeue writes them in another format"
        return Check(AREA, "queue", WARNING, own, because, "keep them with `coach record` and report it")
    return Check(AREA, "queue", OK, own, "squeue understands every field that coach asks for")


def judge_gpus(
    partitions: Sequence[Partition], config: Mapping[str, str] | None, hidden: Collection[str] = ()
) -> list[Check]:
    """What each partition offers for training. `hidden`: which of `nodes` and `partitions` the site hides."""
    area = "gpus"
    if hidden:
        because = hidden_by_site(" and ".join(sorted(hidden)))
        return [Check(area, "partitions", UNKNOWN, None, because, is_needed=False)]
    checks = []
    for partition in partitions:
        if partition.num_gpus_per_node:
            kinds = ", ".join(f"{gpu.total} × {gpu.type or 'GPU'}" for gpu in partition.gpus)
            if partition.state == "up":
                checks.append(Check(area, partition.name, OK, kinds, is_needed=False))
                continue
            because, todo = f"it is {partition.state}", "launch in another partition (--partition), or wait"
            checks.append(Check(area, partition.name, WARNING, kinds, because, todo, is_needed=False))
    if checks:
        return checks
    has_gres = "gpu" in (config or {}).get("GresTypes", "").split(",")
    because = "no node of a partition that you see has any" if has_gres else "Slurm has no GresTypes=gpu"
    todo = "recipes train on CPUs here (gloo)"
    return [Check(area, "partitions", WARNING, "no GPUs", because, todo, is_needed=False)]


def _seconds(seconds: int) -> str:
    return "second" if seconds == 1 else f"{seconds} seconds"
