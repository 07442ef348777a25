"""A plan's fields, and what changing one asks for."""

from __future__ import annotations

import pytest

from coach.model.errors import UserError
from coach.model.launch import LaunchRequest
from coach.tui.render.fix import diff_lines
from coach.tui.render.plan import edited, error_lines, plan_fields, script_lines
from coach.tui.render.text import plain
from tests.tui.fake_session import make_plan

REQUEST = LaunchRequest("ddp", "slurm", set={"lr": 0.1})


def test_nodes_and_gpus_can_be_changed_and_the_recipes_parameters_too() -> None:
    names = [field.name for field in plan_fields(make_plan(REQUEST))]
    assert names[:3] == ["num_nodes", "gpus_per_node", "nproc_per_node"]
    assert {"partition", "set.lr", "set.max_steps"} <= set(names)


def test_a_changed_field_asks_for_that_and_an_emptied_one_for_the_default() -> None:
    assert edited(REQUEST, "num_nodes", " 2 ").num_nodes == 2
    assert edited(edited(REQUEST, "num_nodes", "2"), "num_nodes", "").num_nodes is None
    assert edited(REQUEST, "set.lr", "1e20").set == {"lr": "1e20"}
    assert edited(REQUEST, "set.lr", "").set == {}
    assert edited(REQUEST, "time_limit_s", "1:30:00").time_limit_s == 5400
    assert edited(REQUEST, "gpus_per_node", "0").gpus_per_node == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [("num_nodes", "0"), ("num_nodes", "two"), ("gpus_per_node", "-1"), ("time_limit_s", "soon")],
)
def test_what_is_no_number_or_time_is_refused_with_what_would_be_right(name: str, text: str) -> None:
    with pytest.raises(UserError) as refused:
        edited(REQUEST, name, text)
    assert "expected" in refused.value.message + (refused.value.hint or "")


def test_a_refusal_keeps_every_line_of_slurms_words() -> None:
    rows = [
        plain(row)
        for row in error_lines(UserError("sbatch: error: first\nsbatch: error: second", "a hint"), 80)
    ]
    assert rows == [" ✖ sbatch: error: first", "   sbatch: error: second", "   a hint"]


def test_a_script_line_with_an_escape_is_shown_not_obeyed() -> None:
    rows = [plain(row) for row in script_lines("#!/bin/bash\necho \x1b[2J\n")]
    assert rows == [" 1  #!/bin/bash", " 2  echo ␛[2J"]


def test_a_diff_says_with_signs_what_its_colours_say() -> None:
    rows = diff_lines(["--- a", "+++ b", "@@ -1 +1 @@", "-old", "+new", " same"])
    assert [row[0].tone for row in rows] == ["muted", "muted", "accent", "removed", "added", ""]
