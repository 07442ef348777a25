"""`--until-done`: the lines of a script that continue a training in further segments, and the checks for it.

A program must be given its checkpoint, and each framework has its own option for that. coach takes the option
that the program's command line or text names, or the option that the person gives.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from shlex import quote

from coach.launch.activation import recording_lines, recording_words
from coach.launch.python_source import parse_source
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram, Plan

DEFAULT_SEGMENTS = 3
MAX_SEGMENTS = 100
REQUEUE = (
    'scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"'
)
"""The command that requeues the job itself. Of an array it names the task: one of the tasks has the array's
own job id, and with that id Slurm would requeue all of them."""
_ARGUMENTS = re.compile(r"\$\{?[@*]|\$argv|sys\.argv|argparse")
"""Text by which a batch file passes its own arguments on."""
_BY_VARIABLE = '${COACH_RESUME_FROM:+--resume "$COACH_RESUME_FROM"}'
BY_ITSELF = "none"
"""Given instead of an option: the program finds its checkpoint by itself."""

_OPTIONS = ("resume_from_checkpoint", "ckpt_path", "resume_from", "resume_path", "load_checkpoint", "resume")
_FLAGS = ("store_true", "store_const", "BooleanOptionalAction")
"""Actions of argparse for an option without a value."""
_FRAMEWORKS = (
    (("HfArgumentParser", "TrainingArguments"), "--resume_from_checkpoint {path}"),
    (("TrlParser",), "--resume_from_checkpoint {path}"),
    (("LightningCLI",), "--ckpt_path {path}"),
)
"""(words in a program's text, the resume option of its framework). TrainingArguments alone reads no command
line."""
_PLACE = re.compile(
    r"--?(?:[\w.-]*\.)?(?:(?:output|out|save|checkpoint|ckpt|work|run|results?)[_-]?(?:dir|path|folder)"
    r"|default_root_dir|logdir|save)(?:=(.+))?",
    re.IGNORECASE,
)
"""Options that name the directory to which checkpoints are written."""


def check_long(
    request: LaunchRequest, own: OwnProgram | None, backend: str, source: str | None
) -> str | None:
    """How an own program gets its checkpoint: `--resume {path}`, or `none`; None for a recipe.

    `source` is the text of its Python file, if it has one. Raises UserError if the program cannot run in
    segments.
    """
    if request.until_done is None:
        return request.resume_with
    if not 1 <= request.until_done <= MAX_SEGMENTS:
        raise UserError(f"--until-done {request.until_done}: expected 1 to {MAX_SEGMENTS} segments")
    if backend != "slurm":
        raise UserError("--until-done: a run on this machine ends at no limit", "launch it on Slurm")
    if own is None:  # a recipe's trainer looks in its run directory
        if request.resume_with not in (None, BY_ITSELF):
            raise UserError("--resume-with: a recipe finds its checkpoint by itself", "leave the option out")
        return None
    if own.kind is OwnKind.BATCH:
        return _check_batch(request, own, source or "")
    if request.resume_with == BY_ITSELF:
        return BY_ITSELF
    if request.resume_with is not None:
        return _checked(request.resume_with)
    found = _known_option(own.words, source or "")
    if found is None and "COACH_RESUME_FROM" in (source or ""):
        return BY_ITSELF
    if found is None:
        raise UserError(
            f"--until-done: how does {own.words[0]} get the checkpoint to resume from?",
            f'add --resume-with "--resume {{path}}"; or --resume-with {BY_ITSELF} if it finds it itself, '
            "for example by $COACH_RESUME_FROM",
        )
    return found


def _check_batch(request: LaunchRequest, own: OwnProgram, text: str) -> str:
    """Like `check_long`, for a batch file. Its lines stay unchanged, so it must read $COACH_RESUME_FROM or
    pass its own arguments on."""
    name = own.words[0]
    if request.resume_with == BY_ITSELF:
        return BY_ITSELF
    takes_arguments = _ARGUMENTS.search(text) is not None
    if request.resume_with is not None:
        if not takes_arguments:
            raise UserError(
                f"--resume-with: {name} does not hand its arguments on",
                f'write "$@" after the training in it, or {_BY_VARIABLE}, and say --resume-with {BY_ITSELF}',
            )
        return _checked(request.resume_with)
    if "COACH_RESUME_FROM" in text:
        return BY_ITSELF
    found = _known_option(own.words, "") if takes_arguments else None
    if found is None:
        raise UserError(
            f"--until-done: how does the training in {name} get the checkpoint to resume from?",
            f"write {_BY_VARIABLE} after it; or --resume-with {BY_ITSELF} if it finds it itself",
        )
    return found


def _checked(template: str) -> str:
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise UserError(f"--resume-with {template!r}: {error}", 'expected "--resume {path}"') from None
    if not words or not template.isprintable():
        raise UserError(f"--resume-with {template!r}: expected an option", 'for example "--resume {path}"')
    return template


def _known_option(words: Sequence[str], source: str) -> str | None:
    """The resume option that the command line has or the program's text declares."""
    known = {**_said_options(words), **_declared_options(source)}
    for option in _OPTIONS:
        spelt = re.compile(f"--{option.replace('_', '[_-]')}")
        found = next((known[name] for name in known if spelt.fullmatch(name) and known[name]), None)
        if found is not None:
            return found
    return next((template for names, template in _FRAMEWORKS if all(name in source for name in names)), None)


def _said_options(words: Sequence[str]) -> dict[str, str | None]:
    """Option on a command line → how it gets a path; one without a value stays without."""
    found: dict[str, str | None] = {}
    for word, following in zip_longest(words, words[1:], fillvalue="-"):
        name, joint, _ = word.partition("=")
        found[name] = f"{name} {{path}}" if joint or not following.startswith("-") else name
    return found


def _declared_options(source: str) -> dict[str, str | None]:
    """Option that argparse calls in the text declare → how it gets a path: `--resume {path}`, or `--resume`
    for a flag; None if it takes a number."""
    try:
        tree = parse_source(source)
    except SyntaxError:
        return {}
    found: dict[str, str | None] = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _last_name(call.func) == "add_argument":
            said = {each.arg: each.value for each in call.keywords}
            is_flag = _last_name(said.get("action")) in _FLAGS
            is_number = _last_name(said.get("type")) in ("int", "float")
            for name in map(_last_name, call.args):
                if isinstance(name, str):
                    found[name] = name if is_flag else None if is_number else f"{name} {{path}}"
    return found


def _last_name(node: ast.expr | None) -> object:
    """`b` of `a.b`, `a` of `a`, and the value of a constant."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else getattr(node, "value", None)


def places_of(own: OwnProgram) -> Iterator[str]:
    """Directories to which the program writes checkpoints, from its command line; else its working
    directory."""
    found = False
    for index, word in enumerate(own.words):
        match = _PLACE.fullmatch(word)
        if match is None:
            continue
        value = match[1] if match[1] is not None else next(iter(own.words[index + 1 : index + 2]), "")
        if value and value[0] not in "-$~":
            found = True
            yield str(Path(own.directory, value))
    if not found:
        yield own.directory


def segment_lines(plan: Plan) -> list[str]:
    """Lines that stand before the training: they record the segment and give the program its checkpoint."""
    if plan.request.until_done is None:
        return []
    told = plan.request.resume_with
    words = shlex.split(told) if told not in (None, BY_ITSELF) else []
    resume = " ".join(_with_path(word) for word in words)
    return [
        f"# One training in at most {plan.request.until_done} segments: from the second on, it goes on from",
        "# the checkpoint that the one before has left.",
        *recording_lines(plan.environment),
        f'RESUME_FROM=$({_node_words(plan)} --nodes "$SLURM_JOB_NODELIST") || RESUME_FROM=""',
        'export COACH_RESUME_FROM="$RESUME_FROM"',
        "RESUME=()",
        *([f"if [[ -n $RESUME_FROM ]]; then RESUME=({resume}); fi"] if resume else []),
        "",
    ]


def resume_words(plan: Plan) -> list[str]:
    """Words that stand after those of an own program."""
    return ['${RESUME[@]+"${RESUME[@]}"}'] if plan.request.until_done is not None else []


def next_segment_lines(plan: Plan) -> list[str]:
    """Lines that stand after the training: they requeue the job if this segment left a checkpoint."""
    own = plan.request.own
    places = "".join(f" {quote(place)}" for place in places_of(own)) if own is not None else ""
    end = f'{_node_words(plan)} --end --exit-code "$STATUS"'
    # A recipe's trainer exits 0 only when its training is complete. Other programs also save and exit 0 when
    # they are signalled.
    is_cut = "SIGNALLED && STATUS" if own is None else "SIGNALLED"
    return [
        "# Signalled before the limit: resume from the checkpoint of this segment, if it wrote one.",
        *(
            ["# Exit status 0 does not tell a complete training from one that saved because of the signal."]
            if own is not None
            else []
        ),
        f"if (({is_cut})); then",
        f"  if CHECKPOINT=$({end}{' --' if places else ''}{places}); then",
        '    echo "coach: the time limit is near; requeuing to go on from $CHECKPOINT"',
        f'    if {REQUEUE}; then exit "$STATUS"; fi',
        "    # If Slurm refuses the requeue, submit another job that resumes, if jobs may be submitted "
        "from here.",
        '    if [[ -z ${SLURM_ARRAY_JOB_ID:-} ]] && NEXT=$(cd -- "$SLURM_SUBMIT_DIR" && sbatch --parsable \\',
        '        --dependency="afterany:$SLURM_JOB_ID" "$RUN_DIR/job.sh"); then',
        f'      {_node_words(plan)} --successor "${{NEXT%%;*}}" || true',
        '      echo "coach: Slurm refused the requeue: job ${NEXT%%;*} goes on"',
        '      exit "$STATUS"',
        "    fi",
        '    echo "coach: Slurm refused requeue and further job: the run ends here, its checkpoint stays"',
        "  fi",
        "fi",
        "",
    ]


def _node_words(plan: Plan) -> str:
    python = recording_words(plan.environment)
    return f'{python} -E "$CODE/coach/node" segment --run-dir "$RUN_DIR" --max {plan.request.until_done}'


def _with_path(word: str) -> str:
    return '"$RESUME_FROM"'.join(quote(part) if part else "" for part in word.split("{path}"))
