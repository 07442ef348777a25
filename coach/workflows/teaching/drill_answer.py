"""Judge a learner's answer to a drill, keep it in the run's directory, and show it with its proof.

Kept apart from launching drills: only this module sees the true diagnosis of an open drill; everybody else
gets it after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from coach import runs
from coach.config import Settings, Switch
from coach.launch.recipe import get_recipe, lesson_of
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.teaching.drill import Answer, Drill
from coach.model.training.run import Run
from coach.rules.base import Rule
from coach.rules.blindness import Sight
from coach.rules.documentation import rule_page
from coach.rules.engine import Engine
from coach.rules.registry import signatures
from coach.sources.io import Io
from coach.sources.runs.run_files import read_answer
from coach.workflows.judging.judge import rules_of
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind, known_runs, run_or_job
from coach.workflows.readonly import refuse_if_readonly
from coach.workflows.sharing import share_answer
from coach.workflows.teaching.drills import get_drill


@dataclass(frozen=True, slots=True)
class Choice:
    """A cause on the short list, with its meaning in the words of its rule."""

    cause: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """How far a learner is with a run, and what may be shown."""

    run_id: str
    run_dir: str
    drill: str
    choices: tuple[Choice, ...]
    answer: Answer | None = None
    """None before the first answer."""
    planted: str | None = None
    """None until the drill is solved or given up."""
    findings: tuple[Finding, ...] = ()
    """The run's findings, the primary one first; none while the drill is open."""
    lesson: str = ""
    against: tuple[str, ...] = ()
    """Evidence against a wrong answer, one line each."""

    @property
    def spoiled(self) -> str | None:
        """How the run ended, if the planted fault did not end it."""
        return None if self.answer is None else self.answer.spoiled


def answer_drill(text: str, cause: str | None, settings: Settings, io: Io, user: str) -> Judgement:
    """Judge the named cause (None: give up) and keep the answer. `text` is a run id, or a drill's name for
    its newest run.

    The run itself has to show the planted fault. If it ended otherwise, it is spoiled, and the answer does
    not count. Raises UserError for a run that belongs to no drill, is settled or does not show its fault yet,
    and for a cause that is not on the list.
    """
    run = run_of_drill(text, settings, io)
    drill = get_drill(run.drill or "")
    before = read_answer(io, Path(run.run_dir))
    if before is not None and before.is_settled:
        how = f"{before.answer}, right" if before.is_right else "given up"
        raise UserError(
            f"{run.run_id}: answered already: {how}",
            f"`coach check {run.run_id}` shows the proof; `coach drill {run.drill}` launches it again",
        )
    if cause is not None and cause not in drill.choices:
        raise UserError(f"--answer {cause}: not on the list", f"one of {', '.join(drill.choices)}")
    refuse_if_readonly(settings, "keeps no answer", Switch.DRILLS)
    answer_of = partial(_answer_of, cause, drill, before.num_tries if before else 0, io.now())
    judgement = _judge(run, drill, answer_of, settings, io, user)
    assert judgement.answer is not None
    try:
        runs.write_json(runs.RunPaths(run.run_dir).drill_answer_json, _as_json(judgement.answer))
    except OSError as error:
        raise UserError(f"{run.run_dir}: the answer cannot be kept: {error.strerror}") from None
    share_answer(run)
    return judgement


def tell_answer(run_dir: Path, io: Io) -> None:
    """Mark the cause of this run as known: it was launched without asking anybody for an answer."""
    try:
        runs.write_json(runs.RunPaths(run_dir).drill_answer_json, _as_json(Answer(None, False, io.now(), 0)))
    except OSError as error:
        raise UserError(f"{run_dir}: cannot be written: {error.strerror}") from None


def read_judgement(text: str, settings: Settings, io: Io, user: str) -> Judgement:
    """The judgement of the newest answer again; before the first answer, only the short list."""
    run = run_of_drill(text, settings, io)
    drill, answer = get_drill(run.drill or ""), read_answer(io, Path(run.run_dir))
    if answer is None:
        return Judgement(run.run_id, run.run_dir, run.drill or "", _choices(drill, rules_of(settings)), None)
    return _judge(run, drill, lambda *seen: answer, settings, io, user)


def run_of_drill(text: str, settings: Settings, io: Io) -> Run:
    """The run with this id, or the newest run of this drill. Raises UserError if there is none."""
    known = known_runs(settings, io)
    named = run_or_job(text, known)
    run = named or next((run for run in known if run.drill == text), None)
    if run is None:
        get_drill(text)
        raise UserError(f"{text}: not launched yet", f"`coach drill {text}` launches it")
    if run.drill is None:
        raise UserError(f"{run.run_id}: not the run of a drill", "`coach drill` lists the drills")
    return run


def _as_json(answer: Answer) -> dict[str, object]:
    return {"schema": runs.SCHEMA, **asdict(answer)}


def _answer_of(
    cause: str | None,
    drill: Drill,
    num_before: int,
    now_s: float,
    snapshot: TargetSnapshot,
    findings: Sequence[Finding],
) -> Answer:
    """The answer, judged by what the run shows. Raises UserError while it does not show its fault yet."""
    right = drill.right_answers(findings)
    is_shown = drill.planted in right or (drill.is_live and right)
    if cause is not None and not snapshot.has_ended and not is_shown:
        state = snapshot.state or "not known to have ended"
        raise UserError(
            f"{snapshot.target}: {state}, and it does not show its fault yet", "answer once it has ended"
        )
    if snapshot.has_ended and not right:
        return Answer(cause, False, now_s, num_before, _end_words(snapshot, findings))
    return Answer(cause, cause in right, now_s, num_before + (cause is not None))


def _end_words(snapshot: TargetSnapshot, findings: Sequence[Finding]) -> str:
    """How a run ended that does not show its planted fault."""
    first = next((each for each in findings if each.severity >= Severity.WARNING), None)
    if first is None:
        return f"it ended with {snapshot.state} and no sign of its fault"
    return f"it ended with {first.rule} {first.name}: {first.summary}"


def _judge(
    run: Run,
    drill: Drill,
    answer_of: Callable[[TargetSnapshot, Sequence[Finding]], Answer],
    settings: Settings,
    io: Io,
    user: str,
) -> Judgement:
    rules = rules_of(settings)
    target = Target(run.run_id, TargetKind.RUN, Path(run.run_dir))
    snapshot, history = read_once(target, settings, io, run.backend, user, signatures(rules))
    diagnosis = Engine(rules).diagnose(snapshot, history)
    answer, name = answer_of(snapshot, diagnosis.findings), run.drill or ""
    open_ = Judgement(run.run_id, run.run_dir, name, _choices(drill, rules), answer)
    if answer.is_settled:
        lesson = lesson_of(get_recipe(name))
        return replace(open_, planted=drill.planted, findings=diagnosis.findings, lesson=lesson)
    if answer.spoiled:
        return replace(open_, findings=diagnosis.findings)
    against = speaks_against(answer.answer or "", diagnosis, rules, snapshot, history)
    return replace(open_, against=against)


def _choices(drill: Drill, rules: Sequence[Rule]) -> tuple[Choice, ...]:
    meanings: dict[str, str] = {}
    for rule in rules:
        meanings.setdefault(rule.cause, rule_page(type(rule)).summary)
    return tuple(Choice(cause, meanings.get(cause, "")) for cause in drill.choices)


def speaks_against(
    cause: str,
    diagnosis: Diagnosis,
    rules: Sequence[Rule],
    snapshot: TargetSnapshot,
    history: History,
) -> tuple[str, ...]:
    """Why the cause is not this one, without naming the true one."""
    found = [finding for finding in diagnosis.findings if finding.cause == cause]
    if found:
        return tuple(f"{each.rule} sees it, but something else came first: {each.summary}" for each in found)
    sight = Sight.of(snapshot, history)
    lines = []
    for rule in (rule for rule in rules if rule.cause == cause):
        page = rule_page(type(rule))
        saw = "saw nothing of it" if sight.can_judge(rule) else f"is no evidence: {_missing(sight, rule)}"
        lines.append(f"{page.code} {saw}. It looks for this: {page.summary}")
    return tuple(lines) or (f"no rule found {cause} in the measurements",)


def _missing(sight: Sight, rule: Rule) -> str:
    """The data that a rule lacks, each with its reason."""
    told = [f"{each.what} was not measured ({each.because})" for each in sight.not_measured(rule)]
    return "; ".join(told) or "its data are missing"
