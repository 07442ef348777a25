"""The Group screen: the runs of a sweep as one table, with the result of each value."""

from __future__ import annotations

from dataclasses import replace

from coach.analysis.comparing.ladder_table import ladder_table
from coach.analysis.comparing.sweep_table import Group, Member, group_of, member_of, table
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.render.ladder import ladder_lines
from coach.render.text import Line, line, muted
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.render.group import group_lines

MAX_FOLLOWED = 12
"""The most runs that are followed: each means several files that are read repeatedly. The command line shows
larger groups."""


class GroupScreen(PageScreen, screen="group"):
    """A line for each value. The runs of the group are followed while it is on top."""

    def __init__(self, context: Context, group_id: str) -> None:
        super().__init__(context, ("cluster", "sweep"))
        self._group_id = group_id
        self._runs = group_of(group_id, context.snapshot.runs)
        self.targets = tuple(run.run_id for run in self._runs[:MAX_FOLLOWED])

    def lines(self, width: int) -> list[Line]:
        members: list[tuple[Run, Member]] = []
        for listed in self._runs:
            run = self.context.run(listed.run_id) or listed
            target = self.context.snapshot.targets.get(run.run_id) or TargetSnapshot(
                run.run_id, None, run=replace(run, state=self.context.state_of(run))
            )
            diagnosis = self.context.diagnoses.get(run.run_id)
            history = self.context.session.history(run.run_id)
            member = member_of(run, target, history, diagnosis.findings if diagnosis else ())
            members.append((run, member))
        first = self._runs[0] if self._runs else None
        parameter = first.sweep.parameter if first is not None and first.sweep is not None else ""
        recipe = first.recipe if first is not None else ""
        points = table(parameter, [member for _, member in members])
        rows = group_lines(Group(self._group_id, recipe, parameter, points), width + 1)
        if first is not None and first.ladder is not None:
            rows = ladder_lines(ladder_table(first.ladder, members), first.ladder.title, width)
        if len(self._runs) > MAX_FOLLOWED:
            rows.append(
                line(
                    muted(
                        f" the first {MAX_FOLLOWED} are read here; coach compare {self._group_id} reads all"
                    )
                )
            )
        return rows
