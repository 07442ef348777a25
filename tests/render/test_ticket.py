"""A ticket as Markdown: other people's text cannot leave its fence, and nothing in it controls a terminal."""

from __future__ import annotations

from typing import Any

import pytest
from markdown_it import MarkdownIt

from coach.render.ticket import fenced, ticket_markdown
from tests.hostile import HOSTILE, assert_harmless, poisoned

BREAKS_OUT = (
    "```\n# owned\n<script>alert(1)</script>\n@everyone [click](http://h) ![](http://h/p.png)",
    "`````````\n<img src=x onerror=alert(1)>",
    "~~~\n</code></pre><b>",
    "    indented\n\t```\n- item\n> quote\n| a | b |\n|---|---|",
)
TOLD: dict[str, Any] = {
    "schema": 1,
    "target": "17",
    "state": "FAILED",
    "written": "2026-11-25 19:05:14+00:00",
    "written_by": "coach 0.1.0",
    "verdict": ["17  FAILED: it ended with ValueError"],
    "findings": [
        {
            "rule": "COD001",
            "name": "plain-exception",
            "severity": "critical",
            "consequence_of": None,
            "summary": "ValueError: 11 classes",
            "evidence": [{"text": "line", "file": "/a.log", "line": 3, "value": 2.0, "unit": "step"}],
        }
    ],
    "not_measured": [{"what": "host", "because": "no sampler ran", "how": "attach"}],
    "times": {"submitted": "not known"},
    "job": {"name": "vit", "variables": {"A": "b"}},
    "parts": ["17_1: FAILED"],
    "nodes": {"names": "node1", "nodes": ["node1: idle"], "problem": "hidden"},
    "modules": {"of the launch": ["cuda"], "loaded by the script": []},
    "environment": {"python": "/usr/bin/python3"},
    "error": {"file": "/a.log", "line": 3, "rank": 1, "lines": ["Traceback", "ValueError: 11 classes"]},
    "log_ends": [{"file": "/a.log", "num_lines": 9, "lines": ["srun: error"]}],
    "logs": [],
    "tried": [
        {
            "target": "16",
            "state": "FAILED",
            "ended": None,
            "found": "COD001 no",
            "is_judged": True,
            "how": ["launched again"],
            "measured": ["loss: 2 → 1, better"],
        }
    ],
    "script": {
        "command": "train.py",
        "origin": "as Slurm keeps it",
        "problem": "no",
        "text": "#!/bin/bash\n",
    },
    "slurm_record": {"text": "JobId=17", "command": "scontrol show job 17", "problem": None},
}
HEADINGS = [
    *("Verdict", "Times", "Job", "Its parts", "Nodes, as they are now", "Modules", "Environment"),
    *("Last error", "End of a log", "What was tried", "Script", "Slurm's record", "Not measured"),
]


def outside_of_fences(lines: list[str]) -> list[str]:
    """The text that a Markdown reader would interpret."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse("\n".join(lines))
    assert {token.type for token in tokens} <= {
        *("fence", "heading_open", "heading_close", "inline", "paragraph_open", "paragraph_close")
    }
    assert all({child.type for child in token.children or ()} <= {"text"} for token in tokens)
    return [token.content for token in tokens if token.type == "inline"]


@pytest.mark.parametrize("text", [*HOSTILE, *BREAKS_OUT])
def test_nothing_that_others_wrote_leaves_its_fence(text: str) -> None:
    lines = ticket_markdown(poisoned(TOLD, text))
    assert_harmless("\n".join(lines), "a ticket")
    title, *headings = outside_of_fences(lines)
    assert title.startswith(("Job 17", "A job"))
    assert headings == HEADINGS


def test_a_name_that_is_markdown_is_not_in_the_title() -> None:
    assert outside_of_fences(ticket_markdown(TOLD))[0] == "Job 17: FAILED"
    told = {**TOLD, "target": "/scratch/<b>*x*", "state": "FAILED<b>"}
    assert outside_of_fences(ticket_markdown(told))[0] == "A job"
    assert outside_of_fences(ticket_markdown({**TOLD, "target": "17](http://h)"}))[0] == "A job: FAILED"


def test_a_fence_is_longer_than_any_in_its_text() -> None:
    assert fenced(["a"]) == ["```", "a", "```"]
    assert fenced(["x ```` y", "`"], "bash") == ["`````bash", "x ```` y", "`", "`````"]


def test_missing_parts_of_a_ticket_are_reported_as_missing() -> None:
    told = {**TOLD, "slurm_record": {"text": None, "command": "", "problem": "sacct: disabled"}}
    told |= {"error": None, "log_ends": [], "tried": [], "environment": {}, "job": {}}
    text = "\n".join(ticket_markdown(told))
    for words in (
        "no log shows an error",
        "no other run or job of the same program is known here",
        "Slurm keeps no environment of a job",
        "not available any more: sacct: disabled",
        "not available: hidden",
    ):
        assert words in text
