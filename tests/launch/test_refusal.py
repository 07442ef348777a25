"""A refused sbatch leads to the field that caused it, in any words of a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.launch.refusal import Refused, explain, field_named, fields_in_question, option_of, slurms_words
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Plan, Resources
from tests.launch.examples import MACHINE, plan

FAILED = "sbatch: error: Batch job submission failed: "
ACCOUNT = FAILED + "Invalid account or account/partition combination specified"
UNSPECIFIED = FAILED + "Unspecified error"


def gpu_plan(**resources: Any) -> Plan:
    base = Resources(1, 2, 2, 6, 1800, partition="gpu")
    return Plan(
        LaunchRequest("ddp"),
        *("id", "/runs/id", "slurm", "ddp", "DDP"),
        parameters={},
        resources=replace(base, **resources),
        script="",
        choices={"partition": ("cpu", "gpu", "long"), "gpu_type": ("a100", "h100")},
    )


def explained(stderr: str, made: Plan | None = None, **known: tuple[str, ...]) -> Refused:
    made = made or gpu_plan()
    lines = slurms_words(stderr)
    return explain(lines, made, fields_in_question(lines, made), known)


@pytest.mark.parametrize(
    ("stderr", "field"),
    [
        (ACCOUNT, "account"),
        (FAILED + "Invalid qos specification", "qos"),
        (FAILED + "Requested reservation is invalid", "reservation"),
        (FAILED + "Access denied to requested reservation", "reservation"),
        (FAILED + "Requested GRES option unsupported by configured SelectType plugin", "gpu_type"),
        (FAILED + "Invalid generic resource (gres) specification", "gpu_type"),
        (FAILED + "Requested time limit is invalid (missing or exceeds some limit)", "time_limit_s"),
        (FAILED + "Invalid feature specification", "constraint"),
        (FAILED + "Invalid node name specified", "exclude"),
        (FAILED + "Invalid license specification", "sbatch"),
        (FAILED + "User's group not permitted to use this partition", "partition"),
        (FAILED + "Required partition not available (inactive or drain)", "partition"),
        (FAILED + "Node count specification invalid", "num_nodes"),
        ("sbatch: error: Memory specification can not be satisfied\n" + FAILED + "Unspecified error", "mem"),
        (
            "sbatch: error: CPU count per node can not be satisfied\n"
            + FAILED
            + "Requested node configuration is not available",
            "cpus_per_task",
        ),
        ("sbatch: error: invalid partition specified: x\n" + FAILED + "Invalid partition name", "partition"),
        ("sbatch: unrecognized option '--nosuch=3'\nTry \"sbatch --help\"", "sbatch"),
        (
            "sbatch: error: QOSMaxWallDurationPerJobLimit\n"
            + FAILED
            + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "time_limit_s",
        ),
        (
            "sbatch: error: QOSMaxGRESPerUser\n" + FAILED + "Job violates accounting/QOS policy (job …)",
            "gpus_per_node",
        ),
        (FAILED + "Unable to contact slurm controller (connect failure)", None),
        (UNSPECIFIED, None),
    ],
)
def test_slurms_own_sentences_name_a_field(stderr: str, field: str | None) -> None:
    assert explained(stderr).field == field


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("Please specify your project with -A", "account"),
        ("Jobs need a valid project code on this cluster.", "account"),
        ("GPU jobs must name the type of GPU, e.g. --gres=gpu:a100:1", "gpu_type"),
        ("partition gpu: a reservation is needed this week", "reservation"),
        ("partition gpu: wall time above 4 h needs --qos=long", "qos"),
        ("Requested walltime exceeds the queue's maximum", "time_limit_s"),
        ("Use --constraint=ib for jobs on several nodes", "constraint"),
        ("please set --mail-user so that we can reach you", "sbatch"),
        ("this queue is closed until Monday", "partition"),
        ("no", None),
    ],
)
def test_a_sites_own_words_name_a_field_by_the_option_before_the_noun(words: str, field: str | None) -> None:
    assert explained(f"sbatch: error: {words}\n{UNSPECIFIED}").field == field


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"constraint": "ib", "mem": "900G"}, "constraint"),
        ({"mem": "900G"}, "mem"),
        ({"gpu_type": "a100"}, "gpu_request"),
        ({}, "cpus_per_task"),
    ],
)
def test_nodes_that_do_not_exist_lead_to_the_refused_request(resources: dict[str, Any], field: str) -> None:
    stderr = FAILED + "Requested node configuration is not available"
    assert explained(stderr, gpu_plan(**resources)).field == field


def test_all_lines_of_slurms_refusal_are_kept_and_shown_in_one() -> None:
    refused = explained(f"sbatch: error: You must say who pays.\n\n{ACCOUNT}\n")
    assert refused.lines == (
        "You must say who pays.",
        "Batch job submission failed: Invalid account or account/partition combination specified",
    )
    assert refused.message.startswith("sbatch: You must say who pays. Batch job submission failed: ")
    assert refused.message.endswith("combination specified")


def texts(refused: Refused) -> list[str]:
    return [choice.text for choice in refused.choices]


def test_accounts_that_slurm_knows_are_offered_those_that_the_words_name_first() -> None:
    refused = explained(f"sbatch: error: use teaching or so\n{ACCOUNT}", account=("lab", "teaching"))
    assert texts(refused) == ["teaching", "lab"]
    assert refused.choices[0].changes == {"account": "teaching"}
    assert refused.hint == "try --account=teaching, or lab"


def test_the_present_value_is_not_offered_again() -> None:
    assert texts(explained(ACCOUNT, gpu_plan(account="lab"), account=("lab", "teaching"))) == ["teaching"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("submit with --account=lab or --account=teaching", ["lab", "teaching"]),
        ("no account given; your accounts: lab-ml, teaching.", ["lab-ml", "teaching"]),
        ("Your accounts are lab, teaching and x1. Ask the helpdesk.", ["lab", "teaching", "x1"]),
        ("please use one of these projects: lab/teaching", ["lab", "teaching"]),
        ("submit with --account=ACCOUNT (sbatch -A <account>)", []),
        ("no account: please contact help@site.org", []),
        ("use --account=your_project_name, e.g. --account=PROJECTID", []),
        ("use -A m1234 or -A 10234, -A themis, -A mylab", ["m1234", "10234", "themis", "mylab"]),
        ("Job's account not permitted to use this partition (gpu allows lab,ml not default)", ["lab", "ml"]),
    ],
)
def test_without_an_answer_from_slurm_the_choices_come_from_the_site_s_refusal(
    words: str, offered: list[str]
) -> None:
    assert texts(explained(f"sbatch: error: {words}\n{ACCOUNT}")) == offered


def test_a_missing_type_of_gpu_offers_the_partitions_types_in_the_spelling_that_the_site_asks_for() -> None:
    words = f"sbatch: error: name a type of GPU: --gres=gpu:h100:1\n{UNSPECIFIED}"
    refused = explained(words)
    assert [dict(choice.changes) for choice in refused.choices] == [
        {"gpu_type": "h100", "gpu_request": "gres"},
        {"gpu_type": "a100", "gpu_request": "gres"},
    ]
    assert refused.hint == "try --gpu-type=h100 --gpu-request=gres, or a100"
    untold = explained(f"sbatch: error: GPU type missing\n{UNSPECIFIED}")
    assert untold.choices[0].changes == {"gpu_type": "a100"}
    typed = explained(words, gpu_plan(gpu_type="a100"))
    assert (typed.field, typed.choices[0].changes) == ("gpu_request", {"gpu_request": "gres"})


def test_a_launch_without_gpus_is_led_to_their_number() -> None:
    assert (
        explained("sbatch: error: use --gres=gpu:1 here", gpu_plan(gpus_per_node=0)).field == "gpus_per_node"
    )


def test_a_value_to_leave_out_is_no_option_without_a_value() -> None:
    made = replace(gpu_plan(constraint="nosuch"), choices={})
    assert explained(FAILED + "Invalid feature specification", made).hint == "leave out --constraint"


def test_an_expired_reservation_can_be_replaced_or_left_out() -> None:
    made = gpu_plan(reservation="lastweek")
    refused = explained(FAILED + "Requested reservation is invalid", made, reservation=("workshop",))
    assert [dict(choice.changes) for choice in refused.choices] == [
        {"reservation": "workshop"},
        {"reservation": ""},
    ]


def test_a_locked_field_is_not_offered_and_the_sites_reason_is_given() -> None:
    made = replace(gpu_plan(), locked={"account": "one for all (/etc/coach/site.toml:3)"})
    refused = explained(ACCOUNT, made)
    assert refused.field == "partition"
    both = replace(made, locked={**made.locked, "partition": "p (site.toml:4)"})
    refused = explained(ACCOUNT, both)
    assert refused.field is None
    assert refused.hint == "--account is locked by the site: one for all (/etc/coach/site.toml:3)"


def test_a_locked_partition_that_takes_no_jobs_is_not_blamed_on_the_account() -> None:
    closed = FAILED + "Required partition not available (inactive or drain)"
    refused = explained(closed, replace(gpu_plan(), locked={"partition": "the course has this one"}))
    assert refused.field is None
    assert refused.hint == "--partition is locked by the site: the course has this one"


def test_a_field_is_named_by_the_option_that_a_user_knows() -> None:
    assert [option_of(name) for name in ("num_nodes", "time_limit_s", "gpu_type")] == [
        *("--nodes", "--time", "--gpu-type"),
    ]


@pytest.mark.parametrize(
    ("message", "hint", "field"),
    [
        ("--gpus 4: partition gpu has 2 GPUs per node", None, "gpus_per_node"),
        ("this cluster has no default partition", "--partition: one of cpu, gpu", "partition"),
        ("torch 2.3 is too old", "use --env NAME", "environment"),
        ("--no-such-thing and --time 9", None, "time_limit_s"),
        ("Slurm does not answer", None, None),
    ],
)
def test_a_refusal_of_coachs_own_names_its_field_by_its_option(
    message: str, hint: str | None, field: str | None
) -> None:
    assert field_named(UserError(message, hint)) == field


def test_this_machine_has_no_sbatch_to_set_anything_for(tmp_path: Path) -> None:
    assert fields_in_question(["account"], plan(tmp_path, site=MACHINE)) == ()


def test_a_partition_named_gpu_is_no_request_for_another_number_of_gpus() -> None:
    said = "sbatch: error: Please use one of the following partitions: short, long (max 7 days), gpu.\n"
    refused = explained(said + UNSPECIFIED)
    assert (refused.field, refused.choices[0].text) == ("partition", "long")
    assert explained("sbatch: error: partition gpu needs at least one GPU\n").field == "gpus_per_node"


def test_a_limit_of_the_account_may_concern_the_size_of_the_job() -> None:
    said = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    names = fields_in_question(slurms_words(FAILED + said), gpu_plan())
    assert names == ("time_limit_s", "gpus_per_node", "num_nodes", "qos")
