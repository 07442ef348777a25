"""Fixes respect the hardware (a device, a node's memory, several GPUs) and state their effect on the
training's result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.model.launching.launch import AppliedFix
from coach.model.training.telemetry import HostSample
from coach.rules.advice.remedies import (
    bf16,
    leave_out,
    lower_learning_rate,
    saved_before_limit,
    sharding,
    smaller_micro_batch,
    without,
    workers,
)
from tests.rules.examples import diagnose_log, judge, run, steps


@pytest.mark.parametrize(
    ("model", "batch", "is_learning_changed"), [("gpt", 8, False), ("simplecnn", 8, True), ("gpt", 7, True)]
)
def test_the_fix_of_a_smaller_micro_batch_states_its_effect_on_learning(
    model: str, batch: int, is_learning_changed: bool
) -> None:
    (fix,) = smaller_micro_batch(run({"model": model, "batch_size": batch, "gradient_accumulation": 1}))
    assert fix.changes == {"batch_size": 4, "gradient_accumulation": 2}
    assert fix.changes_learning is is_learning_changed
    assert ("BatchNorm" in fix.title) is (model == "simplecnn")


def test_a_launch_without_accumulation_is_advised_in_words() -> None:
    (fix,) = smaller_micro_batch(run({"batch_size": 8}))
    assert (fix.title[:22], dict(fix.changes)) == ("Halve the micro-batch ", {})
    assert not list(smaller_micro_batch(run({"batch_size": 1})))


def test_a_rate_of_zero_is_not_lowered() -> None:
    assert not list(lower_learning_rate(run({"lr": 0.0}), 3, 100))


@pytest.mark.parametrize(
    ("parameters", "changes"),
    [
        ({"lr": 3e-4, "warmup_steps": 400}, {"lr": 1e-4, "warmup_steps": 800}),
        ({"lr": 0.1, "warmup_steps": 0}, {"lr": 0.033, "warmup_steps": 100}),
        ({"lr": 0.1}, {"lr": 0.033}),
    ],
)
def test_a_lower_learning_rate_has_a_longer_warm_up_where_the_launch_has_one(
    parameters: dict[str, object], changes: dict[str, float]
) -> None:
    (fix,) = lower_learning_rate(run(parameters), divisor=3, least_warmup_steps=100)
    assert (fix.changes, fix.changes_learning) == (changes, True)
    assert not list(lower_learning_rate(run({}), 3, 100))


OWN = {"own": {"kind": "script", "words": ["train.py"], "directory": "/home/user"}}
"""The launch of a person's own program: its run has the program's name in place of a recipe's."""


def test_a_rate_that_a_fix_lowered_already_is_divided_twice() -> None:
    child = replace(run({"lr": 0.1}), fix=AppliedFix("NUM001", "lower", {"lr": 0.1}))
    (fix,) = lower_learning_rate(child, divisor=10, least_warmup_steps=100)
    assert fix.changes == {"lr": 0.001}
    assert "was still too high" in fix.title


def test_a_batch_of_one_cannot_be_halved() -> None:
    assert not list(smaller_micro_batch(run({"batch_size": 1, "gradient_accumulation": 1})))


@pytest.mark.parametrize(
    ("gpus", "remedies", "is_offered"),
    [(2, {"shard": {"recipe": "fsdp"}}, True), (1, {"shard": {"recipe": "fsdp"}}, False), (2, {}, False)],
)
def test_sharding_needs_several_gpus_and_a_recipe_that_declares_its_way(
    gpus: int, remedies: dict[str, dict[str, str]], is_offered: bool
) -> None:
    launched = replace(run({}, {"num_nodes": 1, "gpus_per_node": gpus}), recipe="own", remedies=remedies)
    assert [fix.changes for fix in sharding(launched)] == [{"recipe": "fsdp"}] * is_offered


@pytest.mark.parametrize(("total", "mem"), [(64000.0, "3900M"), (3500.0, "3500M"), (None, "3900M")])
def test_more_memory_is_never_more_than_the_node_has(total: float | None, mem: str) -> None:
    launched = run({}, {"mem": "3G"}, state="OUT_OF_MEMORY")
    samples = [
        HostSample("n1", 1000.0 + n, memory_used_mib=3000.0, node_memory_total_mib=total) for n in range(5)
    ]
    fix = judge(steps([2.0] * 3), samples, launched).findings[0].fixes[0]
    wanted = {"3900M": "4032M"}.get(mem, mem)
    assert fix.changes == {"mem": wanted}
    assert ("all that the node has" in fix.title) is (mem == "3500M")


def test_expandable_segments_need_more_unused_memory_than_was_asked_for() -> None:
    def is_offered(line: str) -> bool:
        return any("env" in fix.changes for fix in diagnose_log(line, run({})).findings[0].fixes)

    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s GiB. GPU 0 has a total capacity of "
        "15.77 GiB of which"
    )
    text += (
        " 1.12 GiB is free. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 4.00 GiB is "
        "reserved by PyTorch but unallocated."
    )
    assert is_offered(text % "2.00")
    assert not is_offered(text % "6.00")


def test_a_node_is_left_out_beside_those_that_are_and_only_where_there_are_others() -> None:
    assert without(run({}, {"exclude": "n1"}), "n2") == {"exclude": "n1,n2"}
    assert without(replace(run(), backend="local"), "n2") == {}
    assert without(None, "n2") == {}
    assert [dict(fix.changes) for fix in leave_out(run({}, {"exclude": "n1"}), "n2", "it is old")] == [
        {"exclude": "n1,n2"}
    ]
    assert not list(leave_out(replace(run(), backend="local"), "n2", "it is old"))


@pytest.mark.parametrize(("stage", "changes"), [(1, [{"stage": 3}]), (3, [])])
def test_zero_is_taken_to_its_last_stage(stage: int, changes: list[dict[str, int]]) -> None:
    asked = {"num_nodes": 2, "gpus_per_node": 1}
    launched = replace(run({"stage": stage}, asked), recipe="own", remedies={"shard": {"stage": 3}})
    assert [dict(fix.changes) for fix in sharding(launched)] == changes


@pytest.mark.parametrize(
    ("now", "wanted", "cpus", "possible"),
    [(2, 6, 8, 6), (2, 12, 8, 8), (8, 12, 8, None), (12, 16, 8, None), (2, 6, None, None), (12, 8, 8, 8)],
)
def test_workers_are_never_more_than_the_cpus_of_a_rank(
    now: int, wanted: int, cpus: int | None, possible: int | None
) -> None:
    changes = [dict(fix.changes) for fix in workers(run({"num_workers": now}), wanted, cpus)]
    assert [each for each in changes if each] == ([] if possible is None else [{"num_workers": possible}])
    assert bool(changes) is (possible is not None or cpus is None), (
        "where it is not known, it is said in words"
    )


@pytest.mark.parametrize(
    ("name", "is_offered"),
    [
        ("NVIDIA A100-SXM4-40GB", True),
        ("NVIDIA H200", True),
        ("NVIDIA GeForce RTX 3090", True),
        ("Tesla V100-SXM2-32GB", False),
        ("Tesla T4", False),
        ("NVIDIA GeForce RTX 2080 Ti", False),
        ("NVIDIA RTX 4000 Ada Generation", True),
        ("Quadro RTX 5000", False),
    ],
)
def test_bf16_support_follows_the_gpu_s_name_if_nothing_else_is_known(name: str, is_offered: bool) -> None:
    (fix,) = bf16(run(device={"type": "cuda", "name": name}), "bf16")
    assert bool(fix.changes) is is_offered


@pytest.mark.parametrize(
    ("parameters", "asked", "changes"),
    [
        ({"checkpoint_every": 0}, {}, {"checkpoint_every": 1200, "signal": "USR1@300"}),
        ({"checkpoint_every": 100_000}, {}, {"checkpoint_every": 1200, "signal": "USR1@300"}),
        ({"checkpoint_every": 100}, {}, {"signal": "USR1@300"}),
        ({"checkpoint_every": 0}, {"signal": "USR1@60"}, {"checkpoint_every": 1200}),
        ({"checkpoint_every": 100}, {"signal": "USR1@60"}, {}),
    ],
)
def test_the_fix_that_saves_before_the_limit_keeps_options_that_the_launch_has(
    parameters: dict[str, int], asked: dict[str, str], changes: dict[str, object]
) -> None:
    (fix,) = saved_before_limit(run(parameters, asked), 3600, 0.5, "Save")
    assert dict(fix.changes) == changes
    assert not fix.changes_learning


def test_a_short_job_is_not_signalled_and_a_foreign_program_s_fix_explains_the_signal() -> None:
    assert not next(iter(saved_before_limit(run(), 60, 0.5, "Save"))).changes
    under_coach_run = run(recipe="train", launch={"share": "/shared"})
    for launched in (run(recipe=""), run(recipe="train", launch=OWN), under_coach_run):
        (fix,) = saved_before_limit(launched, 3600, None, "Save")
        assert dict(fix.changes) == {"signal": "USR1@300"}
        assert "ends a program that does not handle it" in fix.title


def test_the_fix_of_a_recipe_does_not_explain_the_signal() -> None:
    (fix,) = saved_before_limit(run({"lr": 0.1}, launch={"recipe": "ddp"}), 3600, None, "Save")
    assert fix.title == "Save"


def test_a_person_s_own_program_on_several_gpus_is_advised_to_shard() -> None:
    launched = run({}, {"num_nodes": 1, "gpus_per_node": 2}, recipe="train", launch=OWN)
    (fix,) = sharding(launched)
    assert not fix.changes
    assert "FSDP" in fix.title
