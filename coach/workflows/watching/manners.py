"""Limit the load of a live session on Slurm.

A session asks less often while nobody looks, keeps within a budget of RPCs, and shares answers with other
coaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from coach.config import Settings
from coach.model.politeness import ACTIVE_S, Attention
from coach.model.snapshot import Snapshot
from coach.sources.io import Io, scrubbed_environment
from coach.sources.polite.outage import Outage, OutageSource
from coach.sources.polite.patient_io import PatientIo
from coach.sources.polite.polling import Pace
from coach.sources.polite.shared_cache import SharedIo, shared_folder
from coach.sources.rpc_budget import RpcBudget
from coach.sources.slurm.conf_file import keep_message_timeout
from coach.sources.slurm.configuration import RateLimitSource
from coach.workflows.judging.targets import SourceFactory


@dataclass(frozen=True, slots=True)
class Manners:
    """The pace of a session's sources, and its limits on questions to Slurm."""

    pace: Pace
    budget: RpcBudget | None = None
    """None if Slurm is not asked."""
    shared: SharedIo | None = None
    patient: PatientIo | None = None
    outage: Outage | None = None

    def expect_change(self) -> None:
        """Refuse answers that are older than this call, and allow a few more RPCs: an action has changed the
        cluster."""
        if self.shared is not None:
            self.shared.refuse_older()
        if self.patient is not None:
            self.patient.forget_late()
        if self.outage is not None:
            self.outage.doubt()
        self.hasten()

    def hasten(self) -> None:
        """Allow a few more RPCs: a person waits for an answer."""
        if self.budget is not None:
            self.budget.note_act()

    def attend(self, idle_s: float, asleep_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        """Set the pace by the time since the last key press and the open screen.

        After `asleep_s` without a key, nothing is asked.
        """
        attention = Attention(
            is_active=is_focused and idle_s < ACTIVE_S,
            is_focused=is_focused,
            is_run_open=is_run_open,
            is_asleep=idle_s >= asleep_s,
        )
        self.pace.attend(attention)
        if self.budget is not None:
            self.budget.set_active(attention.is_active)
        return attention

    def sources(self, io: Io, settings: Settings) -> Mapping[str, SourceFactory]:
        """Sources for a Slurm cluster: one reads the site's rate limit, another notices the end of an outage.
        Empty if Slurm is not asked."""
        budget = self.budget
        if budget is None:
            return {}
        keep_timeout = partial(keep_message_timeout, settings.cache_dir, settings.cluster)
        sources: dict[str, SourceFactory] = {
            "limits": lambda: RateLimitSource(io, budget.limit_by_site, keep_timeout)
        }
        outage = self.outage
        if outage is not None:
            sources["outage"] = lambda: OutageSource(outage)
        return sources

    def spared(self, io: Io) -> Io:
        """An Io that asks Slurm nothing during an outage."""
        return io if self.outage is None else self.outage.spare(io)

    def with_spending(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the RPCs spent of the budget."""
        return snapshot if self.budget is None else replace(snapshot, spending=self.budget.spending())

    def close(self) -> None:
        """End everything that waits for Slurm."""
        if self.shared is not None:
            self.shared.close()
        if self.budget is not None:
            self.budget.close()


def polite_io(
    settings: Settings, backend: str, env: Mapping[str, str], budget: RpcBudget
) -> tuple[Manners, Io]:
    """The real world's Io for a session, and the manners that limit it."""
    pace, outage, scrubbed = Pace(), Outage(), scrubbed_environment(env)
    patient = PatientIo(
        scrubbed,
        timeout_s=settings.slurm_timeout_s,
        before_command=budget.acquire,
        on_file_op=pace.count_file_op,
    )
    if backend != "slurm":
        return Manners(pace), patient
    folder = shared_folder(env, settings.cache_dir)
    # Coaches share answers if they ask the same controller: same cluster name, and same configuration file.
    context = f"{settings.cluster} {scrubbed.get('SLURM_CONF', '')}"
    shared = SharedIo(patient, folder, context, settings.slurm_timeout_s) if folder is not None else None
    outage.probe_by(shared or patient)
    outage.on_return = pace.end_back_off
    io = outage.spare(shared or patient, patient.has_late)
    return Manners(pace, budget, shared, patient, outage), io
