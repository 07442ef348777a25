"""Decide from the lines after an error whether it ended the program, or the program caught it and went on.

Both kinds of logs hold the same error messages. All rules about errors share the answer given here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice

from coach.model.error_block import ErrorBlock
from coach.model.judging.outcome import LogSigns
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail

MAX_FLUSHED_LINES = 200
"""A traceback with more lines than this below it was caught: a dying process flushes fewer."""

_CAUGHT_AFTER_LINES = 40
"""An error without a traceback counts as caught after this many lines, if no sign of an end follows."""

_UNBUFFERED = re.compile(r"\d%\||\bINFO\b(?! \S+:\d+ -> \d)(?! .*Abort COMPLETE)|\d(?:it/s|s/it)\b")
"""Progress bars and loggers write to stderr unbuffered: a dying process did not flush these lines, unlike
printed ones."""

_SIGNS_OF_LIFE = 10
"""Unbuffered lines below an error that show that the program lives. Other ranks may write fewer before they
are ended too."""

_TRIED_AGAIN = re.compile(
    r"\b[Rr]etrying\b|\bretry (?:loop|in|with|\d)|-> retry\b|[Ww]ill (?:be )?(?:retry|retried|try again)"
    r"|\b[Ff]all(?:ing|s)? back to\b|, trying (?:another|port|\d)"
    r"|\boffline\b(?!-run|[- ]mode|['\"]?\s*[:=])|\b[Uu]sing (?:cached|previous|default)\b"
    r"|starting from scratch|\b(?<!marked as )skipp(?:ed|ing)\b|, using (?:\S+ )?\S+(?: instead|$)"
)
_ADVICE = re.compile(r"^\s*(?:#|- )|[Yy]ou can|[Pp]lease|set ")
_TRIED_AGAIN_LINES = 3

_DEATH = re.compile(
    r"Traceback \(most recent call last\)|^\S*(?:Error|Exception): |^(?:srun"
    r"|slurmstepd\S*): error: (?!.*(?:CANCELLED AT|: Terminated$))|ChildFailedError|core dumped"
)
"""Lines that show that a program died: of this error, of its consequences on other ranks, or of another
error. A cancelled job does not count."""

_ENDED_WELL = re.compile(
    r"\b[Tt]raining\b(?:(?!\b(?:be|not|cannot|failed)\b|n't\b).){0,20}"
    r"\b(?:[Dd]one|[Ff]inished|[Cc]ompleted?)\b"
    r"(?! (?:on (?!\d{4})|using |only |with (?:mixed|automatic|amp|[bf][fp]?\d+|exit|code|status|errors?)\b))"
    r"|\bdone training\b"
    r"|\b(?<!not )(?<!n't )(?<!be )(?:finished|exits|(?<!completed )completed) successfully\b"
    r"|`Trainer\.fit` stopped(?!: No training batches)"
)
"""Lines that report a successful end, by the program or its script. "Training will be done on cuda:0" and
"Training could not be completed" do not."""

_TASKS_DIED = re.compile(
    r"srun: error: \S+: tasks? \[?(?P<tasks>[\d,-]{1,200})\]?: (?:Exited with exit code [1-9]"
    r"|Killed|Out Of Memory"
    r"|Segmentation|Aborted|Bus error)"
)
_TESTS_PASSED = re.compile(r"^=+ (?!.*\b(?:failed|errors?)\b)(?>.*?\d passed\b).* in [\d.:]+")
"""pytest's last line when all tests passed: the errors above it were expected."""

_OF_THE_SCRIPT = 3
"""Lines that a batch script may print below an error of its last program: `echo done`, `date`."""
_COUNTS = re.compile(
    r"\b(?:epoch|step|iter|batch)\w*\W{0,3}\d|\d%|(?<![\d/])\d+/\d+(?![\d/])"
    r"|(?:accuracy|acc|loss|perplexity|ppl|f1|auc|iou|map|bleu|rouge|wer|score|reward|eval|val|test)\w{0,12}"
    r"\W{1,3}\d",
    re.IGNORECASE,
)
"""Steps and evaluations. A script prints dates and the words step and batch too."""
_NOT_STARTED = re.compile(r"\S*python[\d.]*: can't open file |\S+\.py: error: ")
"""Messages about a missing script, and of one that refuses its arguments: no program ran that could go
on."""

_OF_THE_SITE = re.compile(
    r"/etc/|/(?!\S{0,200}(?:conda|mamba|forge|python|env))(?:apps|cvmfs|opt|sw|software|usr)/"
    r"(?:[^\s/]{1,60}/){0,9}(?:bin|etc|libexec|sbin|share)/(?:[^\s/]{1,60}/){0,9}[^\s/]{1,60}\.py$"
)
"""Programs that the site runs before the job's own: a prologue, a notice, a check of the quota."""

_OF_A_TOOL = re.compile(r"\w{1,20}: .{1,200}: No such file or directory$")
"""What a command says that misses the file which an earlier one did not make."""
_MONITOR = re.compile(r"\b(?:nvidia-smi|dcgmi|tensorboard|sleep|tail)\b")
_SHELL_JOB = re.compile(r": line \d+: +\d+ (?:Killed|Terminated|Hangup|Interrupt)\b(?P<command>.*)")
"""A shell's message about a program that a signal ended."""

_OF_A_PROGRAM = re.compile(rf"{_DEATH.pattern}|{_SHELL_JOB.pattern}|^\W*[Ee]xit (?:code|status)\b")
"""Messages about the end of a program. The script may go on and print "done" nevertheless."""

PROGRAM = "syntax"
"""The signature of errors of programs in other languages than Python, of COD001."""
_MAX_LINE_CHARS = 2000
"""Patterns see only this many characters of a line."""
_PREFIX = re.compile(
    r"(?:\[(?=[a-z, :]{0,20}\d)[\w,: ]{1,40}\](?:<\w+>)?:? ?|\s{0,5}\d+: "
    r"|\([^)]{0,60}(?:pid|ip)=[^)]{0,60}\) ?"
    r"|\d{4}-\d\d-\d\d[T ]\S+ )*"
)
"""Rank and time that a launcher or a logger puts before a line."""
_OF_C = r"^\S+ at \.{0,2}/\S+(?:\.\w+:\d+| \(unknown line\))$|unknown function \(ip: "
"""Frames of native code, as Julia prints them for each of its threads."""
_QUIET = re.compile(
    r"\W*$|srun: |slurmstepd|make(?:\[\d+\])?: |wandb: |\[W\d{3,4} |\s|[-=*^~+#]{3,}|.*(?:\b[Ee]xit(?:ed|ing"
    r"|s)?\b|[Kk]illed|[Tt]erminat|\b[Aa]bort|\bfailed\b|[Cc]ore dumped|Error\b|ERROR\b|error:)"
    r"|(?:See|For more|Please|Try|Run|Hint|Note|note:|hint:|help:|use|Use|If|Complete log)\b|frame #\d"
    r"|File \""
    r"|(?:Calls|Stacktrace|Backtrace|Work dir|Tip): ?|in expression starting at |Execution halted|Caused by:"
    rf"|(?:real|user|sys)\t\d|\*\*\* |.*Execution complete -- Goodbye$|{_OF_C}"
)
"""A line that is no sign of life: it belongs to the error or to the end of the program."""

_DUMPED = re.compile(
    r'^\W*$|^(?:srun|salloc|slurmstepd\S*): |NVRM: |^\[ *\d+\.\d+\] |\bkernel: |File "|frame #\d'
    r"|Thread 0x|Current thread 0x|Extension modules: "
    rf"|{_OF_C}|^\s+- \S+$"
)
"""Lines that a fault handler prints for each thread of a dying process, those of Julia too, Slurm's about its
step, and the items of a list in an error. They are no sign of life."""


def signs_of(tail: LogTail) -> LogSigns:
    """The signs in the kept lines of a log, for all errors above them."""

    def indices(pattern: re.Pattern[str]) -> tuple[int, ...]:
        return tuple(index for index, line in enumerate(tail.plain) if pattern.search(line))

    return LogSigns(
        deaths=indices(_DEATH),
        good_ends=indices(_ENDED_WELL),
        passed_tests=indices(_TESTS_PASSED),
        num_unbuffered=tuple(accumulate((bool(_UNBUFFERED.search(line)) for line in tail.plain), initial=0)),
        num_told=tuple(accumulate((not _DUMPED.search(line) for line in tail.plain), initial=0)),
    )


def losses_after(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a finite loss follows further down in the same log."""
    return snapshot.outcome is not None and snapshot.outcome.last_losses.get(hit.file, 0) > hit.line


def tail_of(hit: LogHit, snapshot: TargetSnapshot) -> LogTail | None:
    """The end of the log that a hit stands in."""
    return next((tail for tail in snapshot.log_tails if tail.file == hit.file), None)


def went_on(hit: LogHit, snapshot: TargetSnapshot, is_running_enough: bool = True) -> bool:
    """True if the error was caught: the run completed (not only its script) or still runs, the operation was
    tried again, losses follow in the same log, or the log ends well much later.

    Losses right after a traceback prove nothing, because a dying process flushes its buffers; many lines do.
    Pass `is_running_enough=False` where the job may run on although one rank has ended.
    """
    state = snapshot.state
    if state == "COMPLETED":
        return not is_hidden_by_status(hit, snapshot)
    if is_running_enough and state is not None and not is_final(state):
        return True
    tail = tail_of(hit, snapshot)
    if _says_tried_again(hit.text):
        return True
    if tail is None:
        return not hit.traceback and losses_after(hit, snapshot)
    if hit.rank is not None and _is_told_dead(hit.rank, lines_after(hit, tail)):
        return False
    signs = _signs(tail, snapshot)
    if _was_expected(hit, tail, signs):
        return True
    if losses_after(hit, snapshot):
        return not hit.traceback or tail.num_lines - hit.line > MAX_FLUSHED_LINES
    return _lived_long_after(hit, tail, signs) or _came_again_and_was_outlived(hit, tail, signs)


def _is_told_dead(rank: int, lines: Sequence[str]) -> bool:
    """True if srun says that the task of this rank failed: what other ranks print proves nothing for it."""
    ranges = [
        part.split("-")
        for line in lines
        if (found := _TASKS_DIED.match(line))
        for part in found["tasks"].split(",")
        if part.strip("-")
    ]
    return any(int(each[0]) <= rank <= int(each[-1] or each[0]) for each in ranges)


def is_hidden_by_status(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if an error ended a program of a job that COMPLETED: its script went on, or a pipe lost the exit
    status.

    Most such jobs caught their errors. So the error must be one that Python itself prints at its end, and
    below it may stand no step, no evaluation, and hardly a line. A line that reports success proves nothing:
    the script may print it whatever its program did.
    """
    tail = tail_of(hit, snapshot)
    if snapshot.state != "COMPLETED" or tail is None or not tail.is_counted or _told_its_status(snapshot):
        return False
    signs = _signs(tail, snapshot)
    if losses_after(hit, snapshot) or _was_expected(hit, tail, signs):
        return False
    if any(block.exit_code for block in tail.blocks if block.last_line >= hit.line):
        return True
    return (is_uncaught(hit.block) or _was_not_started(hit)) and _is_last_word(hit, tail)


def _was_not_started(hit: LogHit) -> bool:
    return _NOT_STARTED.match(bare(hit.text)) is not None


def _is_last_word(hit: LogHit, tail: LogTail) -> bool:
    """True if no program went on below an error: no step and no evaluation follows, and at most what a script
    prints."""
    # The exception lines of later blocks are no sign of life, and are not counted.
    alive = [line for line in map(bare, lines_after(hit, tail)) if not is_quiet(line)]
    unknown = [line for line in alive if not _ENDED_WELL.search(line)]
    return len(unknown) <= _OF_THE_SCRIPT and not any(map(_COUNTS.search, alive))


def _told_its_status(snapshot: TargetSnapshot) -> bool:
    """True if coach started the training itself, not a script around it, and saw it end with status 0."""
    run, end = snapshot.run, snapshot.exit
    if run is None or end is None or end.exit_code != 0 or not run.launch:
        return False
    own = run.launch.get("own")
    return own is None or (isinstance(own, Mapping) and own.get("kind") == "script")


def is_uncaught(block: ErrorBlock | None) -> bool:
    """True for an exception of a main thread that no logger printed."""
    if block is None or not block.may_end_process or block.level:
        return False
    return block.name not in ("KeyboardInterrupt", "SystemExit")


def cut_block(tail: LogTail) -> ErrorBlock | None:
    """The traceback inside which a log ends; None if it ends elsewhere."""
    last = tail.blocks[-1] if tail.blocks and tail.is_counted else None
    if last is None or last.type is not None or not last.is_traceback or last.is_ignored or last.level:
        return None
    below = tail.plain[max(0, last.last_line - tail.first_line + 1) :]
    return None if num_alive([bare(line) for line in below]) else last


def _was_expected(hit: LogHit, tail: LogTail, signs: LogSigns) -> bool:
    """True if the lines around an error say that it was ignored or tried again, or the log ends well."""
    start = _below(hit, tail)
    next_said = islice(filter(str.strip, islice(tail.plain, start, None)), _TRIED_AGAIN_LINES)
    if any(map(_says_tried_again, next_said)) or (hit.block is not None and hit.block.is_ignored):
        return True
    if is_of_the_site(hit.block) and signs.num_told[-1] > signs.num_told[start]:
        return True
    if signs.passed_tests and signs.passed_tests[-1] >= start:
        return True
    is_of_a_program = hit.block is not None or _was_not_started(hit) or _OF_A_PROGRAM.search(hit.text)
    return not is_of_a_program and _ends_well(signs, start)


def is_of_the_site(block: ErrorBlock | None) -> bool:
    """True for a traceback of a program of the site. The job goes on after it, if anything follows."""
    frames = block.all_frames if block is not None and block.is_traceback and block.rank is None else ()
    return bool(frames) and _OF_THE_SITE.match(frames[0].file) is not None


def _lived_long_after(hit: LogHit, tail: LogTail, signs: LogSigns) -> bool:
    """True if more was printed below an error than a dying process could hold in its buffers."""
    start = _below(hit, tail)
    death = signs.death_from(start)
    until = len(tail.plain) if death is None else death
    if signs.num_unbuffered[until] - signs.num_unbuffered[start] >= _SIGNS_OF_LIFE:
        return True
    enough = MAX_FLUSHED_LINES if hit.traceback else _CAUGHT_AFTER_LINES
    num_told = signs.num_told[until] - signs.num_told[start]
    is_long_ago = (hit.line < tail.first_line and num_told > 0) or num_told > enough
    return is_long_ago and death is None


def _came_again_and_was_outlived(hit: LogHit, tail: LogTail, signs: LogSigns) -> bool:
    """True if the same traceback stands further down and did not end its program: several attempts share the
    log, and a later one went on."""
    if hit.block is None or not hit.traceback:
        return False
    said = hit.block.lines[-1]
    later = (each for each in tail.blocks if each.first_line > hit.line and each.lines[-1] == said)
    return any(_lived_long_after(replace(hit, line=each.last_line), tail, signs) for each in later)


def only_error(snapshot: TargetSnapshot) -> LogHit | None:
    """The hit of the only error block in the logs of a job that failed; None if there is none or another one,
    if it was expected, or if losses follow.

    It may have ended the job however many lines follow it: other processes may have printed them.
    """
    if snapshot.state != "FAILED":
        return None
    hits = [hit for hit in snapshot.log_hits if hit.block is not None]
    blocks = [hit.block for hit in hits if hit.block is not None]
    blocks += [block for tail in snapshot.log_tails for block in tail.blocks]
    if not hits or len(set(map(_place, blocks))) != 1:
        return None
    hit, tail = hits[0], tail_of(hits[0], snapshot)
    if tail is None or not tail.is_counted or losses_after(hit, snapshot):
        return None
    is_expected = _says_tried_again(hit.text) or _was_expected(hit, tail, _signs(tail, snapshot))
    return None if is_expected else hit


def lines_below(hit: LogHit, snapshot: TargetSnapshot) -> int:
    """Number of lines below a hit in its log."""
    tail = tail_of(hit, snapshot)
    return max(0, tail.num_lines - hit.line) if tail is not None else 0


def _place(block: ErrorBlock) -> tuple[str, int]:
    """The file and the first line of a block, or of the blocks that led to it."""
    return block.file, min([block.first_line, *(each.first_line for each in block.chain)])


def was_outlived(hit: LogHit, snapshot: TargetSnapshot, num_lines: int = 1) -> bool:
    """True if the script went on after a shell's error message: at least `num_lines` lines follow, and none
    reports a death."""
    tail = tail_of(hit, snapshot)
    if tail is None or snapshot.state is not None:
        return False
    signs, start = _signs(tail, snapshot), _below(hit, tail)
    num_told = signs.num_told[-1] - signs.num_told[start]
    num_told -= sum(map(bool, map(_OF_A_TOOL.match, tail.plain[start:])))
    return num_told >= num_lines and signs.death_from(start) is None


def was_passed_by(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a program's own error follows a shell's message: its script went on, and that error says
    more."""
    tail = tail_of(hit, snapshot)
    later = (block for block in tail.blocks if block.first_line > hit.line) if tail is not None else ()
    told = (each for each in snapshot.log_hits if each.signature == PROGRAM and each.file == hit.file)
    return any(not block.is_ignored for block in later) or any(each.line > hit.line for each in told)


def ended_well(hit: LogHit, tail: LogTail, snapshot: TargetSnapshot) -> bool:
    """True if the log reports a successful end further down, and no death."""
    return _ends_well(_signs(tail, snapshot), _below(hit, tail))


def _ends_well(signs: LogSigns, start: int) -> bool:
    return bool(signs.good_ends) and signs.good_ends[-1] >= start and signs.death_from(start) is None


def _signs(tail: LogTail, snapshot: TargetSnapshot) -> LogSigns:
    """The log's signs, from the outcome if it has them."""
    known = snapshot.outcome.signs.get(tail.file) if snapshot.outcome is not None else None
    return known or signs_of(tail)


def is_monitor(hit: LogHit) -> bool:
    """True if a shell reports the end of a monitor that only ran beside the program."""
    found = _SHELL_JOB.search(hit.text)
    return found is not None and bool(_MONITOR.search(found["command"]))


def lines_after(hit: LogHit, tail: LogTail) -> Sequence[str]:
    """The kept lines below a hit."""
    return tail.plain[_below(hit, tail) :]


def is_below(pattern: re.Pattern[str], hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a line below a hit holds a match."""
    tail = tail_of(hit, snapshot)
    return tail is not None and any(map(pattern.search, lines_after(hit, tail)))


def num_alive_after(hit: LogHit, tail: LogTail) -> int:
    """Number of lines below a hit that are a sign of life; those of other tracebacks are none."""
    dead = {
        n
        for block in tail.blocks
        if not block.is_ignored
        for n in range(block.first_line, block.last_line + 1)
    }
    start = _below(hit, tail)
    below = enumerate(tail.plain[start:], tail.first_line + start)
    return num_alive([bare(line) for number, line in below if number not in dead])


def num_alive(lines: Sequence[str]) -> int:
    return sum(1 for line in lines if not is_quiet(line))


def is_quiet(line: str) -> bool:
    """True for a line that is no sign of life: it belongs to an error or to the end."""
    return bool(_QUIET.match(line))


def bare(line: str) -> str:
    """The part of a line that patterns see, without a leading rank and time."""
    found = _PREFIX.match(line)
    return line[found.end() if found else 0 :][:_MAX_LINE_CHARS]


def _below(hit: LogHit, tail: LogTail) -> int:
    """Index of the first kept line below a hit; the number of kept lines if there is none."""
    return min(len(tail.plain), max(0, hit.line - tail.first_line + 1))


def _says_tried_again(line: str) -> bool:
    return bool(_TRIED_AGAIN.search(line)) and not _ADVICE.search(line)
