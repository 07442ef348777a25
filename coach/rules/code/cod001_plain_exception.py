"""COD001: the program ended with an exception that no other rule explains, most likely a mistake in the
program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from coach.lookback.history import History
from coach.model.judging.finding import Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.base import Need, Rule, Threshold
from coach.rules.code.own_error import MAX_LINES_OF_HYDRA, name_of, of_a_program, of_another_log
from coach.rules.from_logs.aftermath import num_alive_after, tail_of, went_on
from coach.rules.from_logs.failed_connections import is_inside_the_cluster
from coach.rules.from_logs.library_exceptions import is_of_a_load, is_of_a_peer, is_of_a_table, owner_of
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.outcome import EXIT_CODE, first_failure, left_silently
from coach.rules.from_logs.quoted_evidence import earliest, hits_of

_EXCEPTION = (
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*)?(?:Error|Exception|Warning|Timeout|Violation|Invalid|Empty)"
    r"|(?:\w+\.)*\w+\.(?:error|timeout)|StopIteration"
    r"|(?:\w+\.)*(?:errors|error|exceptions|exception|\w+\.exc)\.[A-Z]\w+)"
    r"(?:: (?P<words>.*)|:?[ \t\r\f\v]*$)"
)
_ECHO = re.compile(
    r"^(?:ChildFailedError|SignalException|ProcessRaisedException|ProcessExitedException|RayTaskError.*"
    r"|RayActorError|ActorDiedError)$"
)
"""Exceptions that only report that another process ended, not why."""
_NO_ERRORS = ("on_cpu", "fell_back", "stage", "objective", "norm", "both")
"""The signatures of lines that report a device, a stage of the training, or its numbers. Their words may
stand in the message of any exception."""
_LAUNCHER = "ChildFailedError"
_ENDED_BY_SIGNAL = re.compile(r"exit ?code *: *-")
_WEAK = re.compile(
    r"^(?:EOFError|TimeoutError|Empty|IncompleteReadError|ActorUnavailableError|EngineDeadError"
    r"|CancelledError|CalledProcessError"
    r"|BrokenPipeError|Connection(?:Reset|Refused|Aborted)Error)$"
)
"""Exceptions that count only if there is no other error."""
_CRASH = ("COD002", "segfault")
"""The rule and signature of a process that crashed: weak exceptions beside it are only echoes."""
_LOOKED_INTO = "_try_get_data"
_NAMED = re.compile(r"^(?:\w++\.)*+[A-Z]\w+(?:Error|Exception)$")
_LONG_SPOKEN = re.compile(r"^(?:hydra|omegaconf|pydantic\w*|jax\w*|tensorflow)\.")
"""Exceptions whose message goes on in the lines below."""
_MAX_WORDS_LINES = 8
_CAUGHT_ELSEWHERE = re.compile(
    r"Caught \w+ in (?:DataLoader worker|replica)|can only (?:test|join) a child process"
    r"|Horovod has been shut down\. This was caused by an exception on one of the ranks"
)
"""Messages that repeat an error of another process. One comes from a DataLoader iterator that a forked
process garbage-collects; Python ignores it."""
_SEE_ABOVE = re.compile(
    r"^.{0,120}?\. See (?:root cause above|stack trace (?:\(above\) )?for (?:the )?root cause)"
)
"""Messages of a server whose engine or worker process has ended."""


class PlainException(Rule):
    """The program ended with an exception that no other rule explains, most likely a mistake in the program.

    What it sees
        The last line of a Python traceback that no other rule claims, whatever the exception's name, or the
        message with which a program refuses its arguments (argparse, click, fire, absl) or Hydra refuses a
        configuration, if the log ends soon after it; Julia's ERROR, R's "Execution halted", MATLAB's "Error
        using" and its licence manager's, and Lightning's "No training batches".
    Why it matters
        The job is over, and will fail at the same place until the program is changed.
    When it stays silent
        If the program went on (it completed, losses follow, much more was printed). On exceptions that only
        report the end of another process (ChildFailedError, CalledProcessError, Ray's wrappers, a broken
        pipe), unless the log holds nothing else. If another rule explains the error.
    What to do
        Look at the innermost frame of your own code, which is shown. Try the same for a few steps on a small
        input, without waiting in the queue.
    Sources
        Python's traceback module; argparse; torch.distributed.elastic's error files; sqlite.org/faq.html,
        question 5; filelock's Timeout.
    """

    code = "COD001"
    name = "plain-exception"
    cause = "code_error"
    severity = Severity.CRITICAL
    needs = (Need.LOG,)
    max_lines_after = Threshold(
        50,
        "lines",
        "a dying program flushes some lines and its launcher adds a few; one that caught the error says more",
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
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        silent = left_silently(self._hits_of_others(snapshot), snapshot)
        if silent is not None:
            yield of_another_log(silent, None)
            return
        hits = [hit for hit in self._unexplained(snapshot) if not self._went_on(hit, snapshot)]
        if not hits:
            return
        first = earliest(hits)
        if first.signature == "exception" and _is_echo(first):
            yield of_another_log(first_failure(snapshot), first)
        else:
            yield of_a_program(first, hits, snapshot)

    def _hits_of_others(self, snapshot: TargetSnapshot) -> list[LogHit]:
        """The log hits of other rules; empty if all of them are ones that their rules decline."""
        others = [
            hit
            for hit in snapshot.log_hits
            if hit.rule not in (self.code, PROGRESS.rule, "")
            and hit.signature not in _NO_ERRORS
            and not is_of_a_table(hit)
            and not is_inside_the_cluster(hit)
        ]
        return [] if all(map(_is_nobodys, others)) else others

    def _unexplained(self, snapshot: TargetSnapshot) -> list[LogHit]:
        others = self._hits_of_others(snapshot)
        mine = [hit for hit in _not_of(others, snapshot) if _ends_the_program(hit, snapshot)]
        strong = [hit for hit in mine if not _is_weak(hit)]
        if not strong and any((hit.rule, hit.signature) == _CRASH for hit in others):
            return []
        hydra = _of_hydra([*others, *mine], snapshot)
        if mine or hydra or any(hit.signature != EXIT_CODE for hit in others):
            return [*(strong or mine), *hydra]
        return _of_a_launcher(snapshot)

    def _went_on(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """True if the exception was caught. Fewer lines below it suffice than for other rules, because this
        rule claims least."""
        tail = tail_of(hit, snapshot)
        if went_on(hit, snapshot):
            return True
        if snapshot.state is not None or tail is None:
            return False
        return hit.line < tail.first_line or num_alive_after(hit, tail) > self.max_lines_after


def _not_of(others: list[LogHit], snapshot: TargetSnapshot) -> Iterable[LogHit]:
    """Exceptions and refused arguments that no other rule, process or library explains."""
    places = {(hit.file, hit.line) for hit in others}
    below = {(hit.file, hit.line) for hit in others if not _is_of_a_launcher(hit)}
    words = {hit.text for hit in others}
    for hit in hits_of(snapshot, PlainException.code, "exception", "usage", "syntax"):
        is_known = (hit.file, hit.line) in places or _is_told_below(hit, below)
        is_of_thread = _is_weak(hit) and _is_of_a_thread(hit)
        if not (
            is_known or is_of_thread or _is_echo(hit) or owner_of(hit, snapshot) or _is_chained_to(hit, words)
        ):
            yield hit


def _of_hydra(errors: list[LogHit], snapshot: TargetSnapshot) -> list[LogHit]:
    """The last lines of Hydra's messages in which no other error stands."""
    return [
        hydra
        for hydra in hits_of(snapshot, PlainException.code, "hydra", "halted")
        if not any(
            hit.file == hydra.file and 0 <= hydra.line - hit.line <= MAX_LINES_OF_HYDRA for hit in errors
        )
    ]


def _is_of_a_launcher(hit: LogHit) -> bool:
    """True if srun, slurmstepd or torchrun says only that a process ended."""
    return hit.signature == EXIT_CODE or hit.text.startswith(("srun:", "slurmstepd:"))


def _is_told_below(hit: LogHit, told: Set[tuple[str, int]]) -> bool:
    """True if the exception's message goes on in a line below that another rule matches."""
    is_long = _LONG_SPOKEN.match(hit.fields["type"]) is not None
    return is_long and any((hit.file, hit.line + n) in told for n in (1, 2))


def _is_chained_to(hit: LogHit, explained: Set[str]) -> bool:
    """True if another rule explains an exception that led to this one."""
    chain = hit.block.chain if hit.block is not None else ()
    return any(text.endswith(block.lines[-1].strip()) for block in chain for text in explained)


def _is_of_a_thread(hit: LogHit) -> bool:
    """True if a thread raised it, or a read from a DataLoader's queue: the program goes on after it, or
    prints its own error."""
    is_of_thread = hit.block is not None and hit.block.is_of_thread
    return is_of_thread or any(frame.function == _LOOKED_INTO for frame in hit.all_frames)


def _ends_the_program(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if it is more than a line of text: it has a traceback, refuses arguments, or ends the log."""
    return hit.signature in ("usage", "syntax") or bool(hit.traceback) or _is_last_word(hit, snapshot)


def _is_echo(hit: LogHit) -> bool:
    words = hit.fields.get("words", "")
    is_bare = name_of(hit) == "Exception" and not words.strip() and ":" in hit.text
    return bool(
        is_bare or _ECHO.match(name_of(hit)) or _CAUGHT_ELSEWHERE.match(words) or _SEE_ABOVE.match(words)
    )


def _is_weak(hit: LogHit) -> bool:
    return bool(_WEAK.match(name_of(hit)))


def _is_nobodys(hit: LogHit) -> bool:
    """True for an EOFError that was not raised while loading a checkpoint: the rule for corrupt checkpoints
    ignores it."""
    return "short" in hit.fields and bool(hit.traceback) and not is_of_a_load(hit) and not is_of_a_peer(hit)


def _is_last_word(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if an exception line without a traceback is the last output of the program."""
    tail = tail_of(hit, snapshot)
    if tail is None or hit.line < tail.first_line or not _NAMED.match(hit.fields["type"]):
        return False
    num_words = _MAX_WORDS_LINES if _LONG_SPOKEN.match(hit.fields["type"]) else 0
    return bool(hit.fields.get("words", "").strip()) and num_alive_after(hit, tail) <= num_words


def _of_a_launcher(snapshot: TargetSnapshot) -> list[LogHit]:
    """Reports of torchrun or a server that a rank ended with an error, used if the rank's own error is not in
    the log."""
    tails = {tail.file: tail for tail in snapshot.log_tails}
    return [
        hit
        for hit in hits_of(snapshot, PlainException.code, "exception")
        if (hit.fields["type"].endswith(_LAUNCHER) or _SEE_ABOVE.match(hit.fields.get("words", "")))
        and hit.file in tails
        and not any(map(_ENDED_BY_SIGNAL.search, tails[hit.file].plain))
    ]
