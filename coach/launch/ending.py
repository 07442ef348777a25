"""The lines of a batch script that handle its end: signals, the requeue, and the record of how the run ended.
Pure.

They are apart from the lines that start the training: here the shell must stay alive longer than the
training, because Slurm and the local supervisor signal the shell.
"""

from __future__ import annotations

from shlex import quote

from coach.launch.activation import recording_lines, recording_words
from coach.launch.long_job import REQUEUE, next_segment_lines
from coach.model.launching.launch import OwnKind, Plan

_SECONDS_OF_GRACE = 30
"""A job that ends this close to its limit was ended by the limit. Slurm starts its clock before the script
does."""

_IS_TIMEOUT = 'tail -c 4096 "$RUN_DIR/stderr.log" 2> /dev/null | grep -a "DUE TO TIME LIMIT" > /dev/null'
"""Slurm writes this line into the job's log as it ends the job. It also tells a limit that the launch did not
set: a partition's default, or one that was lowered meanwhile."""

_JUDGE = 'LD_LIBRARY_PATH=$OWN_LIBRARIES "$OWN_PYTHON" -E -P "$CODE/coach/node" judge --run-dir "$RUN_DIR"'
_BY_ONE_FILE = ' --file "$OWN_FILE"'

_NEWEST_CHECKPOINT = (
    (
        "# The newest checkpoint, a file or a folder; one is complete as soon as it is visible, and the "
        "names sort by step."
    ),
    "newest_checkpoint() {",
    "  local newest='' file",
    '  for file in "$RUN_DIR"/checkpoints/step-*; do',
    "    if [[ -e $file ]]; then newest=$file; fi",
    "  done",
    '  echo "$newest"',
    "}",
    "FIRST_CHECKPOINT=$(newest_checkpoint)",
    "",
)


def signal_lines(plan: Plan) -> list[str]:
    """Lines that stand before the training: they let the shell pass on the signal before the limit, so that
    the training can write a checkpoint."""
    is_slurm, has_signal = plan.backend == "slurm", plan.resources.signal is not None
    own, is_long = plan.request.own, plan.request.until_done is not None
    # A program that does not handle USR1 would die of it without a message. TERM is the usual request to end.
    word = "TERM" if is_long and own is not None and "signal" not in own.offers else "USR1"
    usr1 = (
        f'scancel --signal={word} "$SLURM_JOB_ID.0" || true' if is_slurm else 'kill -USR1 "$TRAINING" || true'
    )
    if own is not None and own.kind is OwnKind.BATCH:
        # The program that the file starts may not be a Slurm step, and the file's shell would run its next
        # line.
        usr1 = '"$PYTHON" -E "$CODE/coach/node" curtail --pid "$TRAINING" &'
    term = "" if is_slurm else '; kill -TERM "$TRAINING" || true'
    lines = _NEWEST_CHECKPOINT if is_slurm and has_signal and not is_long else ()
    return [
        *lines,
        (
            "# Signals come to this shell: USR1 when the time limit is near, TERM when the job is ended from "
            "outside."
        ),
        "TRAINING='' SIGNALLED=0 TERMINATED=0 INTERRUPTED=0",
        *([f"trap 'SIGNALLED=1 INTERRUPTED=1; {usr1}' USR1"] if has_signal else []),
        f"trap 'TERMINATED=1 INTERRUPTED=1{term}' TERM",
        "",
    ]


def ending_lines(plan: Plan, own_file: str | None = None) -> list[str]:
    """Lines that stand after the training. If the job got a signal before its limit it is requeued, else the
    end is recorded. `own_file` is the path of coach if coach is one file."""
    lines = recording_lines(plan.environment)
    if plan.backend != "slurm":
        return lines + _local_ending(plan, own_file)
    if plan.request.until_done is not None:
        return [*next_segment_lines(plan), *lines, *_ending(plan, own_file)]
    return [*(_requeue() if plan.resources.signal is not None else []), *lines, *_ending(plan, own_file)]


def judge_lines(own_python: str | None, own_file: str | None = None) -> list[str]:
    """Lines that stand at the start and set `OWN_PYTHON`, the interpreter that has coach. It is empty if this
    node cannot run it, or if `own_python` is None because the site turned off verdicts in jobs. `OWN_FILE` is
    the path of coach if coach is one file.

    The library path is recorded here because the training environment may change it.
    """
    if own_python is None:
        return [
            "# The site turned off verdicts in jobs: the next coach that opens checks the run.",
            "OWN_PYTHON=''",
            "",
        ]
    tried = "-c 'import coach.cli'" if own_file is None else '"$OWN_FILE" --version'
    return [
        "# coach's own interpreter prints at the end why the job ended, if this node can run it.",
        f"OWN_PYTHON={quote(own_python)} OWN_LIBRARIES=${{LD_LIBRARY_PATH-}}",
        *([f"OWN_FILE={quote(own_file)}"] if own_file is not None else []),
        f"if ! \"$OWN_PYTHON\" -E -P {tried} > /dev/null 2>&1; then OWN_PYTHON=''; fi",
        "",
    ]


def _judging(own_file: str | None) -> list[str]:
    judge = _JUDGE if own_file is None else _JUDGE + _BY_ONE_FILE
    return [
        "# Print why the job ended, at the end of the log. A job that Slurm is ending has no time for it.",
        "if [[ $OWN_PYTHON ]] && ((TERMINATED == 0)); then",
        f"  {judge} >&2 2> /dev/null || true",
        "fi",
    ]


def _requeue() -> list[str]:
    return [
        "# Signalled before the limit, with a newer checkpoint than at this start: resume from it.",
        'if ((SIGNALLED && STATUS)) && [[ $(newest_checkpoint) != "$FIRST_CHECKPOINT" ]]; then',
        '  echo "coach: the time limit is near; requeuing to go on from $(newest_checkpoint)"',
        f'  if {REQUEUE}; then exit "$STATUS"; fi',
        '  echo "coach: Slurm refused the requeue: the run ends here, its checkpoint stays"',
        "fi",
        "",
    ]


def _ending(plan: Plan, own_file: str | None) -> list[str]:
    lines = [
        "# Record how the job ended, for readers of the run directory after Slurm has forgotten the job."
    ]
    lines += ["STATE=COMPLETED", "if ((STATUS)); then STATE=FAILED; fi"]
    limit_s = plan.resources.time_limit_s
    late = f"((SECONDS >= {max(0, limit_s - _SECONDS_OF_GRACE)})) || " if limit_s else ""
    lines += [f"if ((TERMINATED)); then STATE=CANCELLED; if {late}{_IS_TIMEOUT}; then STATE=TIMEOUT; fi; fi"]
    if plan.request.until_done is not None or plan.resources.signal is not None:
        lines += ["if ((SIGNALLED && STATUS && !TERMINATED)); then STATE=TIMEOUT; fi"]
    return [*lines, _ended(plan), *_judging(own_file), 'exit "$STATUS"']


def _local_ending(plan: Plan, own_file: str | None) -> list[str]:
    return [
        "# A single write comes first: it keeps the exit status even if the supervisor is killed now.",
        'echo "$STATUS" > "$RUN_DIR/exit_status" || true',
        (
            "# The supervisor records how the run ended. Without one (started by hand, or dead), the "
            "script does."
        ),
        'if ! kill -0 "${COACH_SUPERVISOR_PID:-none}" 2> /dev/null; then',
        "  STATE=COMPLETED",
        "  if ((STATUS)); then STATE=FAILED; fi",
        f"  {_ended(plan)}",
        *(f"  {line}" for line in _judging(own_file)),
        "fi",
        'exit "$STATUS"',
    ]


def _ended(plan: Plan) -> str:
    python = recording_words(plan.environment)
    end = '--run-dir "$RUN_DIR" --exit-code "$STATUS" --state "$STATE"'
    return f'{python} -E "$CODE/coach/node" ended {end} || true'
