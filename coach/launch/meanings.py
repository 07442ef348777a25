"""One sentence about each value that a plan asks for, with its unit, limits and default. Pure.

A form shows the sentence beside the value, where a learner decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from coach.launch.parameters import Parameter, show
from coach.launch.resources import Resolved
from coach.launch.spelling import format_time

_RESOURCES: Mapping[str, str] = MappingProxyType(
    {
        "num_nodes": "Machines that train together; {num_nodes}default 1.",
        "gpus_per_node": "GPUs on each node; {gpus_per_node}0 trains on CPUs.",
        "nproc_per_node": "Training processes on each node: one for each GPU, or any number on CPUs.",
        "cpus_per_task": "CPU cores on each node, for all its ranks and their data workers.",
        "time_limit_s": "The run is ended after this time, as H:MM:SS; {time_limit_s}empty: the default.",
        "mem": "RAM on each node, as 16G or 800M; empty: what the recipe needs, or the cluster's default.",
        "partition": "The group of nodes to run on{partition}; empty: the default, or one with GPUs.",
        "account": "The account that is charged; empty: your default account.",
        "qos": "The quality of service, which sets priority and limits; empty: your default.",
        "reservation": "A reservation to run in, if you were given one.",
        "constraint": "A feature that the nodes must have, as the site names it.",
        "exclude": "Nodes to leave out, as node1,node[3-5].",
        "gpu_type": "The type of GPU{gpu_type}; empty: any type.",
        "gpu_request": "The option of sbatch that requests GPUs: gpus-per-node or gres.",
        "cpus_per_gpu": "CPU cores for each GPU, instead of CPUs per task.",
        "environment": "Python of the training: NAME, venv=PATH, conda=NAME or a path; empty: coach chooses.",
        "has_gpm": "true also measures how busy parts of the GPU are, if the GPU reports it.",
        "sbatch": "More options of sbatch, as comment=text mail-type=END.",
    }
)


def resource_meanings(
    resolved: Resolved | None, site: Mapping[str, int] = MappingProxyType({})
) -> dict[str, str]:
    """Field of the request → its sentence, with the target's limits and choices, or the site's own limits
    where these are lower. They are left out if the resources could not be resolved."""
    most = {"num_nodes": "", "gpus_per_node": "", "time_limit_s": ""}
    for name, limit in _lower(resolved.limits, site).items() if resolved is not None else ():
        most[name] = f"at most {format_time(limit) if name == 'time_limit_s' else limit}; "
    for name in ("partition", "gpu_type"):
        choices = resolved.choices.get(name, ()) if resolved is not None else ()
        most[name] = f": {' or '.join(choices)}" if choices else ""
    return {name: text.format_map(most) for name, text in _RESOURCES.items()}


def _lower(target: Mapping[str, int], site: Mapping[str, int]) -> dict[str, int]:
    """The lower of the two limits of each field."""
    names = dict.fromkeys((*target, *site))
    return {name: min(each[name] for each in (target, site) if name in each) for name in names}


def parameter_meanings(parameters: Iterable[Parameter]) -> dict[str, str]:
    """Name of a parameter → its help, unit, limits, usual range and default."""
    return {each.name: f"{each.help} [{limits_and_default(each)}]" for each in parameters}


def limits_and_default(parameter: Parameter) -> str:
    """The range and default of a parameter: `samples · at least 1 · usual 16 to 512 · default 64`."""
    words = [parameter.unit, parameter.limits() or parameter.type]
    words.append(f"usual {parameter.usual_words}" if parameter.usual else "")
    words.append(f"default {show(parameter.default)}" if parameter.default != "" else "default: none")
    return " · ".join(word for word in words if word)
