"""Rehearse a workshop: launch each recipe of the day small, as a learner would, and watch it to its end.

Recipes run one after the other. So no run waits for another of the rehearsal or is slowed by it, the measured
times are the site's, and the site's `max_running` is respected. No run of the rehearsal is left running,
however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from coach.analysis.queueing.pending_reasons import explain_pending
from coach.analysis.teaching.workshop_capacity import place_of
from coach.config import Settings, Switch
from coach.launch.recipe import get_recipe
from coach.launch.spelling import format_time, parse_mem_mib
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.model.launching.launch import Plan, Resources, Submitted
from coach.model.snapshot import TargetSnapshot
from coach.model.teaching.rehearsal import Item, Place, Rehearsed, Shape, WorkshopPlan
from coach.sources.io import Io
from coach.sources.slurm.node_sets import expand_nodes
from coach.sources.slurm.reservations import RESERVATIONS_QUERY, parse_reservations
from coach.workflows.backend import resolve_backend
from coach.workflows.judging.judge import Context
from coach.workflows.launching.defaults import with_defaults
from coach.workflows.launching.prepare import look_at_site
from coach.workflows.launching.sweep import plan_all
from coach.workflows.readonly import refuse_if_readonly
from coach.workflows.sharing import unshared
from coach.workflows.watching.launch_watch import Launches, Started

_WHOLE_NODE = "0"
"""Slurm's value for all the memory of a node."""


class Rehearsal:
    """Tries the recipes of one plan. The site is looked at once; raises UserError if it does not answer."""

    def __init__(
        self,
        plan: WorkshopPlan,
        settings: Settings,
        env: Mapping[str, str],
        io: Io,
        on_note: Callable[[str], None],
        max_queued_s: float,
    ) -> None:
        refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
        self._plan = plan
        self._settings = settings
        self._env = env
        self._io = io
        self._note = on_note
        self._max_queued_s = max_queued_s
        asked = with_defaults(plan.items[0].request, settings).backend
        self._backend = resolve_backend(asked, env, settings)
        self._launches = Launches(settings, env, io, self._backend, on_note)
        self._site = look_at_site(self._backend, io)
        self._context = Context(settings, io, is_alone=True)
        self._reservations: Mapping[str, tuple[str, ...]] | None = None

    def try_one(self, item: Item) -> Rehearsed:
        """Launch a recipe small, and watch it to its end. An interruption cancels its run first."""
        recipe = get_recipe(item.request.recipe)
        small = {"max_steps": self._plan.max_steps} if "max_steps" in recipe.parameters else {}
        request = unshared(replace(item.request, set={**item.request.set, **small}))
        try:
            plan = plan_all(
                with_defaults(request, self._settings),
                *(self._settings, self._env, self._io, self._site, self._io.now()),
            )
        except UserError as refused:
            return Rehearsed(item.name, problem=refused.message, hint=refused.hint)
        group = (plan, *plan.others)
        largest = max(group, key=lambda each: each.resources.world_size)
        # A ladder's rungs are several recipes, so each is tried; of a sweep, the largest run is enough.
        rungs = plan.run_json.get("ladder", {}).get("rungs", ())
        runs = sorted(group, key=lambda each: each.resources.world_size) if rungs else (largest,)
        planned = Rehearsed(
            item.name,
            shape=_shape(largest.resources),
            place=self._place(largest.resources),
            num_runs=len(group),
            time_limit_s=largest.resources.time_limit_s,
            gpu_hours=None if item.request.set or rungs else recipe.gpu_hours,
            warnings=(
                *plan.warnings,
                *(f"{each['name']}: {each['why_not']}" for each in rungs if each["why_not"]),
            ),
        )
        try:
            for each in runs:
                tried = self._launch(replace(each, others=()), planned)
                if not tried.is_well:
                    break
            return tried
        except UserError as refused:
            return replace(planned, problem=refused.message, hint=refused.hint)

    def _launch(self, plan: Plan, planned: Rehearsed) -> Rehearsed:
        with self._launches.launched(plan) as started:
            self._note(f"{planned.name}: {plan.run_id} submitted as {started.submitted.job_id}")
            state, waited_for = self._end_of(started)
        tried = replace(planned, run_id=plan.run_id, run_dir=plan.run_dir)
        return self._read(tried, started.submitted, state, waited_for)

    def _end_of(self, started: Started) -> tuple[str | None, str | None]:
        """The run's final state, and the queue's pending reason if it waited too long and was cancelled."""
        try:
            return started.ended.result(timeout=self._max_queued_s), None
        except TimeoutError:
            snapshot, _ = self._launches.read(started.submitted, self._context.signatures())
        if snapshot.state != "PENDING":
            return started.ended.result(), None
        self._launches.cancel(started)
        reason = snapshot.job.reason if snapshot.job is not None else None
        return "CANCELLED", reason or "no reason given"

    def _read(
        self, planned: Rehearsed, submitted: Submitted, state: str | None, waited_for: str | None
    ) -> Rehearsed:
        snapshot, history = self._launches.read(submitted, self._context.signatures())
        found = self._context.diagnose(snapshot, history).findings
        loud = (each for each in found if each.is_primary and each.severity >= Severity.WARNING)
        run = snapshot.run
        tried = replace(
            planned,
            job_id=submitted.job_id,
            state=state or snapshot.state,
            submitted_time_s=run.submitted_time_s if run is not None else None,
            started_time_s=_started_time_s(snapshot),
            first_step_time_s=_first_step_time_s(history),
            ended_time_s=_ended_time_s(snapshot),
            finding=next(loud, None),
        )
        if waited_for is not None:
            return self._cancelled(tried, waited_for)
        return tried if tried.state == "COMPLETED" else _broken(tried)

    def _cancelled(self, tried: Rehearsed, waited_for: str) -> Rehearsed:
        """The result of a run that waited too long. The rehearsal cancelled it, so its end is no finding; and
        Slurm reports the time of the cancel as its start."""
        why = explain_pending(waited_for)
        limit = format_time(int(self._max_queued_s))
        problem = f"waited {limit} in the queue and was cancelled: {waited_for}: {why.meaning}"
        return replace(tried, started_time_s=None, finding=None, problem=problem, hint=why.advice)

    def _place(self, resources: Resources) -> Place | None:
        nodes = self._site.nodes
        if self._site.backend == "local":
            return place_of("this machine", nodes)
        if self._site.hidden:
            return None
        name, is_exclusive = "all nodes", resources.mem == _WHOLE_NODE
        for partition in self._site.partitions:
            if partition.name == resources.partition:
                name = f"partition {partition.name}"
                nodes = tuple(node for node in nodes if partition.name in node.partitions)
                is_exclusive = is_exclusive or partition.is_exclusive
        if resources.reservation is not None:
            kept = self._reserved().get(resources.reservation)
            if kept is None:
                return None
            name = f"reservation {resources.reservation} of {name}"
            nodes = tuple(node for node in nodes if node.name in kept)
        return place_of(f"{name}, whole nodes" if is_exclusive else name, nodes, is_exclusive=is_exclusive)

    def _reserved(self) -> Mapping[str, tuple[str, ...]]:
        """Reservation → its nodes, asked once; empty if Slurm does not answer."""
        if self._reservations is None:
            result = self._io.run(RESERVATIONS_QUERY)
            found, _ = parse_reservations(result.text)
            self._reservations = {each.name: expand_nodes(each.nodes) for each in found if each.nodes}
        return self._reservations


def _started_time_s(snapshot: TargetSnapshot) -> float | None:
    run, job = snapshot.run, snapshot.job
    return _first((run.started_time_s if run else None, job.start_time_s if job else None))


def _first_step_time_s(history: History) -> float | None:
    steps = [history.steps(rank) for rank in history.ranks]
    return min((each[0].time_s for each in steps if each and each[0].time_s is not None), default=None)


def _ended_time_s(snapshot: TargetSnapshot) -> float | None:
    exit_, run, job = snapshot.exit, snapshot.run, snapshot.job
    ends = (
        exit_.ended_time_s if exit_ else None,
        run.ended_time_s if run else None,
        job.end_time_s if job else None,
    )
    return _first(ends)


def _shape(resources: Resources) -> Shape:
    mem = resources.mem
    return Shape(
        resources.num_nodes,
        resources.gpus_per_node,
        resources.cpus_per_task,
        None if mem is None or mem == _WHOLE_NODE else parse_mem_mib(mem, "mem"),
        resources.gpu_type,
    )


def _broken(tried: Rehearsed) -> Rehearsed:
    """Describe the failure by the cause that was found, else by the final state."""
    found, hint = tried.finding, f"coach check {tried.run_id}"
    if found is None:
        return replace(tried, problem=f"it ended {tried.state or 'in an unknown state'}", hint=hint)
    fix = next((f"{fix.title}; " for fix in found.fixes), "")
    return replace(tried, problem=f"{found.rule} {found.name}: {found.summary}", hint=f"{fix}{hint}")


def _first(times: Iterable[float | None]) -> float | None:
    return next((time_s for time_s in times if time_s is not None), None)
