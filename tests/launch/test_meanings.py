"""Every value of a plan has a sentence, with the limits of the target in it."""

from __future__ import annotations

from coach.launch.meanings import limits_and_default, parameter_meanings, resource_meanings
from coach.launch.parameters import Parameter
from coach.launch.resources import Resolved
from coach.model.launching.launch import Resources

LR = Parameter("lr", "float", 0.05, "Step size", above=0.0, usual=(0.001, 1.0))


def test_limits_of_the_partition_stand_in_the_meaning_of_a_field() -> None:
    limits = {"num_nodes": 4, "gpus_per_node": 8, "time_limit_s": 86400}
    choices = {"partition": ("cpu", "gpu"), "gpu_type": ()}
    meanings = resource_meanings(Resolved(Resources(1, 0, 1, 1, 600), (), (), choices, limits))
    assert "at most 4; " in meanings["num_nodes"]
    assert "at most 8; " in meanings["gpus_per_node"]
    assert "at most 1-00:00:00; " in meanings["time_limit_s"]
    assert "cpu or gpu" in meanings["partition"]
    assert "{" not in "".join(resource_meanings(None).values())


def test_a_lower_limit_of_the_site_stands_in_place_of_the_partition_s() -> None:
    target = {"gpus_per_node": 8, "time_limit_s": 86400}
    resolved = Resolved(Resources(1, 0, 1, 1, 600), (), (), {}, target)
    meanings = resource_meanings(resolved, {"gpus_per_node": 2, "time_limit_s": 7200})
    assert "at most 02:00:00; " in meanings["time_limit_s"]
    assert "at most 2; " in meanings["gpus_per_node"]
    higher = resource_meanings(resolved, {"gpus_per_node": 16, "time_limit_s": 7 * 86400})
    assert "at most 1-00:00:00; " in higher["time_limit_s"]
    assert "at most 8; " in higher["gpus_per_node"]


def test_a_parameter_has_its_help_limits_usual_range_and_default() -> None:
    assert limits_and_default(LR) == "above 0 · usual 0.001 to 1 · default 0.05"
    assert parameter_meanings([LR]) == {"lr": "Step size [above 0 · usual 0.001 to 1 · default 0.05]"}
