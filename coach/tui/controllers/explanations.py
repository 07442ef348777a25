"""What `E` does: opens the page of what is under the cursor, with the finding of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coach.analysis.explaining.words import Explained
from coach.tui import messages
from coach.tui.render.cluster import NODE_COLUMNS, node_rows
from coach.tui.render.explained import explain_cells, explain_gpus
from coach.tui.render.explained_job import explain_job_page
from coach.tui.render.finding import told_finding
from coach.tui.render.text import printable
from coach.tui.stage import Stage
from coach.tui.widgets.keyed_table import KeyedTable

if TYPE_CHECKING:
    from coach.tui.bases.screen import CoachScreen


def explain(stage: Stage, message: messages.ExplainWanted) -> None:
    """Open the rule of the target's finding where that alone is asked, else the page of values."""
    screen: CoachScreen | None = stage.asker(message)
    if screen is None or stage.is_overtaken(message):
        return
    finding = told_finding(stage.context.diagnoses.get(message.target or ""))
    if message.is_finding_alone and finding is not None:
        stage.open("rule", finding.rule)
        return
    title, values = _values(stage, screen, message)
    if values or finding is not None:
        stage.open("explained", printable(title), values, finding)
    else:
        label = stage.context.label("explain")
        screen.note(f"{label} explains a row or a finding: there is none here")


def _values(
    stage: Stage, screen: CoachScreen, message: messages.ExplainWanted
) -> tuple[str, tuple[Explained, ...]]:
    """What the page is called, and what it explains."""
    history = stage.context.session.history(message.target) if message.target is not None else None
    if message.gpus is not None and history is not None:
        return screen.crumbs[-1], explain_gpus(history, message.gpus)
    if message.node is not None:
        cells = node_rows([message.node]).row(0).cells
        pairs = tuple(zip(NODE_COLUMNS, cells, strict=True))
        return screen.crumbs[-1], explain_cells("nodes", pairs)
    if message.page is not None and history is not None:
        return screen.crumbs[-1], explain_job_page(*message.page, history, stage.context.now_s)
    tables = list(screen.query(KeyedTable))
    table = next((each for each in tables if each.has_focus), tables[0] if tables else None)
    if table is None:
        return screen.crumbs[-1], ()
    return str(table.cursor_key), explain_cells(table.id or "", table.cursor_cells, message.job)
