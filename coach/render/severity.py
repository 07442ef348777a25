"""Words, signs and tones of severities and states. Colour is never the only sign."""

from __future__ import annotations

from coach.model.judging.finding import Severity
from coach.model.slurm.cluster import is_final
from coach.render.text import UNKNOWN, Span, Tone, printable

_SEVERITY: dict[Severity, tuple[str, Tone]] = {
    Severity.CRITICAL: ("✖", "critical"),
    Severity.WARNING: ("▲", "warning"),
    Severity.INFO: ("•", "info"),
}


def severity_tone(severity: Severity) -> Tone:
    return _SEVERITY[severity][1]


def severity_sign(severity: Severity) -> Span:
    sign, tone = _SEVERITY[severity]
    return Span(sign, tone)


def job_state_tone(state: str | None) -> Tone:
    """The tone of a job's state: running is good, waiting is plain, completed is muted, any other end is
    critical."""
    if state is None:
        return "muted"
    if state == "RUNNING":
        return "good"
    if not is_final(state):
        return "accent"
    if state == "COMPLETED":
        return "muted"
    return "warning" if state.startswith("CANCELLED") else "critical"


_STATE_SIGN: dict[Tone, str] = {"good": "●", "accent": "○", "muted": "✓", "critical": "✖", "warning": "■"}


def state_span(state: str | None) -> Span:
    """A state with its sign: `● RUNNING`, `✓ COMPLETED`, `✖ FAILED`."""
    if state is None:
        return Span(UNKNOWN, "muted")
    tone = job_state_tone(state)
    return Span(f"{_STATE_SIGN.get(tone, ' ')} {printable(state)}", tone)


def node_state_tone(state: str) -> Tone:
    """The tone of a node's state: critical if the node is unusable, a warning if it accepts no new jobs."""
    words = set(state.lower().replace("*", "+not_responding").split("+"))
    if words & {"down", "fail", "failing", "not_responding", "error", "inval", "unknown"}:
        return "critical"
    if words & {"drain", "drained", "draining", "maint", "reserved", "planned", "reboot", "powered_down"}:
        return "warning"
    if words & {"idle"}:
        return "muted"
    return ""


def node_state_sign(state: str) -> str:
    """The sign of a node's state, so that colour is not the only sign."""
    return {"critical": "✖ ", "warning": "▲ "}.get(node_state_tone(state), "  ")
