"""The action of `E`: opens an explanation of the row under the cursor, with the finding of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coach.analysis.explaining.words import Explained
from coach.render.text import printable
from coach.tui import messages
from coach.tui.render.cluster import NODE_COLUMNS, node_rows
from coach.tui.render.explained import explain_cells, explain_gpus
from coach.tui.render.explained_job import explain_job_page
from coach.tui.render.finding import told_finding
from coach.tui.stage import Stage
from coach.tui.widgets.keyed_table import KeyedTable

if TYPE_CHECKING:
    from coach.tui.bases.screen import CoachScreen


def explain(stage: Stage, message: messages.ExplainWanted) -> None:
    """Open the rule of the target's finding if only the finding is asked for, else the page of values."""
    screen: CoachScreen | None = stage.asker(message)
    if screen is None or stage.is_overtaken(message):
        return
    finding = told_finding(stage.context.diagnoses.get(message.target or ""))
    if message.is_finding_alone and finding is not None:
        stage.open("rule", finding.rule)
        return
    title, values = _values(stage, screen, message)
    if values or finding is not None:
        stage.open("explained", f"explained {printable(title)}".strip(), values, finding)
    else:
        label = stage.context.label("explain")
        screen.note(f"{label} explains a row or a finding: there is none here")


def _values(
    stage: Stage, screen: CoachScreen, message: messages.ExplainWanted
) -> tuple[str, tuple[Explained, ...]]:
    """The title of the page, and the values that it explains."""
    history = stage.context.session.history(message.target) if message.target is not None else None
    if message.gpus is not None and history is not None:
        return "", explain_gpus(history, message.gpus)
    if message.node is not None:
        cells = node_rows([message.node]).row(0).cells
        pairs = tuple(zip(NODE_COLUMNS, cells, strict=True))
        return "", explain_cells("nodes", pairs)
    if message.page is not None and history is not None:
        return "", explain_job_page(*message.page, history, stage.context.now_s)
    tables = list(screen.query(KeyedTable))
    table = next((each for each in tables if each.has_focus), tables[0] if tables else None)
    if table is None:
        return "", ()
    return str(table.cursor_key), explain_cells(table.id or "", table.cursor_cells, message.job)
