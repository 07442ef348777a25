"""A person's batch file: the resources in its #SBATCH lines, and the script that submits it.

The file runs byte for byte under `coach run`, by the interpreter that its first line names. The submitted
script begins with the file's leading #SBATCH lines. The launch's own options follow them and so win. An
option of the file that asks for the same resource in another form is left out: Slurm would refuse both, or
obey the file's. Slurm knows the job by the submitted script. In the job, Slurm's clients print the path of
the user's file in its place, as after `sbatch FILE`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from coach import runs
from coach.analysis.jobs.batch_script import change_script, read_script
from coach.analysis.queueing.arrays import TaskIds, parse_task_ids
from coach.launch.ending import ending_lines, judge_lines, signal_lines
from coach.launch.long_job import resume_words, segment_lines
from coach.launch.script import (
    Paths,
    brake_lines,
    kept_lines,
    measuring_lines,
    own_variable_lines,
    record_lines,
    samples_gpm,
    stop_lines,
    waiting_for_training_lines,
)
from coach.launch.spelling import format_time, parse_time
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram, Plan, Resources
from coach.runs import expand_home
from coach.sources.slurm.gres import count_gpus
from coach.trusted import open_trusted, read_trusted

MAX_BYTES = 4 << 20
"""Slurm's own limit (MaxScriptSize) unless the site sets another."""
_HEAD_BYTES = 64 << 10
_OPTION = re.compile(r"^#SBATCH\b(.*)$", re.MULTILINE)
_OPTION_LINE = re.compile(r"^#SBATCH\b(.*)(?:\n|\Z)", re.MULTILINE)
_LEADING = re.compile(r"(?:[ \t]*(?:#.*)?\r?\n)*(?:[ \t]*#.*)?")
"""Slurm reads #SBATCH lines only up to the first command."""
_HETEROGENEOUS = re.compile(r"^#SBATCH[ \t]+(?:hetjob|packjob)\b", re.MULTILINE)
_LETTERS = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "n": "ntasks",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "x": "exclude",
}
_FAULTY = (
    (re.compile(r"Invalid directive found in batch script: (?P<word>\S+)"), r"(?<!\S){word}(?!\S)"),
    (re.compile(r"unrecognized option '(?P<word>--[\w-]+)"), r"(?<!\S){word}(?![\w-])"),
    (re.compile(r"invalid option -- '(?P<word>\w)'"), r"(?<!\S)-(?!-)\S*{word}"),
)
"""sbatch's words about an #SBATCH line, which name neither the file nor the line; and the pattern of the part
of the line that they are about."""
_HEREDOC = "COACH_BATCH_FILE"
_CLIENT_HEREDOC = "COACH_CLIENT"
_CLIENT = r"""#!/bin/bash
# Slurm's client of this name. Where Slurm knows the job by coach's script, it prints the user's batch file.
CLIENT=${0##*/}
PATH=${PATH//"${0%/*}":/}
if [[ "$CLIENT ${*:1:3}" == "scontrol write batch_script $SLURM_JOB_ID" ]]; then
  FILE=${4:-slurm-$3.sh}
  if [[ $FILE == - ]]; then exec cat -- "${0%/*}/../script"; fi
  cp -- "${0%/*}/../script" "$FILE" && echo "batch script for job $3 written to $FILE"
  exit
fi
command "$CLIENT" "$@" | LC_ALL=C sed -u -e"""
_SED, _ESCAPED = re.compile(r"[][\\.*^$&#]"), r"\\\g<0>"
"""What sed takes for more than a letter, in a pattern or in its replacement; and the letter itself."""
_DIFFERENCES = (
    (
        re.compile(r"(?<!\w)slurm_script(?![\w.])"),
        "it looks for the name slurm_script, which sbatch gives a file; coach starts it by the name script",
    ),
    (
        re.compile(r"""\bkill\b[^\n;|&]{0,80}\s-["']?\$(?:\$|\{?BASHPID\b)"""),
        "it signals its own process group, which it leads under sbatch; under coach `kill 0` does that",
    ),
    (
        re.compile(
            r"/(?:scontrol\s(?:-\S{1,40}\s){0,4}(?:show\sjob|write)\b|squeue\b[^\n;|]{0,80}%[^\s%]{0,9}o"
            r"|sacct[^\n;|]{0,200}SubmitLine)"
        ),
        "asked by its full path, Slurm's client names coach's script as the job's; write its name alone",
    ),
)
"""What a file can find out about itself that differs from sbatch: the pattern of the line, and the words."""
_SAID = {
    "nodes": "num_nodes",
    "gpus-per-node": "gpus_per_node",
    "cpus-per-task": "cpus_per_task",
    "cpus-per-gpu": "cpus_per_gpu",
    "time": "time_limit_s",
    "mem": "mem",
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "reservation": "reservation",
    "constraint": "constraint",
    "exclude": "exclude",
}
"""Option of sbatch → field of the request that takes its place."""
_ALIKE = (
    frozenset({"gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket"}),
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
)
"""Options of sbatch that ask for the same resource: a job can have one of each group. `gres` asks for GPUs
too, beside other resources."""


def has_options(path: Path) -> bool:
    """True if the file begins with #SBATCH lines."""
    try:
        with open_trusted(path, owner=None, follows_links=True) as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    return bool(_OPTION.search(_header(head)))


def file_of(own: OwnProgram) -> Path:
    """The batch file that an own program is."""
    return Path(own.directory, expand_home(own.words[0]))


def read(path: Path) -> str:
    """The file's text. Raises UserError."""
    try:
        data = read_trusted(path, owner=None, follows_links=True, limit=MAX_BYTES)
        text = data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(
            f"{path}: not UTF-8 text, so it cannot be shown as it would run", "--as-is submits it unread"
        ) from None
    if "\0" in text:
        raise UserError(f"{path}: not a batch file: it holds {len(data)} bytes, and some are not text")
    return text


def check(path: Path) -> None:
    """Raise UserError for a file that coach does not launch."""
    text = read(path)
    if not text.startswith("#!"):
        raise UserError(
            f"{path}: its first line does not name an interpreter, so Slurm would refuse it",
            "begin it with #!/bin/bash",
        )
    if _HEREDOC in text:
        raise UserError(f"{path}: it holds the word {_HEREDOC}, by which coach marks its end", "rename it")
    if "\r\n" in _header(text):
        raise UserError(f"{path}: its lines end as on DOS, so Slurm would refuse it", f"dos2unix {path}")
    if _HETEROGENEOUS.search(text):
        raise UserError(
            f"{path}: a heterogeneous job is several jobs, and coach keeps one run of one job",
            "--as-is submits it; coach shows and checks it",
        )
    array_of(text)


def array_of(text: str) -> TaskIds | None:
    """The array tasks that the file asks for, or None. Raises UserError for a list of tasks that cannot be
    read."""
    said = asked(text).get("array")
    if said is None:
        return None
    tasks = parse_task_ids(f"0_[{said}]")
    if tasks is None or not tasks.tasks:
        raise UserError(f"#SBATCH --array={said}: not a list of tasks", "for example 0-7, or 0-7%2")
    return tasks


def asked(text: str) -> dict[str, str]:
    """Long name of each option in the #SBATCH lines → its value. Of a repeated option the last value counts,
    as for sbatch."""
    lines = _OPTION.findall(_header(text))
    return {name: value for line in lines for name, value, _ in _options_in(line) if name}


def _options_in(line: str) -> Iterator[tuple[str, str, list[str]]]:
    """The long name, the value and the words of each option of an #SBATCH line. The name is empty for an
    option that coach does not know, and for a word that is no option."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return  # sbatch refuses it, in its own words
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and word[1:2] in _LETTERS:
            name, equals, value = _LETTERS[word[1]], word[2:], word[2:].removeprefix("=")
        else:
            yield "", "", [word]
            continue
        if equals or index == len(words) or words[index].startswith("-"):
            yield name, value, [word]
        else:
            yield name, words[index], [word, words[index]]
            index += 1


def faulty_line(own: OwnProgram | None, said: str) -> str | None:
    """File, line and correction of the #SBATCH line that sbatch's words `said` are about; None if they are
    about none, or if it cannot be found."""
    found = next(((match["word"], part) for words, part in _FAULTY if (match := words.search(said))), None)
    if found is None or own is None or own.kind is not OwnKind.BATCH:
        return None
    word, file = found[0], file_of(own)
    part = re.compile(found[1].format(word=re.escape(word)))
    for number, line in enumerate(_header(read(file)).splitlines(), 1):
        option = _OPTION.match(line)
        if option is None or part.search(option[1]) is None:
            continue
        right = _quoted(option[1], word)
        what = f"write {right}" if right is not None else f"correct {line.strip()}"
        return f"{file}:{number}: {what}"
    return None


def _quoted(line: str, stray: str) -> str | None:
    """The option of an #SBATCH line with its whole value in quotes, if its value had blanks and no quotes;
    `stray` is the first word that sbatch could not read."""
    name, words = "", list[str]()
    for each, value, raw in _options_in(line):
        if each:
            if stray in words[1:]:
                break
            name, words = each, value.split()
        else:
            words += raw
    return f'#SBATCH --{name}="{" ".join(words)}"' if name and stray in words[1:] else None


def differences(own: OwnProgram) -> tuple[str, ...]:
    """The lines of a batch file that get something else under coach than under sbatch, in words."""
    path = file_of(own)
    lines = (line.lstrip() for line in read(path).splitlines())
    return tuple(
        f"{own.words[0]}:{number}: {words} (or --as-is: sbatch gets the file itself)"
        for number, line in enumerate(lines, 1)
        for pattern, words in _DIFFERENCES
        if not line.startswith("#") and pattern.search(line)
    )


def without_options(text: str, said: Collection[str], cleared: Collection[str] = ()) -> str:
    """The file's text, without its options `cleared`, and without those in whose place the options `said`
    stand. All other lines stay as they are."""
    gone = {*cleared} | {name for group in _ALIKE if not group.isdisjoint(said) for name in group - {*said}}
    has_gpus = not _ALIKE[0].isdisjoint(said)

    def kept(line: re.Match[str]) -> str:
        options = list(_options_in(line[1]))
        words = [
            word for option in options if option[0] not in gone for word in _without_gpus(option, has_gpus)
        ]
        if words == [word for _, _, before in options for word in before]:
            return line[0]
        return f"#SBATCH {' '.join(map(quote, words))}\n" if words else ""

    header = _header(text)
    return _OPTION_LINE.sub(kept, header) + text[len(header) :]


def _without_gpus(option: tuple[str, str, list[str]], has_gpus: bool) -> list[str]:
    """The words of an option; if the launch asks for GPUs, --gres asks only for the other resources."""
    name, value, words = option
    if name != "gres" or not has_gpus or count_gpus(value) is None:
        return words
    others = [part for part in value.split(",") if count_gpus(part) is None]
    return [f"--gres={','.join(others)}"] if others else []


def resources_of(text: str, request: LaunchRequest) -> Resources:
    """The resources that the file asks for, with the launch's own values in place of the file's. Raises
    UserError for an option of the launch that cannot reach a batch file."""
    options = {name: value for name, value in asked(text).items() if name not in _cleared(request)}
    options |= said_options(request)
    num_ranks = _whole(options.get("ntasks-per-node")) or 1
    if request.nproc_per_node not in (None, num_ranks):
        raise UserError(
            f"--nproc-per-node {request.nproc_per_node}: coach starts a batch file unchanged",
            "change the number of ranks in the file",
        )
    if request.gpu_type and request.gpus_per_node is None:
        raise UserError(f"--gpu-type {request.gpu_type}: a batch file needs --gpus beside it")
    num_nodes = _whole(options.get("nodes", "").split("-")[0]) or 1
    return Resources(
        num_nodes=num_nodes,
        gpus_per_node=_gpus_per_node(options, num_nodes),
        nproc_per_node=num_ranks,
        cpus_per_task=_whole(options.get("cpus-per-task")) or 1,
        time_limit_s=_seconds(options.get("time")),
        mem=options.get("mem"),
        partition=options.get("partition"),
        account=options.get("account"),
        qos=options.get("qos"),
        reservation=options.get("reservation"),
        constraint=options.get("constraint"),
        exclude=options.get("exclude"),
        signal=options.get("signal"),
    )


def said_options(request: LaunchRequest) -> dict[str, str]:
    """The sbatch options that the launch sets, by their long names."""
    options: dict[str, str] = {}
    for option, name in _SAID.items():
        value = getattr(request, name)
        if value not in (None, ""):
            options[option] = format_time(value) if option == "time" else str(value)
    if request.gpus_per_node and request.gpu_type:
        options["gpus-per-node"] = f"{request.gpu_type}:{request.gpus_per_node}"
    if request.signal is not None:
        options["signal"] = f"B:{request.signal.removeprefix('B:')}"
    return {**options, **request.sbatch}


def _cleared(request: LaunchRequest) -> frozenset[str]:
    """The sbatch options that the launch takes out of the file: an empty text means "none"."""
    return frozenset(option for option, name in _SAID.items() if getattr(request, name) == "")


def render(plan: Plan, paths: Paths, record: Mapping[str, Any], version: str) -> str:
    """The script that is submitted."""
    own = plan.request.own
    assert own is not None
    path = file_of(own)
    text = _changed(read(path), own, plan.parameters)
    more = said_options(plan.request)
    more |= {} if "job-name" in asked(text) else {"job-name": path.name}
    more |= {} if own.array_task is None else {"array": str(own.array_task)}
    is_long = plan.request.until_done is not None
    more |= _options_of_segments(text, plan) if is_long else {}
    asking = without_options(text, more, _cleared(plan.request))
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH{each}" for each in _OPTION.findall(_header(asking))),
        *(f"#SBATCH --{key}={quote(value)}" if value else f"#SBATCH --{key}" for key, value in more.items()),
        f"# {path.name} as run {plan.run_id}, written by coach {version}.",
        "# Above: the file's options that hold, then those of the launch. Below: the file, unchanged.",
        f"RUN_DIR={quote(plan.run_dir)}",
        f"CODE={quote(paths.code_dir)}",
        '(umask 077 && mkdir -p "$RUN_DIR")',
        *record_lines(record),
        *(stop_lines() if plan.request.brake is not None else []),
        *brake_lines(plan, paths.own_python),
        "# The batch file, as it was when it was launched.",
        *kept_lines("script", text, _HEREDOC),
        *measuring_lines(
            (quote(paths.own_python), "python3"),
            judge=paths.own_python if paths.is_judged and not is_long else None,
            judge_file=paths.own_file,
            notes_end=not is_long,
            has_gpm=samples_gpm(plan),
        ),
        *own_variable_lines(plan),
        *_client_lines(plan, own),
    ]
    words = " ".join([*map(quote, _interpreter(text)), '"$RUN_DIR/script"', *map(quote, own.words[1:])])
    if is_long:
        lines += _segment_lines(plan, paths, words)
    else:
        lines += [f'exec "${{MEASURED[@]}}" {words}']
    return "\n".join(lines) + "\n"


def _client_lines(plan: Plan, own: OwnProgram) -> list[str]:
    """Lines that put in front of Slurm's clients ones that name the job as after `sbatch FILE`."""
    submitted = [f"{plan.run_dir}/job.sh"]
    if plan.request.sweep_point is not None:
        first = Path(plan.run_dir).with_name(plan.request.sweep_point.group_id)
        submitted.append(f"{first}/{runs.ARRAY_SCRIPT}")
    file = " ".join([str(file_of(own)), *own.words[1:]])
    pairs = [(each, file) for each in submitted]
    pairs += [(_in_json(each), _in_json(file)) for each in submitted]
    changes = ";".join(f"s#{_SED.sub(_ESCAPED, old)}#{_SED.sub(_ESCAPED, new)}#g" for old, new in pairs)
    client = f'{_CLIENT} {quote(changes)}\nexit "${{PIPESTATUS[0]}}"\n'
    return [
        "# Slurm knows this job by this script. Programs of the job that ask for its command get the file's.",
        'mkdir -p "$RUN_DIR/bin"',
        *kept_lines("bin/.client", client, _CLIENT_HEREDOC),
        'chmod 700 "$KEPT"',
        "for NAME in scontrol squeue sacct; do",
        '  if ! type -P "$NAME" > /dev/null; then continue; fi',
        '  ln -sf .client "$RUN_DIR/bin/$NAME"',
        "  # A login shell and modules change the PATH: bash finds its functions before all folders.",
        '  OWN=$(printf %q "$RUN_DIR/bin/$NAME")',
        '  CALL="if [[ -r $OWN ]]; then bash $OWN \\"\\$@\\"; else command $NAME \\"\\$@\\"; fi"',
        '  eval "$NAME() { $CALL; }"',
        '  export -f "${NAME?}"',
        "done",
        'export PATH="$RUN_DIR/bin${PATH:+:$PATH}"',
    ]


def _in_json(text: str) -> str:
    """The text inside a JSON string, as Slurm writes it."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("/", r"\/")


def _options_of_segments(text: str, plan: Plan) -> dict[str, str]:
    """The sbatch options that let the job get a signal before its limit and be requeued."""
    if "signal" in asked(text):
        raise UserError(
            "--until-done: the batch file asks for a signal of its own (#SBATCH --signal)",
            "leave out one of the two",
        )
    mode = {} if "open-mode" in asked(text) else {"open-mode": "append"}
    return {"signal": f"B:{plan.resources.signal}", "requeue": "", **mode}


def _segment_lines(plan: Plan, paths: Paths, words: str) -> list[str]:
    """Lines that run the file as one segment of a training. The shell stays: it receives the signal before
    the limit and asks for the next segment."""
    here = replace(plan, environment=Environment())
    return [
        "if ((${#MEASURED[@]} == 0)); then",
        '  echo "coach: no Python from 3.9 here: no further segment follows this one" >&2',
        f"  exec {words}",
        "fi",
        'PYTHON="${MEASURED[0]}"',
        *judge_lines(paths.own_python if paths.is_judged else None, paths.own_file),
        *segment_lines(here),
        *signal_lines(here),
        "# The file, with the sampler beside it.",
        f'"${{MEASURED[@]}}" {words} {" ".join(resume_words(here))} &',
        *waiting_for_training_lines(),
        *ending_lines(here, paths.own_file),
    ]


def _header(text: str) -> str:
    header = _LEADING.match(text)
    return header[0] if header else ""


def _interpreter(text: str) -> list[str]:
    """The first line's program and its one argument, as the kernel reads it."""
    return text.partition("\n")[0].removeprefix("#!").strip().split(None, 1)


def _changed(text: str, own: OwnProgram, values: Mapping[str, Any]) -> str:
    """The file's text with the requested values. Raises UserError for a value that has no place in the
    text."""
    script = read_script([text])
    changes = {key: values[key] for key, old in script.parameters.items() if values.get(key, old) != old}
    if not changes:
        return text
    texts, unsaid = change_script(script, changes)
    if unsaid:
        raise UserError(f"{own.words[0]}: nothing in it says {', '.join(unsaid)}")
    return texts[0]


def _gpus_per_node(options: Mapping[str, str], num_nodes: int) -> int:
    """The most GPUs that one of the nodes gets."""
    if (count := _num_gpus(options.get("gpus-per-node"))) is not None:
        return count
    if (count := count_gpus(options.get("gres", ""))) is not None:
        return count
    if (count := _num_gpus(options.get("gpus"))) is not None:
        return _share(count, num_nodes)
    num_tasks = _whole(options.get("ntasks-per-node"))
    if num_tasks is None:
        num_tasks = _share(_whole(options.get("ntasks")) or 1, num_nodes)
    return num_tasks * (_num_gpus(options.get("gpus-per-task")) or 0)


def _num_gpus(value: str | None) -> int | None:
    """The GPUs of `2`, `a100:2,v100:1` or `a100`: a GRES without its name."""
    return count_gpus(",".join(f"gpu:{part.strip()}" for part in value.split(","))) if value else None


def _share(count: int, num_nodes: int) -> int:
    return -(-count // num_nodes)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text, "--time")
    except UserError:
        return None  # Slurm takes other words too, for example UNLIMITED
