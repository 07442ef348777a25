"""Plan and submit one launch, or a group of runs as a whole: a sweep has one run for each combination of
values, the array of a batch file one run for each task.

On Slurm a group is one job array; `at_once` limits how many of its runs are alive at the same time. Runs
follow each other in three cases: in a recipe's own sweep, which measures speed (runs that share a machine
would disturb each other); if the runs ask Slurm for different resources; and on the local backend. Front ends
plan and submit here, so a group is launched by the same keys and commands as a single run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coach import runs
from coach.analysis.comparing.sweep_table import Group, Member, group_of, member_of, table
from coach.config import Settings
from coach.launch import parameters
from coach.launch.array_script import can_be_array
from coach.launch.recipe import Recipe, recipe_of, recipe_of_run
from coach.launch.resources import Site
from coach.launch.submit import NoAnswer
from coach.model.errors import UserError
from coach.model.launching.launch import (
    LaunchRequest,
    Plan,
    Submitted,
    SweepPoint,
)
from coach.model.slurm.job_action import Verb
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.runs.run_files import parse_run
from coach.workflows.backend import resolve_backend
from coach.workflows.jobs.job_actions import perform, plan_action
from coach.workflows.judging.check import Checker
from coach.workflows.judging.targets import Target, TargetKind, first_of_group, known_runs
from coach.workflows.launching import start as one
from coach.workflows.launching.group_members import (
    at_once_of,
    members_of,
    placed_together,
    with_equal_threads,
    words_of_pace,
)
from coach.workflows.launching.prepare import (
    interrupted_launches,
    look_at_site,
    num_alive_runs,
    plan_for,
    with_defaults,
)


def prepare(request: LaunchRequest, settings: Settings, env: Mapping[str, str], io: Io, now_s: float) -> Plan:
    """Run every check of a launch, and write the scripts. Raises UserError if the request cannot be
    launched."""
    request = with_defaults(request, settings)
    recipe_of(request)  # a misspelt name is reported before the controller is asked
    site = look_at_site(resolve_backend(request.backend, env, settings), io, settings)
    lost = interrupted_launches(request, site.backend, settings, io)
    plan = plan_all(request, settings, env, io, site, now_s)
    return replace(plan, warnings=(*lost, *plan.warnings))


def plan_all(
    request: LaunchRequest,
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    site: Site,
    now_s: float,
    run_id: str | None = None,
) -> Plan:
    """The plan of a launch; for a sweep, the plan of its first run with the plans of the others."""
    recipe = recipe_of(request)
    placed, where = placed_together(request, recipe, site, settings)
    members = [] if request.parent_run_id is not None else members_of(placed, recipe, site, settings)
    if not members:  # a child has one run, even if its parent is a run of a group
        return plan_for(request, settings, env, io, site, now_s, run_id)
    members, threads = with_equal_threads(members, recipe, site)
    ids = _new_ids([member.request for member in members], recipe, now_s, run_id)
    plans = []
    for index, (member, name) in enumerate(zip(members, ids, strict=True)):
        point = SweepPoint(ids[0], member.parameter, member.value, index, len(members))
        asked = replace(member.request, sweep_point=point, group_before=tuple(ids[:index]))
        plans.append(plan_for(asked, settings, env, io, site, now_s, name))
    at_once = at_once_of(request, recipe, plans)
    _check_room(len(plans), at_once, settings, io, now_s)
    first, *others = plans
    said = "; ".join(parameters.show(member.value) for member in members)
    values = f"{members[0].parameter} = {said}"
    note = f"{len(plans)} runs, {words_of_pace(at_once)}: {values}; this is the first"
    if not others:
        note = f"1 run: {values}"
    if request.brake is not None:
        note += f"; the rest does not start once the first {request.brake} have failed with the same cause"
    ladder = members[0].request.ladder
    if ladder is not None:
        launched = {member.value for member in members}
        where += tuple(
            f"{rung.name} {'runs on fewer ranks' if rung.name in launched else 'cannot be tested here'}: "
            f"{rung.why_not}"
            for rung in ladder.rungs
            if rung.why_not
        )
        first = replace(first, title=ladder.title)
    request = replace(request, at_once=at_once)
    return replace(
        first,
        request=replace(request, sweep_point=first.request.sweep_point),
        notes=(note, *threads, *where, *first.notes),
        warnings=tuple(dict.fromkeys(line for plan in plans for line in plan.warnings)),
        others=tuple(others),
    )


def _new_ids(
    requests: Sequence[LaunchRequest], recipe: Recipe, now_s: float, run_id: str | None
) -> list[str]:
    """A run id for each run of a group; the first is `run_id`, if it is given."""
    ids: list[str] = []
    for request in requests:
        name = recipe_of_run(recipe, request).name
        new = run_id if run_id is not None and not ids else runs.new_run_id(name, now_s)
        while new in ids:
            new = runs.new_run_id(name, now_s)
        ids.append(new)
    return ids


class NoGroup(UserError):
    """The name is neither a group's nor that of a run of one."""


def submit(plan: Plan, settings: Settings, env: Mapping[str, str], io: Io) -> tuple[Submitted, ...]:
    """Launch all runs of a plan, or none. Raises UserError if one of them is refused."""
    if plan.backend == "slurm" and can_be_array((plan, *plan.others)):
        return one.submit_array((plan, *plan.others), plan.request.at_once, settings, env, io)
    done: list[Submitted] = []
    before: Run | None = None
    for each in (plan, *plan.others):
        try:
            done.append(one.submit(each, settings, env, io, before))
        except NoAnswer as error:
            if not done:
                raise
            names = ", ".join(item.run_id for item in done)
            raise UserError(f"submitted so far: {names}; then: {error.message}", error.hint) from None
        except UserError as error:
            if not done:
                raise
            _take_back(done, settings, env, io)
            raise UserError(
                f"run {len(done) + 1} of {1 + len(plan.others)} was refused, those before it were cancelled:"
                f" {error.message}",
                error.hint,
            ) from None
        before = parse_run({**each.run_json, "job_id": done[-1].job_id}, each.run_dir)
    return tuple(done)


def read_group(text: str, settings: Settings, io: Io, backend: str) -> Group:
    """The table of a group. `text` names one of its runs, or is the number of its array. Raises UserError if
    it is neither."""
    group_id, read = read_members(text, settings, io, backend)
    first = read[0][0]
    parameter = first.sweep.parameter if first.sweep is not None else ""
    return Group(group_id, first.recipe, parameter, table(parameter, [member for _, member in read]))


def read_members(
    text: str, settings: Settings, io: Io, backend: str
) -> tuple[str, Sequence[tuple[Run, Member]]]:
    """The id of a group and its runs, as `read_group` finds them."""
    known = known_runs(settings, io)
    named = first_of_group(text, known)
    group_id = named.sweep.group_id if named is not None and named.sweep is not None else text
    members = group_of(group_id, known)
    if not members:
        raise NoGroup(f"{text}: not a group of runs")
    checker = Checker(settings, io, backend, is_alone=True)
    return group_id, [_read(run, settings, checker) for run in members]


def _read(run: Run, settings: Settings, checker: Checker) -> tuple[Run, Member]:
    checked = checker.read_and_judge(Target(run.run_id, TargetKind.RUN, settings.runs_root / run.run_id))
    member = member_of(run, checked.snapshot, checked.history, checked.diagnosis.findings)
    return checked.snapshot.run or run, member


def _check_room(num_runs: int, at_once: int | None, settings: Settings, io: Io, now_s: float) -> None:
    """Refuse a group of which more runs would go at the same time than the site allows. The runs of a group
    that wait for each other take no room."""
    most = settings.limits.max_running
    if most is None:
        return
    alive = num_alive_runs(settings, io, now_s)
    going = num_runs if at_once is None else min(num_runs, at_once)
    if alive + going > most:
        place = settings.origins.get("limits.max_running")
        others = f", and {alive} of your runs are pending or running" if alive else ""
        room = most - alive
        hint = f"--at-once {room}" if 1 <= room < going else "wait for your runs to end, or cancel one"
        raise UserError(
            f"{going} runs of this group would go at once{others}: the site allows at most {most}"
            f"{f' ({place})' if place else ''}",
            hint,
        )


def _take_back(done: Sequence[Submitted], settings: Settings, env: Mapping[str, str], io: Io) -> None:
    """Cancel the submitted runs of an incomplete group, the last first: otherwise each would start when the
    one before it ends."""
    for submitted in reversed(done):
        try:
            action = plan_action(Verb.CANCEL, (submitted.run_id,), settings, env, io)
            perform(action, env, io.now())
        except UserError:
            continue
