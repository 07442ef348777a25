"""Turns a plan into the text of a batch script. Pure, and golden-tested, because learners read the script.

Text from a user or a config enters the script through one of two doors: `_sbatch_line` or `shlex.quote`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

from coach import runs
from coach.launch.activation import (
    STOP_STATUS,
    activation_lines,
    cache_lines,
    container_lines,
    program_words,
    step_words,
)
from coach.launch.ending import ending_lines, judge_lines, signal_lines
from coach.launch.long_job import resume_words, segment_lines
from coach.launch.parameters import show
from coach.launch.spelling import format_time, parse_signal_lead
from coach.model.launching.launch import NOWHERE, OFFERS, OwnKind, Plan, Resources
from coach.node.brake import CAUSE

_HEREDOC = "COACH_RUN_JSON"
_OFFERED = {
    "flight-recorder": "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    "faulthandler": "PYTHONFAULTHANDLER=1",
}
"""Offer → the variable that it sets in the program's environment."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths, as the job sees them."""

    run_dir: str
    code_dir: str
    python: str
    """The interpreter of the training environment: a path, or a name that `setup` puts on the PATH."""
    cache_dir: str
    data_dir: str | None = None
    own_python: str = "python3"
    """The interpreter that runs coach itself."""
    own_file: str | None = None
    """The path of coach, if coach is one file and not a package of that interpreter."""
    is_judged: bool = True
    """False: the site turned off the verdict at a job's end."""
    scratch_cache_dir: str | None = None
    """The directory for libraries' caches; None leaves each library its own default."""


def render(plan: Plan, trainer: str, paths: Paths, run_json: Mapping[str, Any], coach_version: str) -> str:
    """The whole script, for Slurm or for the local backend."""
    is_slurm = plan.backend == "slurm"
    own = plan.request.own
    lines = ["#!/bin/bash"]
    if is_slurm:
        lines += _sbatch_lines(plan)
    lines += [f"# {_what(plan)}, run {plan.run_id}, written by coach {coach_version}."]
    if not is_slurm:
        lines += ["# coach's local supervisor runs this script and enforces the limits of time and memory."]
    lines += ["set -euo pipefail", *(["MASK=$(umask)"] if own is not None else []), "umask 077", ""]
    lines += _places(paths)
    lines += _run_dir(plan.run_id, is_slurm)
    lines += record_lines(run_json)
    lines += _attempt() if is_slurm else []
    lines += judge_lines(paths.own_python if paths.is_judged else None, paths.own_file)
    lines += stop_lines()
    lines += brake_lines(plan, paths.own_python)
    is_needed = own is None or own.kind is OwnKind.SCRIPT
    lines += activation_lines(plan.environment, plan.request.setup or (), paths.python, is_needed=is_needed)
    if own is not None:
        lines += _own_start(own.directory, paths, plan)
    variables = _variables(plan, paths, is_slurm)
    if plan.resources.num_nodes > 1:
        variables += _rendezvous() if is_slurm else meeting_lines()
    lines += variables
    lines += container_lines(
        plan.environment,
        _mounts(plan, paths),
        paths.cache_dir,
        plan.resources.gpus_per_node > 0,
        variables,
    )
    lines += segment_lines(plan)
    lines += signal_lines(plan)
    lines += _training(plan, trainer, paths, is_slurm)
    lines += ending_lines(plan, paths.own_file)
    return "\n".join(lines) + "\n"


def _what(plan: Plan) -> str:
    return f"Recipe {plan.recipe}" if plan.request.own is None else f"Your own {plan.recipe}"


def _sbatch_lines(plan: Plan) -> list[str]:
    resources = plan.resources
    more = dict(plan.request.sbatch)
    run_dir = PurePosixPath(plan.run_dir)
    logs = f"{run_dir.parent}/{runs.LOGS_FOLDER}/{run_dir.name}".replace("%", "%%")
    options: dict[str, str | None] = {
        "job-name": plan.recipe,
        "nodes": str(resources.num_nodes),
        "ntasks-per-node": "1",
        "gpus-per-node": _gpus(resources) if resources.gpu_request != "gres" else None,
        "gres": _gres(resources, more.pop("gres", "")),
        "cpus-per-task": str(resources.cpus_per_task) if resources.cpus_per_gpu is None else None,
        "cpus-per-gpu": str(resources.cpus_per_gpu) if resources.cpus_per_gpu else None,
        "mem": resources.mem,
        "time": format_time(resources.time_limit_s) if resources.time_limit_s else None,
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "reservation": resources.reservation,
        "constraint": resources.constraint,
        "exclude": resources.exclude,
        "output": f"{logs}.out",
        "error": f"{logs}.err",
        "open-mode": "append",
    }
    comments = {
        "ntasks-per-node": "one torchrun on each node; it starts the ranks"
        if is_torchrun(plan)
        else "the program is started once on each node",
        "cpus-per-task": "per node: ranks × (1 + workers)" if plan.request.own is None else "per node",
        "cpus-per-gpu": f"{resources.cpus_per_task} per node",
        "output": "in a folder that every node sees already",
        "open-mode": "a requeued run appends to the same logs",
    }
    lines = [
        _sbatch_line(key, value, comments.get(key)) for key, value in options.items() if value is not None
    ]
    if resources.signal:
        lead = parse_signal_lead(resources.signal, "signal")
        lines += [
            _sbatch_line(
                "signal", f"B:USR1@{lead}", "this many seconds before the limit: time for a checkpoint"
            ),
            _sbatch_line("requeue", "", "and then requeue, to resume from it"),
        ]
    return lines + [_sbatch_line(key, value) for key, value in more.items()]


def _sbatch_line(key: str, value: str, comment: str | None = None) -> str:
    # Slurm reads quotes as a shell does, and takes a blank with # as the start of a comment.
    option = f"#SBATCH --{key}={quote(value)}" if value else f"#SBATCH --{key}"
    return f"{option:<38} # {comment}" if comment else option


def _gpus(resources: Resources) -> str | None:
    if resources.gpus_per_node == 0:
        return None
    return (
        f"{resources.gpu_type}:{resources.gpus_per_node}"
        if resources.gpu_type
        else str(resources.gpus_per_node)
    )


def _gres(resources: Resources, more: str) -> str | None:
    """All generic resources in one option: sbatch takes only the last --gres."""
    gpus = _gpus(resources) if resources.gpu_request == "gres" else None
    return ",".join(part for part in (f"gpu:{gpus}" if gpus else "", more) if part) or None


def _places(paths: Paths) -> list[str]:
    return [
        (
            "# The run directory, and trainers and node code as they were at launch: both on the shared file "
            "system."
        ),
        f"RUN_DIR={quote(paths.run_dir)}",
        f"CODE={quote(paths.code_dir)}",
        "",
    ]


def _run_dir(run_id: str, is_slurm: bool) -> list[str]:
    if not is_slurm:
        return ['mkdir -p -m 700 "$RUN_DIR"', ""]
    log = f"../{runs.LOGS_FOLDER}/{quote(run_id)}"
    return [
        (
            "# A node may see the run directory late: looking into its parent makes it ask the file server "
            "again."
        ),
        "for _ in {1..20}; do",
        "  if [[ -d $RUN_DIR ]]; then break; fi",
        '  ls -- "${RUN_DIR%/*}" > /dev/null 2>&1 || true',
        "  sleep 0.5",
        "done",
        'mkdir -p -m 700 "$RUN_DIR"',
        f'ln -s {log}.out "$RUN_DIR/stdout.log" 2> /dev/null || true',
        f'ln -s {log}.err "$RUN_DIR/stderr.log" 2> /dev/null || true',
        "",
    ]


def record_lines(run_json: Mapping[str, Any]) -> list[str]:
    """Lines that write run.json and job.sh into `$RUN_DIR` unless they exist."""
    return [
        "# The record of this run, unless coach has written it already.",
        "if [[ ! -e $RUN_DIR/run.json ]]; then",
        f"  cat > \"$RUN_DIR/.run.json.new\" <<'{_HEREDOC}'",
        json.dumps(run_json, indent=2, ensure_ascii=True, allow_nan=False),
        _HEREDOC,
        '  mv "$RUN_DIR/.run.json.new" "$RUN_DIR/run.json"',
        "fi",
        'if [[ ! -e $RUN_DIR/job.sh && -f $0 ]]; then cp -- "$0" "$RUN_DIR/job.sh"; fi',
        "",
        "# A requeued job starts here again: remove the record of its earlier end.",
        'rm -f "$RUN_DIR/exit.json" "$RUN_DIR/exit_status" "$RUN_DIR/verdict.json"',
        "",
    ]


def kept_lines(name: str, text: str, marker: str) -> list[str]:
    """Lines that write a text into `$RUN_DIR` byte for byte unless the file exists. No line of the text may
    equal the marker."""
    return [
        f'KEPT="$RUN_DIR"/{quote(name)}',
        "if [[ ! -e $KEPT ]]; then",
        f"  head -c {len(text.encode())} > \"$KEPT.new\" <<'{marker}'",
        text.removesuffix("\n"),
        marker,
        '  mv "$KEPT.new" "$KEPT"',
        "fi",
        "",
    ]


def _attempt() -> list[str]:
    return [
        "# A requeued job appends to its logs: lines above this one belong to an earlier attempt.",
        "if ((${SLURM_RESTART_COUNT:-0})); then",
        '  ATTEMPT="coach: this is attempt $((SLURM_RESTART_COUNT + 1)) of job $SLURM_JOB_ID"',
        '  echo "$ATTEMPT"; echo "$ATTEMPT" >&2',
        "fi",
        "",
    ]


def brake_lines(plan: Plan, own_python: str) -> list[str]:
    """Lines that stand before a run of a group: they end it if the launch asked for a brake and earlier runs
    failed alike."""
    request = plan.request
    if request.brake is None or not request.group_before:
        return []
    before = " ".join(map(quote, request.group_before))
    ask = f'"$NAME" -E "$CODE/coach/node" brake --runs-dir "${{RUN_DIR%/*}}" --after {request.brake} {before}'
    return [
        f"# The sweep's brake: if at least the first {request.brake} runs failed alike, and none has",
        "# completed, this run does not start. A requeued run has started already.",
        f"for NAME in {quote(own_python)} python3; do",
        "  if ((${SLURM_RESTART_COUNT:-0} == 0)) && REASON=$(",
        f"    {ask} 2> /dev/null",
        f'  ); then stop {CAUSE} "$REASON"; fi',
        "done",
        "",
    ]


def stop_lines() -> list[str]:
    """Lines that define `stop CAUSE TEXT`, which ends the job before the training starts."""
    return [
        "# Something that the training needs is missing: record it here and in the run directory, and end.",
        "stop() {",
        '  local cause=$1 text=${2//[[:cntrl:]\\"\\\\]/ } node=${SLURMD_NODENAME:-$HOSTNAME}',
        '  echo "coach: $cause: $text on $node" >&2',
        "  {",
        f'    echo "{{\\"schema\\": 1, \\"state\\": \\"FAILED\\", \\"exit_code\\": {STOP_STATUS}, '
        '\\"ended_time_s\\": $(date +%s),"',
        (
            '    echo " \\"refused\\": {\\"cause\\": \\"$cause\\", \\"text\\": \\"$text\\", \\"node\\": '
            '\\"$node\\"}}"'
        ),
        '  } > "$RUN_DIR/exit.json" || true',
        f"  exit {STOP_STATUS}",
        "}",
        "",
    ]


def _variables(plan: Plan, paths: Paths, is_slurm: bool) -> list[str]:
    resources = plan.resources
    lines = ["# Output appears at once: Python does not buffer it."]
    lines += ["export PYTHONUNBUFFERED=1"]
    if is_slurm and resources.cpus_per_gpu is None:
        lines += ["# srun does not inherit --cpus-per-task in every version of Slurm."]
        lines += [f"export SRUN_CPUS_PER_TASK={resources.cpus_per_task}"]
    lines += _trainer_variables(plan) if plan.request.own is None else own_variable_lines(plan)
    if resources.gpus_per_node == 0:
        lines += ["# No GPU was requested: hide the GPUs that the site leaves visible."]
        lines += ['export CUDA_VISIBLE_DEVICES=""']
    elif not is_slurm:
        gpus = ",".join(str(gpu) for gpu in range(resources.gpus_per_node))
        lines += ["# The GPUs of this run, unless others were chosen outside."]
        lines += [f'export CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES:-{gpus}}}"']
    lines += cache_lines(paths.scratch_cache_dir)
    if plan.environment.variables:
        lines += ["# The environment's own variables."]
        lines += [f"export {name}={quote(value)}" for name, value in plan.environment.variables.items()]
    if plan.request.env:
        lines += ["# Variables requested with the launch."]
        lines += [f"export {name}={quote(value)}" for name, value in plan.request.env.items()]
    return [*lines, ""]


def _trainer_variables(plan: Plan) -> list[str]:
    lines = _torchrun_variables(plan)
    if plan.request.max_restarts:
        lines += [
            (
                "# Restarted ranks use a store of their own: a shared store would hold the addresses of "
                "dead ranks."
            ),
            "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        ]
    if plan.resources.gpus_per_node:
        lines += [
            (
                "# NCCL: a lost peer ends the job instead of hanging it, and a hang leaves its last "
                "collectives behind."
            ),
            "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
            "export TORCH_FR_BUFFER_SIZE=2000",
        ]
    return lines


def _torchrun_variables(plan: Plan) -> list[str]:
    return [
        "# Compute threads of each rank: more than its share of the CPUs makes every rank slower.",
        f"export OMP_NUM_THREADS={plan.resources.num_threads(plan.parameters)}",
        (
            "# torchrun hands the checkpoint signal on to the ranks, and gives them time to write (torch 2.9 "
            "and newer)."
        ),
        "export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=100",
    ]


def own_variable_lines(plan: Plan) -> list[str]:
    """Lines that export variables for an own program: the run's directory, and the requested offers."""
    own = plan.request.own
    lines = [
        "# For a program that uses the path of its run directory.",
        'export COACH_RUN_DIR="$RUN_DIR" COACH_CHECKPOINT_DIR="$RUN_DIR/checkpoints"',
    ]
    for offer in own.offers if own is not None else ():
        if offer in _OFFERED:
            lines += [f"# {offer}: {OFFERS[offer]}.", f"export {_OFFERED[offer]}"]
    return lines + (_torchrun_variables(plan) if is_torchrun(plan) else [])


def is_torchrun(plan: Plan) -> bool:
    """True if torchrun starts the ranks: those of a recipe, and those of a script that has several ranks or
    asks for torchrun."""
    own = plan.request.own
    if own is None:
        return True
    return own.kind is OwnKind.SCRIPT and (plan.resources.world_size > 1 or "torchrun" in own.offers)


def samples_gpm(plan: Plan) -> bool:
    """True if the sampler also measures what the parts of each GPU do."""
    return bool(plan.request.has_gpm and plan.resources.gpus_per_node)


def measuring_lines(
    pythons: Sequence[str],
    judge: str | None = None,
    judge_file: str | None = None,
    *,
    notes_end: bool = True,
    has_gpm: bool = False,
) -> list[str]:
    """Lines that set `MEASURED`, the command that runs a program under coach's node code. They take the first
    of `pythons` that can run it; `MEASURED` is empty if none can.

    `judge` is the interpreter that has coach, if no script's ending judges the run, and `judge_file` is the
    path of coach if coach is one file. With `notes_end` False the script records the end.
    """
    judged = f" --judge {quote(judge)}" if judge is not None else ""
    judged += f" --judge-file {quote(judge_file)}" if judge is not None and judge_file is not None else ""
    judged += ("" if notes_end else " --no-end") + (" --gpm" if has_gpm else "")
    return [
        "# The supervisor and the sampler run under the first of these Pythons that is new enough.",
        "MEASURED=()",
        f"for NAME in {' '.join(pythons)}; do",
        "  if \"$NAME\" -E -c 'import sys; sys.exit(sys.version_info < (3, 9))' > /dev/null 2>&1; then",
        f'    MEASURED=("$NAME" -E "$CODE/coach/node" run --run-dir "$RUN_DIR"{judged} --)',
        "    break",
        "  fi",
        "done",
        "if ((${#MEASURED[@]} == 0)); then",
        '  echo "coach: no Python from 3.9 here: the program runs, and is not measured" >&2',
        "fi",
    ]


def _own_start(directory: str, paths: Paths, plan: Plan) -> list[str]:
    lost = quote(f"{directory}: no such directory")
    lines = [
        "# The program starts in the directory of the launch, with the user's own umask.",
        'umask "$MASK"',
        f"cd -- {quote(directory)} || stop file_not_found {lost}",
    ]
    if not plan.environment.is_container:
        lines += measuring_lines(('"$PYTHON"', quote(paths.own_python), "python3"), has_gpm=samples_gpm(plan))
    return [*lines, ""]


def _rendezvous() -> list[str]:
    return [
        "# The nodes meet on the first node. The job's number gives the first port to try; the",
        "# first free port is taken, because another job's number may give the same one.",
        'HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "export MASTER_ADDR=${HOSTS%%$'\\n'*}",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
        'while grep -qs ":$(printf %04X "$MASTER_PORT") " /proc/net/tcp /proc/net/tcp6; do',
        "  MASTER_PORT=$((20000 + (MASTER_PORT + 1) % 10000))",
        "done",
        "",
    ]


def _training(plan: Plan, trainer: str, paths: Paths, is_slurm: bool) -> list[str]:
    resources = plan.resources
    sampled = "--gpm --" if samples_gpm(plan) else "--"
    node_run = f'"$PYTHON" -E "$CODE/coach/node" run --run-dir "$RUN_DIR" {sampled}'
    if plan.request.own is not None and not plan.environment.is_container:
        node_run = '${MEASURED[@]+"${MEASURED[@]}"}'
    words = (*program_words(plan.environment), node_run)
    command = [" ".join(words)]
    starts = "torchrun starts the ranks" if is_torchrun(plan) else "and nothing else is added"
    comments = [f"# The training: coach's node code starts it with the sampler beside it, {starts}."]
    if is_slurm:
        # Without the 0, a site's SLURM_KILL_BAD_EXIT would end the other nodes before they have recorded how
        # they ended.
        command.insert(0, " ".join(("srun --kill-on-bad-exit=0 --wait=60", *step_words(plan.environment))))
        comments += ["# When one node has ended, the others have 60 s to end as well and to record how."]
    command += _torchrun(plan, is_slurm) if is_torchrun(plan) else []
    if plan.request.max_restarts and is_torchrun(plan):
        comments += [
            "# A failed rank: torchrun restarts all ranks, and they resume from the newest checkpoint."
        ]
    command += _own_program(plan) if plan.request.own is not None else _trainer(plan, trainer, paths)
    has_agents = not is_slurm and resources.num_nodes > 1
    start = " \\\n  ".join(command)
    return [
        *comments,
        *(agent_lines(start, resources.num_nodes) if has_agents else [f"{start} &"]),
        *waiting_for_training_lines(),
        *(waiting_lines() if has_agents else []),
    ]


def waiting_for_training_lines() -> list[str]:
    """Lines that stand after the start of the training: they wait for it and keep its exit status."""
    return [
        "TRAINING=$!",
        "",
        "# A signal ends `wait`, not the training: wait again.",
        "STATUS=0 INTERRUPTED=1",
        "while ((INTERRUPTED)); do",
        "  STATUS=0 INTERRUPTED=0",
        '  wait "$TRAINING" || STATUS=$?',
        "done",
        "",
    ]


def _torchrun(plan: Plan, is_slurm: bool) -> list[str]:
    resources = plan.resources
    torchrun = f'"$PYTHON" -m torch.distributed.run --nnodes={resources.num_nodes}'
    command = [f"{torchrun} --nproc-per-node={resources.nproc_per_node}"]
    if resources.num_nodes > 1:
        command.append('--rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"')
        rdzv_id = '"$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"' if is_slurm else quote(plan.run_id)
        command.append(f"--rdzv-id={rdzv_id}")
    else:
        command.append("--standalone")
    if plan.request.max_restarts:
        command.append(f"--max-restarts={plan.request.max_restarts}")
    return command


def _trainer(plan: Plan, trainer: str, paths: Paths) -> list[str]:
    command = [f'"$CODE/trainers/"{quote(trainer)} --run_dir="$RUN_DIR"']
    flags = {
        "cache_dir": paths.cache_dir,
        "data_dir": paths.data_dir,
        "gpus_per_node": plan.resources.gpus_per_node,
    }
    flags |= {"resume_from": plan.request.resume_from}
    command += [f"--{name}={quote(str(value))}" for name, value in flags.items() if value is not None]
    return command + [f"--{name}={quote(show(value))}" for name, value in plan.parameters.items()]


def _own_program(plan: Plan) -> list[str]:
    own = plan.request.own
    is_script = own is not None and own.kind is OwnKind.SCRIPT
    python = ['"$PYTHON"'] if is_script and not is_torchrun(plan) else []
    return [" ".join([*python, *map(quote, plan.command), *resume_words(plan)])]


def _mounts(plan: Plan, paths: Paths) -> list[str]:
    """Paths that the container must see: all that the training's command line names."""
    run_dir = PurePosixPath(paths.run_dir)
    places = [str(run_dir.parent), paths.code_dir, paths.cache_dir]
    shared = plan.request.share if plan.request.share != NOWHERE else None
    places += [place for place in (paths.data_dir, paths.scratch_cache_dir, shared) if place]
    places += [plan.request.own.directory] if plan.request.own is not None else []
    resume_from = plan.request.resume_from
    return places + ([str(PurePosixPath(resume_from).parent)] if resume_from else [])


# Several nodes on one machine: each has an agent with its own torchrun and sampler. A scheduler starts one
# task on each node; here the batch script does it.

_PORT = "$((20000 + RANDOM % 10000))"


def meeting_lines() -> list[str]:
    """Lines that choose the address at which the agents meet."""
    return [
        "# The nodes of this run are agents on this machine. They meet at a free port.",
        f"export MASTER_ADDR=localhost MASTER_PORT={_PORT}",
        'while (exec 3<> "/dev/tcp/localhost/$MASTER_PORT") 2> /dev/null; do',
        f"  MASTER_PORT={_PORT}",
        "done",
        "",
    ]


def agent_lines(command: str, num_nodes: int) -> list[str]:
    """Lines that start the command as each node's agent. The first agent is `TRAINING`, which gets the
    signals."""
    return [
        "agent() {",
        f"  export SLURM_NNODES={num_nodes} SLURM_NODEID=$1 SLURMD_NODENAME=${{HOSTNAME%%.*}}-$1",
        f"  exec {command}",
        "}",
        "OTHERS=()",
        f"for NODE in {{1..{num_nodes - 1}}}; do",
        '  agent "$NODE" &',
        "  OTHERS+=($!)",
        "done",
        "agent 0 &",
    ]


def waiting_lines() -> list[str]:
    """Lines that wait for the other agents after the first one has ended."""
    return ['for OTHER in "${OTHERS[@]}"; do wait "$OTHER" || STATUS=$?; done', ""]
