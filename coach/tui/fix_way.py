"""Where the fix key leads, on every screen that names a job: to the changes of a fix, to the advice, or to a
note."""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.judging.no_finding import why_no_fix
from coach.model.judging.finding import Finding
from coach.model.slurm.cluster import Job
from coach.model.slurm.job_action import Verb
from coach.model.training.run import Run
from coach.tui.context import Context
from coach.tui.messages import ActionRequested, FixRequested, ScreenOpened
from coach.tui.render.finding import fix_word, is_only_advice

_ADVICE = "coach cannot apply this advice: follow the text after each →"


def fix_way(
    context: Context,
    target: str,
    *,
    job: Job | None = None,
    marked: Finding | None = None,
    is_advice_shown: bool = False,
    is_read: bool = False,
) -> FixRequested | ActionRequested | ScreenOpened | str:
    """The request to post, or the note that says why there is none.

    `target` is a run's id or a job id, `job` its row in the queue. A change that `marked` suggests is shown
    first. `is_advice_shown`: the screen is the page of the findings; `is_read`: the screen has the job's
    files read. For a job that coach did not launch, the request opens the form that submits it again, unless
    there is advice that was not shown yet. For a run whose environment lacked a module, it opens the plan of
    the same launch: its field for the environment offers those that can work.
    """
    run = context.run(target) or context.run_of_job(target)
    target = run.run_id if run is not None else target
    diagnosis = context.diagnoses.get(target)
    findings = diagnosis.findings if diagnosis is not None else ()
    owners = _owners_of_changes(findings)
    can_submit_again = run is None and (is_advice_shown or not is_only_advice(findings))
    if owners or can_submit_again:
        index = owners.index(marked) if marked in owners else 0
        return FixRequested(target, index, job=job if run is None else None)
    if run is not None and _lacks_module(run, findings):
        return ActionRequested(Verb.RESUBMIT, (target,), run.recipe)
    if fix_word(findings) is not None:
        return _ADVICE if is_advice_shown else ScreenOpened("finding", target)
    return why_no_fix(diagnosis) if diagnosis is not None else _unread_words(context, is_read=is_read)


def _lacks_module(run: Run, findings: Sequence[Finding]) -> bool:
    is_missing = bool(findings) and findings[0].cause == "module_not_found"
    return is_missing and bool(run.launch) and run.drill is None


def _owners_of_changes(findings: Sequence[Finding]) -> list[Finding]:
    """For each fix that changes the launch, its finding: the index counts as that of FixRequested."""
    return [finding for finding in findings for _ in finding.launch_fixes]


def _unread_words(context: Context, *, is_read: bool) -> str:
    if is_read:
        return "not checked yet: its files are being read"
    return f"not checked yet: {context.label('open')} opens it, and its files are read"
