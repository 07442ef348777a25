"""A plan's fields, and the launch that a changed field requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.launch.refusal import Choice, Refused
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram, Plan, SweepPoint
from coach.render.text import line_width, plain
from coach.tui.render.error import error_lines
from coach.tui.render.fix import diff_lines
from coach.tui.render.plan import (
    answered,
    edited,
    in_words_of_the_form,
    plan_fields,
    plan_heading,
    refusal_lines,
    script_lines,
    what_is_submitted,
)
from tests.tui.fake_session import make_plan

REQUEST = LaunchRequest("ddp", "slurm", set={"lr": 0.1})


def test_the_parameters_of_an_own_program_come_before_the_sizes() -> None:
    plan = make_plan(REQUEST)
    own = OwnProgram(OwnKind.SCRIPT, ("train.py",), "/home/ada")
    names = [each.name for each in plan_fields(replace(plan, request=replace(REQUEST, own=own)))]
    of_recipe = [each.name for each in plan_fields(plan)]
    assert names[0] == next(name for name in of_recipe if name.startswith("set."))
    assert sorted(names) == sorted(of_recipe)
    assert [name for name in names if not name.startswith("set.")] == [
        name for name in of_recipe if not name.startswith("set.")
    ]


def test_nodes_and_gpus_can_be_changed_and_the_recipes_parameters_too() -> None:
    names = [field.name for field in plan_fields(make_plan(REQUEST))]
    assert names[:3] == ["num_nodes", "gpus_per_node", "nproc_per_node"]
    assert {"partition", "set.lr", "set.max_steps"} <= set(names)


def test_a_refusal_names_the_field_where_the_command_line_has_an_option() -> None:
    refused = UserError("--gpus 4: partition cpu has no GPUs", "use --gpus 0 to train on CPUs")
    shown = in_words_of_the_form(refused)
    assert shown.message == "GPUs per node 4: partition cpu has no GPUs"
    assert shown.hint == "use GPUs per node 0 to train on CPUs"
    assert in_words_of_the_form(UserError("--set lr = x: expected a number")).message.startswith("lr = x")
    slurms = Refused(["You must say --account=NAME"], "account")
    assert in_words_of_the_form(slurms) is slurms


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
def test_a_text_that_is_no_number_or_time_is_refused_with_a_correct_example(name: str, text: str) -> None:
    with pytest.raises(UserError) as refused:
        edited(REQUEST, name, text)
    assert "expected" in refused.value.message + (refused.value.hint or "")


def test_every_field_of_a_sites_sbatch_can_be_edited_and_a_local_plan_has_no_such_field() -> None:
    site = {
        "account",
        "qos",
        "reservation",
        "constraint",
        "exclude",
        "gpu_type",
        "gpu_request",
        "cpus_per_gpu",
    }
    fields = {field.name for field in plan_fields(make_plan(REQUEST))}
    assert site | {"partition", "mem", "environment", "sbatch"} <= fields
    local = {field.name for field in plan_fields(replace(make_plan(REQUEST), backend="local"))}
    assert not (site | {"partition", "sbatch"}) & local
    assert edited(REQUEST, "cpus_per_gpu", "4").cpus_per_gpu == 4
    assert edited(REQUEST, "exclude", "node[1-2]").exclude == "node[1-2]"


def test_gpm_is_a_field_where_there_are_gpus_and_is_either_true_or_false() -> None:
    plan = make_plan(edited(REQUEST, "has_gpm", "true"))
    plan = replace(plan, resources=replace(plan.resources, gpus_per_node=2))
    assert [field.value for field in plan_fields(plan) if field.name == "has_gpm"] == ["true"]
    on_cpus = replace(plan, resources=replace(plan.resources, gpus_per_node=0))
    assert "has_gpm" not in [field.name for field in plan_fields(on_cpus)]
    assert edited(REQUEST, "has_gpm", "false").has_gpm is False
    assert edited(REQUEST, "has_gpm", "").has_gpm is None
    with pytest.raises(UserError, match="expected true or false"):
        edited(REQUEST, "has_gpm", "a lot")


def test_more_options_of_sbatch_are_written_as_key_and_value_and_read_back_the_same() -> None:
    options = {"comment": "a first # try", "mail-type": "END", "exclusive": ""}
    request = edited(REQUEST, "sbatch", "comment='a first # try' --mail-type=END exclusive")
    assert request.sbatch == options
    (field,) = [field for field in plan_fields(make_plan(request)) if field.name == "sbatch"]
    assert edited(REQUEST, "sbatch", field.value).sbatch == options
    assert edited(request, "sbatch", "").sbatch == {}
    with pytest.raises(UserError, match="a quote is not closed"):
        edited(REQUEST, "sbatch", "comment='a")


def test_a_choice_changes_all_that_it_needs_and_can_take_a_default_out() -> None:
    both = answered(REQUEST, Choice("a100", {"gpu_type": "a100", "gpu_request": "gres"}))
    assert (both.gpu_type, both.gpu_request) == ("a100", "gres")
    assert answered(REQUEST, Choice("none", {"reservation": ""})).reservation == ""
    assert answered(REQUEST, Choice("2", {"gpus_per_node": "2"})).gpus_per_node == 2


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_choices_fit_below_the_refusal(width: int) -> None:
    choices = [Choice(f"project-{number}", {"account": f"project-{number}"}) for number in range(9)]
    refused = Refused(["a very long line of a site " * 20, "the last"], "account", choices, "try --account")
    rows = refusal_lines(refused, "account", width, 9)
    assert len(rows) <= 9
    assert all(line_width(row) <= width for row in rows)
    text = "\n".join(map(plain, rows))
    assert "1 project-0" in text
    assert "a digit picks" in text
    assert "try --account" not in text


def test_a_refusal_keeps_every_line_of_slurms_words() -> None:
    rows = [
        plain(row)
        for row in error_lines(UserError("sbatch: error: first\nsbatch: error: second", "a hint"), 80)
    ]
    assert rows == [" ✖ sbatch: error: first", "   sbatch: error: second", "   a hint"]


def test_a_refusal_shows_the_diff_of_the_file_that_a_person_has_to_change() -> None:
    refused = UserError("no copy", diff=("-lr: 0.1", "+lr: [bold]\x1b0.2"))
    rows = ["".join(span.text for span in row) for row in error_lines(in_words_of_the_form(refused), 80)]
    assert rows[:2] == [" ✖ no copy", "   -lr: 0.1"]
    assert rows[2].startswith("   +lr: [bold]")
    assert rows[2].isprintable()


def test_a_script_line_with_an_escape_is_shown_not_obeyed() -> None:
    rows = [plain(row) for row in script_lines("#!/bin/bash\necho \x1b[2J\n")]
    assert rows == [" 1  #!/bin/bash", " 2  echo ␛[2J"]


def test_a_diff_has_a_sign_for_every_colour() -> None:
    rows = diff_lines(["--- a", "+++ b", "@@ -1 +1 @@", "-old", "+new", " same"])
    assert [row[0].tone for row in rows] == ["muted", "muted", "accent", "removed", "added", ""]


def swept(parameter: str, values: tuple[int, ...]) -> Plan:
    plans = [
        make_plan(replace(REQUEST, sweep_point=SweepPoint("group", parameter, value, index, len(values))))
        for index, value in enumerate(values)
    ]
    return replace(plans[0], others=tuple(plans[1:]))


def test_a_sweep_has_its_values_in_one_field_where_they_can_be_changed() -> None:
    fields = {field.name: field for field in plan_fields(swept("batch_size", (16, 64)))}
    assert (fields["set.batch_size"].value, fields["set.batch_size"].label) == ("16,64", "batch_size (sweep)")
    assert edited(REQUEST, "set.batch_size", "8,16").set["batch_size"] == "8,16"
    assert "num_nodes" in fields


def test_a_sweep_over_two_parameters_keeps_the_typed_values_in_both_fields() -> None:
    typed = {"lr": "0.1,0.3", "batch_size": "16..64*2"}
    planned = swept("lr, batch_size", (1, 2, 3, 4, 5, 6))
    planned = replace(planned, request=replace(planned.request, sweep=typed))
    fields = {field.name: field for field in plan_fields(planned)}
    assert {name: fields[f"set.{name}"].value for name in typed} == typed
    assert fields["set.lr"].label == "lr (sweep)"
    assert "6 runs, each" in plain(plan_heading(planned, 80))
    assert what_is_submitted(planned) == "submits exactly these 6 runs"
    one = edited(planned.request, "set.lr", "0.2")
    assert (one.set["lr"], dict(one.sweep)) == ("0.2", {"batch_size": "16..64*2"})


def test_a_sweep_over_ranks_decides_nodes_and_ranks_itself() -> None:
    fields = {field.name: field.value for field in plan_fields(swept("world_size", (1, 2, 4)))}
    assert fields["set.world_size"] == "1,2,4"
    assert not {"num_nodes", "nproc_per_node"} & set(fields)


def test_a_sweep_over_ranks_states_no_size_of_its_first_run_as_that_of_all() -> None:
    planned = swept("world_size", (1, 2, 4))
    runs = [
        replace(
            each, resources=replace(each.resources, num_nodes=1, nproc_per_node=ranks, gpus_per_node=ranks)
        )
        for each, ranks in zip((planned, *planned.others), (1, 2, 4), strict=True)
    ]
    planned = replace(runs[0], others=tuple(runs[1:]))
    assert "3 runs of 1 to 4 ranks · 1 to 4 GPUs" in plain(plan_heading(planned, 120))
    fields = {field.name: field.value for field in plan_fields(planned)}
    assert fields["gpus_per_node"] == ""
    without = tuple(replace(each, resources=replace(each.resources, gpus_per_node=0)) for each in runs)
    planned = replace(without[0], others=without[1:])
    assert "3 runs of 1 to 4 ranks · no GPU" in plain(plan_heading(planned, 120))
    assert {field.name: field.value for field in plan_fields(planned)}["gpus_per_node"] == "0"
