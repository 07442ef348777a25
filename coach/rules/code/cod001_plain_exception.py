"""COD001: the program ended with an exception that no other rule knows: a plain mistake of the program, and
no more is claimed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.aftermath import above_traceback, lines_after, went_on
from coach.rules.from_logs.failed_connections import is_inside_the_cluster
from coach.rules.from_logs.first_lost_rank import FirstFailure, first_failure
from coach.rules.from_logs.library_exceptions import is_of_a_load, is_of_a_peer, is_of_a_table, owner_of
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, is_library, own_frame, quote, ranks_text
from coach.rules.from_logs.torchrun_exit_codes import OF_THE_SUMMARY

_EXCEPTION = (
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*)?(?:Error|Exception|Warning|Timeout|Violation|Invalid|Empty)"
    r"|(?:\w+\.)*\w+\.(?:error|timeout)|StopIteration"
    r"|(?:\w+\.)*(?:errors|error|exceptions|exception|\w+\.exc)\.[A-Z]\w+)"
    r"(?:: (?P<words>.*)|:?[ \t\r\f\v]*$)"
)
_USAGE = (
    r"^(?:\S+/)?(?P<type>[\w.-]+\.py: error"
    r"|(?!conda|mamba|pip|aws)[\w.-]+(?: [a-z][\w-]*)?: error(?=: (?:unrecognized arguments"
    r"|the following arguments are required|argument |one of the arguments))"
    r"|error(?=: (?:Parser key |Key \"|No action for |Unrecognized arguments|Validation failed"
    r"|Configuration check failed))): (?P<words>.+)"
)
"""argparse's words, of a script or of a command that was installed, and jsonargparse's (LightningCLI's),
which name no program."""
_USAGE_LITERALS = (
    *(
        ".py: error: ",
        ": error: unrecognized arguments",
        ": error: the following arguments",
        ": error: argument ",
        ": error: one of ",
    ),
    *(
        "error: Parser key ",
        'error: Key "',
        "error: No action for ",
        "error: Unrecognized arguments",
        "error: Validation failed",
        "error: Configuration check",
    ),
)

_HYDRA = r"^Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace"
"""What Hydra ends with, below the traceback that it shortened, or below bare words where a configuration
cannot be composed."""
_HYDRA_SAYS = re.compile(
    r"^(?:In '.*?': |Could not |Cannot find |You must specify |Primary config |Error (?:merging|parsing"
    r"|loading) |Missing |Key '|Lexer|mismatched |no viable "
    r"|Ambiguous |Multiple values |Unrecognized |Duplicate )"
)
_MAX_LINES_OF_HYDRA = 40

_ECHO = re.compile(
    r"^(?:ChildFailedError|SignalException|ProcessRaisedException|ProcessExitedException|RayTaskError.*"
    r"|RayActorError|ActorDiedError)$"
)
"""What says that another process ended, never why."""
_SPAWNED = re.compile(r"(?:^|[^\w.])Exception:\s*$")
"""The same of torch.multiprocessing.spawn before torch 1.6: the traceback of the process begins two lines
below."""
_LAUNCHER = "ChildFailedError"
_ENDED_BY_SIGNAL = re.compile(r"exit ?code *: *-")
_WEAK = re.compile(
    r"^(?:EOFError|TimeoutError|Empty|IncompleteReadError|ActorUnavailableError|EngineDeadError"
    r"|CancelledError|CalledProcessError"
    r"|BrokenPipeError|Connection(?:Reset|Refused|Aborted)Error)$"
)
"""The same, where anything else was said."""
_CRASH = ("COD002", "segfault")
"""A process that a signal ended: what is known of it from elsewhere are echoes."""
_LOOKED_INTO = ", in _try_get_data"
_NAMED = re.compile(r"^(?:\w++\.)*+[A-Z]\w+(?:Error|Exception)$")
_LONG_SPOKEN = re.compile(r"^(?:hydra|omegaconf|pydantic\w*|jax\w*|tensorflow)\.")
"""Exceptions whose words go on in the lines below them."""
_MAX_WORDS_LINES = 8
_CAUGHT_ELSEWHERE = re.compile(
    r"Caught \w+ in (?:DataLoader worker|replica)|can only (?:test|join) a child process"
    r"|Horovod has been shut down\. This was caused by an exception on one of the ranks"
)
"""Of the same kind: also what a DataLoader's iterator says when a forked process collects it, which Python
ignores."""
_SEE_ABOVE = re.compile(
    r"^.{0,120}?\. See (?:root cause above|stack trace (?:\(above\) )?for (?:the )?root cause)"
)
"""What a server says whose engine or worker, a process of its own, has ended."""

_UNPREFIXED = re.compile(
    r"^(?:\[[\w,: ]+\](?:<\w+>)?:? ?| {0,5}\d+: |\([^()]{0,80}?pid=[^()]{0,80}\) ?|[a-z][\w.-]*\d: "
    r"|\d{4}-\d\d-\d\dT\S+ |(?:ERROR|CRITICAL) [\d: -]++\[?\S+\.py:\d+\] ?)*"
)
"""What launchers put before the lines of a tail, which are kept as they are."""
_BOXED_FRAME = re.compile(r"│ (?P<file>/\S+\.py):(?P<line>\d+) in (?P<name>\S+)")
_INSIDE = re.compile(r"^(?:\s{2,}+\S|[╰└])")
_NOTEBOOK = re.compile(r"^(?:-++> ?)?\s*+\d++ ")
"""What a notebook shows of the code, with an empty line behind it."""
_NO_SIGN_OF_LIFE = re.compile(
    r"^\s|^$|Traceback|Error\b|Exception\b|^wandb: |^srun: |^slurmstepd|\[[WEF]\d* |exit|[Kk]ill|terminat"
    r"|frame #|^\*+$|^[-=^~]+$|\bERROR\b"
)


class PlainException(Rule):
    """The program ended with an exception that no other rule knows: a plain mistake of the program.

    What it sees
        The last line of a Python traceback that no other rule claims, or the words with which a program
        refuses its arguments (`train.py: error: …`), or Hydra a configuration, where the log ends soon after
        it.
    Why it matters
        The job is over, and will end at the same place again until the program is changed.
    When it stays silent
        Where the program went on (it completed, losses follow, much more was printed), on the echoes of
        another process's end (ChildFailedError, CalledProcessError, Ray's wrappers, a broken pipe) unless the
        log holds nothing else, and on whatever another rule explains.
    What to do
        Look at the innermost frame of the program's own code, which is shown. Try the same for a few steps on
        a small input, without waiting for the queue.
    Sources
        Python's traceback module; argparse; torch.distributed.elastic's error files.
    """

    code = "COD001"
    name = "plain-exception"
    cause = "code_error"
    severity = Severity.CRITICAL
    needs = (frozenset({Need.LOG}),)
    thresholds = (
        Threshold(
            "max_lines_after",
            50,
            "lines",
            (
                "a dying program flushes some lines and its launcher adds a few; one that caught the error "
                "says more"
            ),
        ),
    )
    signatures = (
        Signature(
            "COD001",
            "exception",
            (
                "Error",
                "Exception",
                "Warning",
                "Timeout",
                "Violation",
                "Invalid",
                "Empty",
                ".error",
                ".timeout",
                "StopIteration",
                "errors.",
                "error.",
                "exceptions.",
                "exception.",
                ".exc.",
            ),
            _EXCEPTION,
        ),
        Signature("COD001", "usage", _USAGE_LITERALS, _USAGE),
        Signature("COD001", "hydra", ("HYDRA_FULL_ERROR=1",), _HYDRA),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = [hit for hit in self._unexplained(snapshot) if not self._went_on(hit, snapshot)]
        if not hits:
            return
        first = earliest(hits)
        if first.signature == "exception" and _is_echo(first):
            yield _of_another_log(first, first_failure(snapshot))
            return
        kind, words = first.fields.get("type", "Hydra"), first.fields.get("words", "")
        if first.signature == "hydra":
            words = _words_of_hydra(first, snapshot)
        ranks = sorted({hit.rank for hit in hits if hit.rank is not None})
        frame = own_frame(first) or _boxed_frame(first, snapshot)
        yield Hit(
            summary=(
                "The program ended with "
                f"{kind.rpartition('.')[2] if first.signature == 'exception' else 'an error'}"
            )
            + (f": {words[:200]}" if words else "")
            + (f" ({ranks_text(ranks)})" if ranks else ""),
            evidence=(quote(first), *([frame] if frame else [])),
            confidence=0.8,
            subject=Subject(rank=ranks[0] if len(ranks) == 1 else None),
            fixes=(Fix("Correct the program at the line that is shown, and try it for a few steps"),),
            since_s=first.time_s,
        )

    def _hits_of_others(self, snapshot: TargetSnapshot) -> list[LogHit]:
        """What other rules see in the log; nothing where all of it is nobody's."""
        others = [
            hit
            for hit in snapshot.log_hits
            if hit.rule not in (self.code, PROGRESS.rule, "")
            and not is_of_a_table(hit)
            and not is_inside_the_cluster(hit)
        ]
        return [] if all(map(_is_nobodys, others)) else others

    def _unexplained(self, snapshot: TargetSnapshot) -> list[LogHit]:
        others = self._hits_of_others(snapshot)
        places = {(hit.file, hit.line) for hit in others}
        told = {(hit.file, hit.line) for hit in others if not hit.text.startswith(("srun:", "slurmstepd:"))}
        words = {hit.text for hit in others}
        mine = [
            hit
            for hit in hits_of(snapshot, self.code, "exception", "usage")
            if (hit.file, hit.line) not in places
            and not _is_told_below(hit, told)
            and not _is_of_another(hit, words, snapshot)
            and _ends_the_program(hit, snapshot)
        ]
        strong = [hit for hit in mine if not _is_weak(hit)]
        if not strong and any((hit.rule, hit.signature) == _CRASH for hit in others):
            return []
        if strong or mine or any(hit.signature not in OF_THE_SUMMARY for hit in others):
            return strong or mine
        return hits_of(snapshot, self.code, "hydra") or _of_a_launcher(snapshot)

    def _went_on(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if went_on(hit, snapshot):
            return True
        tail = next((tail for tail in snapshot.log_tails if tail.file == hit.file), None)
        if snapshot.state is not None or tail is None:
            return False
        if hit.line < tail.first_line:
            return True
        after = (_UNPREFIXED.sub("", line) for line in lines_after(hit, tail))
        return sum(1 for line in after if not _NO_SIGN_OF_LIFE.search(line)) > self.values["max_lines_after"]


def _is_told_below(hit: LogHit, told: Set[tuple[str, int]]) -> bool:
    """True if an exception's words go on below, in a line that another rule knows."""
    is_long = _LONG_SPOKEN.match(hit.fields["type"]) is not None
    return is_long and any((hit.file, hit.line + n) in told for n in (1, 2))


def _is_of_another(hit: LogHit, words: Set[str], snapshot: TargetSnapshot) -> bool:
    """True if another process, another rule's exception or a thread of a library stands behind it."""
    return (
        _is_echo(hit)
        or owner_of(hit) is not None
        or (_is_weak(hit) and _is_of_a_thread(hit, snapshot))
        or _is_chained_to(hit, words)
    )


def _ends_the_program(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a traceback, a refusal of arguments, or the log's end shows that it was not a mere line of
    text."""
    return (
        hit.signature == "usage"
        or bool(hit.traceback)
        or _follows_frames(hit, snapshot)
        or _is_last_word(hit, snapshot)
    )


def _is_echo(hit: LogHit) -> bool:
    name = hit.fields["type"].rpartition(".")[2]
    return bool(
        _ECHO.match(name)
        or _SPAWNED.search(hit.text)
        or _CAUGHT_ELSEWHERE.match(hit.fields.get("words", ""))
        or _SEE_ABOVE.match(hit.fields.get("words", ""))
    )


def _of_a_launcher(snapshot: TargetSnapshot) -> list[LogHit]:
    """What torchrun or a server says of a rank that ended with an error, where that is all that is known of
    it."""
    tails = {tail.file: tail for tail in snapshot.log_tails}
    return [
        hit
        for hit in hits_of(snapshot, PlainException.code, "exception")
        if (hit.fields["type"].endswith(_LAUNCHER) or _SEE_ABOVE.match(hit.fields.get("words", "")))
        and hit.file in tails
        and not any(map(_ENDED_BY_SIGNAL.search, tails[hit.file].plain))
    ]


def _of_another_log(hit: LogHit, failure: FirstFailure | None) -> Hit:
    which = (
        f"Rank {failure.rank} ended with exit code {failure.exit_code}"
        if failure
        else "A rank ended with an error"
    )
    return Hit(
        summary=f"{which}, and why is not in this log",
        subject=Subject(rank=failure.rank if failure else None),
        evidence=(quote(hit),),
        confidence=0.5,
        fixes=(
            Fix(
                "Look for its traceback where the rank's own output went (torchrun's --log-dir, a file "
                "for stderr)"
            ),
            Fix(
                "Put torch.distributed.elastic.multiprocessing.errors.record on the main function: it is "
                "then told here"
            ),
        ),
        since_s=hit.time_s,
    )


def _is_weak(hit: LogHit) -> bool:
    return bool(_WEAK.match(hit.fields["type"].rpartition(".")[2]))


def _is_nobodys(hit: LogHit) -> bool:
    """An EOFError that is none of a file of weights: the rule that looks for it declines it."""
    return "short" in hit.fields and bool(hit.traceback) and not is_of_a_load(hit) and not is_of_a_peer(hit)


def _is_last_word(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether an exception that names itself, without a traceback, is what the program said last."""
    tail = next((tail for tail in snapshot.log_tails if tail.file == hit.file), None)
    return (
        tail is not None
        and hit.line >= tail.first_line
        and bool(_NAMED.match(hit.fields["type"]) and hit.fields.get("words", "").strip())
        and sum(
            1 for line in lines_after(hit, tail) if not _NO_SIGN_OF_LIFE.search(_UNPREFIXED.sub("", line))
        )
        <= (_MAX_WORDS_LINES if _LONG_SPOKEN.match(hit.fields["type"]) else 0)
    )


def _words_of_hydra(hit: LogHit, snapshot: TargetSnapshot) -> str:
    """What Hydra says above its last line: the first line of it that is known."""
    for tail in snapshot.log_tails:
        end = hit.line - tail.first_line
        if tail.file == hit.file and end > 0:
            said = (line.strip() for line in tail.plain[max(0, end - _MAX_LINES_OF_HYDRA) : end])
            return next((line for line in said if _HYDRA_SAYS.match(line)), "")
    return ""


def _is_of_a_thread(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether a thread beside the program ended so, or a look into a DataLoader's queue: a program goes on
    without it, or says why it does not."""
    return any(_LOOKED_INTO in line for line in hit.traceback) or any(
        "Exception in thread" in line
        for tail in snapshot.log_tails
        if tail.file == hit.file
        for line in above_traceback(hit, tail)
    )


def _is_chained_to(hit: LogHit, explained: Set[str]) -> bool:
    """Whether an exception in the same chain of tracebacks, above this one, is explained by another rule."""
    above = [line for line in hit.traceback[:-1] if line[:1].strip() and not line.startswith("Traceback")]
    return any(text.endswith(line) for line in above for text in explained)


def _follows_frames(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether the line above is part of a traceback whose head is not in the log."""
    for tail in snapshot.log_tails:
        index = hit.line - tail.first_line - 1
        if tail.file == hit.file and 0 <= index < len(tail.lines):
            above = [_UNPREFIXED.sub("", line) for line in tail.plain[max(0, index - 1) : index + 1]]
            return bool(_INSIDE.match(above[-1]) or (not above[-1].strip() and _NOTEBOOK.match(above[0])))
    return False


def _boxed_frame(hit: LogHit, snapshot: TargetSnapshot) -> Evidence | None:
    """The innermost own frame of a traceback that rich drew as a box."""
    for tail in snapshot.log_tails:
        index = hit.line - tail.first_line
        if tail.file != hit.file or not 0 < index <= len(tail.lines):
            continue
        for place in range(index - 1, -1, -1):
            line = _UNPREFIXED.sub("", tail.plain[place])
            found = _BOXED_FRAME.match(line)
            if found is not None and not is_library(found["file"]):
                text = f"in the program's own code: {found['file']}:{found['line']} in {found['name']}"
                return Evidence(text, hit.file, tail.first_line + place)
            if line.startswith("╭"):
                break
    return None
