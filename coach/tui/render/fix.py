"""A fix before it is applied, as lines: its changes, and the choice for the parent run."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Finding
from coach.render.finding import shortened
from coach.render.text import (
    BLANK,
    KeyLabel,
    Line,
    Span,
    Tone,
    clip,
    line,
    muted,
    plural,
    printable,
    strong,
    wrap,
)
from coach.tui.ports import PARENT_CHOICES
from coach.tui.render.finding import whole_lines
from coach.workflows.launching.relaunch_offer import RelaunchOffer

_MAX_EVIDENCE = 3
_MAX_LOST = 3
"""The most checkpoints shown: the one to resume from, and the newest unusable ones."""
_CHOICE_TEXT = {
    "cancel": "cancel this run, then launch the child in its place",
    "keep": "let it run beside the child",
    "wait": "the child starts when this run has ended",
}


def why_lines(finding: Finding, width: int) -> list[Line]:
    """The finding and its evidence."""
    return whole_lines(shortened(finding, _MAX_EVIDENCE, 0), width)


def change_lines(offer: RelaunchOffer, width: int) -> list[Line]:
    """Old and new values, and a warning if the fix changes what the model learns."""
    rows: list[Line] = [line(strong(f" {printable(offer.fix.title)}"))]
    name_width = max((len(name) for name, _, _ in offer.changes), default=0)
    for name, old, new in offer.changes:
        rows.append(
            line(
                f"   {printable(name):<{name_width}}  ",
                Span(f"{printable(old)}", "removed"),
                muted("  →  "),
                Span(printable(new), "added"),
            )
        )
    if offer.fix.changes_learning:
        rows.append(
            line(Span(" ▲ this changes the training result: it will differ from the parent's", "warning"))
        )
    else:
        rows.append(line(Span(" ✓ this does not change the training result", "good")))
    rows.extend(
        clip(line(muted(" ▲ "), Span(printable(text), "warning")), width) for text in offer.plan.warnings
    )
    return rows


def parent_lines(offer: RelaunchOffer, choice: str, width: int, label: KeyLabel) -> list[Line]:
    """The choice for the parent (cancel, keep, wait), with the work that would be lost."""
    if not offer.is_parent_active:
        return [
            line(
                muted(" parent  "), printable(offer.parent.run_id), muted("  has ended; it is kept as it is")
            )
        ]
    rows: list[Line] = [
        line(
            muted(" parent  "),
            printable(offer.parent.run_id),
            Span("  is still running", "strong"),
            muted(" · "),
            Span(label("parent"), "key"),
            " chooses",
        )
    ]
    for name in PARENT_CHOICES:
        is_chosen = name == choice
        mark = "(•)" if is_chosen else "( )"
        rows.append(
            line(Span(f"   {mark} {name:<7}", "strong" if is_chosen else ""), muted(f" {_CHOICE_TEXT[name]}"))
        )
    if choice != "cancel" or offer.checkpoint is not None or not offer.may_save_elsewhere:
        rows.append(clip(_loss_line(offer, choice), width))
    if choice == "cancel":
        rows.extend(
            line(muted(f"   {text}"))
            for said in offer.lost[:_MAX_LOST]
            for text in wrap(printable(said), width - 4)[:2]
        )
    return rows


def _loss_line(offer: RelaunchOffer, choice: str) -> Line:
    checkpoint, step = offer.checkpoint, offer.parent_step
    if checkpoint is None and offer.may_save_elsewhere:
        return line(muted("   nothing is lost"))
    if checkpoint is None:
        kept = "no complete checkpoint yet"
        lost = step
    else:
        kept = f"newest complete checkpoint: step {checkpoint.step}"
        lost = None if step is None else max(0, step - checkpoint.step)
    if choice != "cancel":
        return line(muted(f"   {kept}; nothing is lost"))
    if lost is None:
        return line(muted(f"   {kept}"))
    tone: Tone = "warning" if lost else "muted"
    return line(muted(f"   {kept}; "), Span(f"{plural(lost, 'step')} would be lost", tone))


def diff_lines(diff: Iterable[str]) -> list[Line]:
    """A unified diff. The signs have the same meaning as the colours."""
    rows: list[Line] = []
    for text in diff:
        shown = printable(text.rstrip("\n").replace("\t", "    "))
        if text.startswith(("---", "+++")):
            rows.append(line(muted(f" {shown}")))
        elif text.startswith("@@"):
            rows.append(line(Span(f" {shown}", "accent")))
        elif text.startswith("+"):
            rows.append(line(Span(f" {shown}", "added")))
        elif text.startswith("-"):
            rows.append(line(Span(f" {shown}", "removed")))
        else:
            rows.append(line(f" {shown}"))
    return rows or [BLANK]
