"""Turns the resources of a request into those of the job: nodes, GPUs, ranks, CPUs, time, memory.

A request that cannot work is refused here, before the submission, by the cluster's own facts: no job shall
wait two hours and then fail on its first line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from coach.launch.limits import within, within_cpus
from coach.launch.recipe import Recipe
from coach.launch.spelling import format_time, parse_mem_mib, parse_signal_lead
from coach.model.errors import UserError, hidden_by_site
from coach.model.launching.launch import GPU_REQUESTS, LaunchRequest, OwnKind, OwnProgram, Resources
from coach.model.slurm.cluster import Node, Partition
from coach.model.slurm.memory import mem_mib, spell_memory

MIN_TIME_FOR_SIGNAL_S = 120
"""A shorter run ends before a signal and a requeue would be worth it."""

MAX_SIGNAL_LEAD_S = 120

MEM_HEADROOM = 1.3
"""Times the measured need: another version of torch, longer data."""

CUDA_MIB = 2560
"""Host memory that CUDA adds to a rank: its libraries, the context and pinned batches. Calculated from the 2
to 3 GiB that a process with CUDA has resident; not measured."""

_NO_REAL_MEMORY = 1
"""MiB of a node whose RealMemory the site left out; Slurm refuses a larger --mem there. slurm.conf(5)"""

_MEM_OPTIONS = frozenset({"mem-per-cpu", "mem-per-gpu"})

_SAY_GPUS = (
    "--gpus N asks for N per node, --gpus 0 trains on CPUs; gpus in [launch] of config.toml sets the default"
)


@dataclass(frozen=True, slots=True)
class Site:
    """Facts about the target: the partitions and nodes of a cluster, or, for `local`, this machine as the
    only node."""

    backend: str
    partitions: tuple[Partition, ...]
    nodes: tuple[Node, ...]
    hidden: frozenset[str] = frozenset()
    """Those of `partitions` and `nodes` that the site hides from the user. coach cannot check a request
    against them."""
    own_groups: frozenset[str] | None = None
    """The user's groups on this machine; None if unknown."""

    @property
    def default_partition(self) -> Partition | None:
        return next((partition for partition in self.partitions if partition.is_default), None)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The resources, the decisions made for them, and the warnings."""

    resources: Resources
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    """Field of the request → the values that the target offers."""
    limits: Mapping[str, int]
    """Field of the request → the most that the target allows: nodes, GPUs per node, seconds."""
    mem_need_mib: int | None = None
    """Memory per node that the recipe needs, with headroom; None: unknown."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The part of the site that the job may use. `name` can begin a sentence."""

    name: str
    nodes: tuple[Node, ...]
    num_nodes: int | None
    """None if the site hides it, as for `has_gpus`."""
    has_gpus: bool | None
    partition: Partition | None
    is_local: bool = False
    partition_name: str | None = None

    @property
    def max_nodes(self) -> int | None:
        """The most nodes that it allows one job; None: no limit."""
        return None if self.partition is None else self.partition.max_nodes

    @property
    def most_nodes(self) -> int | None:
        """The most nodes that a job can have; None if unknown."""
        return min((count for count in (self.num_nodes, self.max_nodes) if count is not None), default=None)

    @property
    def most_gpus(self) -> int:
        """The most GPUs that one of its nodes has."""
        nodes = self.nodes if self.has_gpus else ()
        return max((sum(gpu.total for gpu in node.gpus) for node in nodes), default=0)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The types of its GPUs, spelt as the site does."""
        nodes = self.nodes if self.has_gpus else ()
        return tuple(sorted({gpu.type for node in nodes for gpu in node.gpus if gpu.type}))


def resolve_resources(
    request: LaunchRequest, recipe: Recipe, parameters: Mapping[str, Any], site: Site
) -> Resolved:
    """Fill in each default and refuse a request that the target cannot meet. Of a list of partitions, such as
    `a,b`, each is judged: Slurm takes the one that can start the job first."""
    names = list(dict.fromkeys(filter(None, (request.partition or "").split(","))))
    if len(names) < 2 or site.backend == "local":
        return _resolve_in_one(request, recipe, parameters, site)
    for name in names if "partitions" not in site.hidden else ():
        _partition(name, site)  # Slurm refuses a list with an unknown name
    found: dict[str, Resolved] = {}
    why_not: dict[str, UserError] = {}
    for name in names:
        try:
            found[name] = _resolve_in_one(replace(request, partition=name), recipe, parameters, site)
        except UserError as problem:
            why_not[name] = problem
    if not found:
        raise next(iter(why_not.values()))
    first = next(iter(found.values()))
    mem = _largest_mem(found.values())
    shared = replace(first.resources, mem=mem)
    alike = [
        name
        for name, each in found.items()
        if replace(each.resources, partition=shared.partition, mem=mem) == shared
    ]
    left_out = [f"partition {name} is left out: {problem.message}" for name, problem in why_not.items()]
    left_out += [
        f"partition {name} is left out: the job would get other CPUs, GPUs, memory or time there"
        for name in found
        if name not in alike
    ]
    note = f"partitions {', '.join(alike)}: Slurm takes the one that can start the job first"
    return replace(
        first,
        resources=replace(shared, partition=",".join(alike)),
        notes=(*((note,) if len(alike) > 1 else ()), *first.notes),
        warnings=(*first.warnings, *left_out),
    )


def _largest_mem(found: Iterable[Resolved]) -> str | None:
    """The memory that is enough in all partitions: each has its own default and limit."""
    return max((each.resources.mem for each in found), key=lambda text: mem_mib(text or "") or 0)


def _resolve_in_one(
    request: LaunchRequest, recipe: Recipe, parameters: Mapping[str, Any], site: Site
) -> Resolved:
    target = _target(request, site)
    notes: list[str] = []
    warnings: list[str] = []
    warnings += _foreign_groups(target, site)
    request = _without_foreign_type(request, target, notes)
    _check_gpu_type(request, target)
    num_nodes = _num_nodes(request, recipe, target)
    gpus = _gpus(request, recipe, parameters, target, num_nodes)
    nproc = _own_nproc(request, recipe.own, gpus) or _nproc(request, recipe, num_nodes, gpus, warnings)
    started = _started_ranks(recipe, parameters, gpus)
    if recipe.own is not None:
        notes.append(_own_text(recipe.own, num_nodes, nproc, gpus))
        request = _with_own_cpus(request, target, num_nodes, gpus, nproc)
    else:
        notes += _ranks_notes(request, target, gpus, num_nodes * (started or nproc), started)
    gpu_type = _gpu_type(request, target, num_nodes, gpus, notes)
    cpus_per_gpu = _cpus_per_gpu(request, gpus, notes)
    most_cpus = _most_cpus(request, target, num_nodes, gpus)
    request = within_cpus(request, most_cpus, target.name, warnings)
    if cpus_per_gpu is not None:
        request = replace(request, cpus_per_task=None)
        cpus = _cpus_of_gpus(cpus_per_gpu, gpus, most_cpus, target)
    else:
        usual_ranks = _ranks(recipe, num_nodes) or 0
        cpus = _cpus(request, parameters, target, most_cpus, started or nproc, usual_ranks, notes)
    limit_s = target.partition.time_limit_s if target.partition else None
    request = within(request, limit_s, _memory_mib(target, num_nodes), target.name, warnings)
    need = _mem_need(recipe, parameters, started or nproc, gpus)
    mem = _mem(request, need, target, num_nodes, cpus, notes, warnings)
    time_limit_s = _time_limit(request, recipe, target, notes)
    is_local = site.backend == "local"
    if is_local:
        notes += _ignored_notes(request)
    resources = Resources(
        num_nodes=num_nodes,
        gpus_per_node=gpus,
        nproc_per_node=nproc,
        cpus_per_task=cpus,
        time_limit_s=time_limit_s,
        mem=mem,
        gpu_type=gpu_type,
        gpu_request=_gpu_request(request),
        cpus_per_gpu=cpus_per_gpu,
        signal=signal_of(request, recipe.own, time_limit_s),
        partition=target.partition_name,
        **({} if is_local else _only_for_slurm(request)),
    )
    choices = {"gpu_type": target.gpu_types, "partition": tuple(p.name for p in site.partitions)}
    limits = {} if target.most_nodes is None else {"num_nodes": target.most_nodes}
    if target.has_gpus is not None:
        limits["gpus_per_node"] = target.most_gpus
    if limit_s is not None:
        limits["time_limit_s"] = limit_s
    return Resolved(resources, tuple(notes), tuple(warnings), choices, limits, need[0])


_SLURM_ONLY = ("partition", "account", "qos", "reservation", "constraint", "exclude")


def _ranks_notes(
    request: LaunchRequest, target: _Target, gpus: int, num_ranks: int, started: int | None
) -> list[str]:
    """Notes on where the ranks run, unless each has a GPU of its own."""
    if gpus == 0:
        why = "as asked" if request.gpus_per_node == 0 else f"{target.name} has no GPUs"
        return [f"{why}: {_cpu_ranks_text(num_ranks, has_gloo=not started)}"]
    return [f"the trainer starts {_count(started, 'rank')} itself"] if started else []


def _cpu_ranks_text(num_ranks: int, *, has_gloo: bool) -> str:
    if num_ranks == 1:
        return "1 CPU rank"
    return f"{num_ranks} CPU ranks{' over gloo' if has_gloo else ''}"


def _ignored_notes(request: LaunchRequest) -> list[str]:
    ignored = [key for key in _SLURM_ONLY if getattr(request, key)]
    ignored += [f"sbatch {key}" for key in request.sbatch]
    return [f"this machine has no scheduler: {', '.join(ignored)} not used"] if ignored else []


def _only_for_slurm(request: LaunchRequest) -> dict[str, str | None]:
    """The requested options that only Slurm has, without the partition. An empty text means "none" and
    overrides the config."""
    return {key: getattr(request, key) or None for key in _SLURM_ONLY if key != "partition"}


def _without_foreign_type(request: LaunchRequest, target: _Target, notes: list[str]) -> LaunchRequest:
    """The request without a GPU type that came from the config and that the target lacks. A lacking type from
    the user's own request is refused elsewhere."""
    wanted = request.gpu_type
    if wanted is None or "gpu_type" not in request.defaulted or wanted in target.gpu_types:
        return request
    if target.has_gpus is None:
        return request
    if target.has_gpus:
        notes.append(f"{target.name} has no {wanted}: the config's GPU type is not requested")
    return replace(request, gpu_type=None)


def _gpu_request(request: LaunchRequest) -> str:
    asked = request.gpu_request or GPU_REQUESTS[0]
    if asked not in GPU_REQUESTS:
        raise UserError(
            f"--gpu-request {asked}: not a way to request GPUs", f"expected {' or '.join(GPU_REQUESTS)}"
        )
    return asked


def _target(request: LaunchRequest, site: Site) -> _Target:
    if site.backend == "local":
        machine = site.nodes[0]
        has_gpus = sum(gpu.total for gpu in machine.gpus) > 0
        return _Target("this machine", site.nodes, 1, has_gpus, None, is_local=True)
    if "partitions" in site.hidden:
        return _hidden_target(request.partition, site)
    partition = _partition(request.partition, site)
    nodes = tuple(node for node in site.nodes if partition.name in node.partitions)
    name = f"partition {partition.name}"
    has_gpus_there = None if partition.num_gpus_per_node is None else partition.num_gpus_per_node > 0
    # A partition for the CPUs of GPU nodes: Slurm gives GPUs to those who name it and ask for them.
    asks = bool(request.partition is not None and request.gpus_per_node)
    if asks and has_gpus_there is False and any(node.gpus for node in nodes):
        has_gpus_there = True
    num_nodes = partition.num_nodes
    return _Target(name, nodes, num_nodes, has_gpus_there, partition, partition_name=partition.name)


def _foreign_groups(target: _Target, site: Site) -> list[str]:
    """A warning if the partition is for groups and the user is in none of them. The controller decides: it
    may know other groups than this machine."""
    allowed = None if target.partition is None else target.partition.allow_groups
    if allowed is None or site.own_groups is None or not site.own_groups.isdisjoint(allowed):
        return []
    return [
        f"{target.name} is for the groups {', '.join(allowed)}: you are in none of them, Slurm may refuse"
    ]


def _hidden_target(asked: str | None, site: Site) -> _Target:
    """A partition that the site hides, described by its nodes, unless they are hidden as well."""
    name = "the default partition" if asked is None else f"partition {asked}"
    nodes = tuple(node for node in site.nodes if asked is not None and asked in node.partitions)
    has_gpus = any(node.gpus for node in nodes) if nodes else None
    return _Target(name, nodes, len(nodes) or None, has_gpus, None, partition_name=asked)


def _partition(asked: str | None, site: Site) -> Partition:
    by_name = {partition.name: partition for partition in site.partitions}
    if asked is None:
        if site.default_partition is None:
            raise UserError(
                "this cluster has no default partition", f"--partition: one of {', '.join(by_name)}"
            )
        return site.default_partition
    if asked in by_name:
        return by_name[asked]
    near = get_close_matches(asked, by_name, 1)
    hint = f"did you mean {near[0]}?" if near else f"partitions: {', '.join(by_name) or 'none'}"
    raise UserError(f"--partition {asked}: there is no such partition", hint)


def _num_nodes(request: LaunchRequest, recipe: Recipe, target: _Target) -> int:
    num_nodes = _at_least("--nodes", request.num_nodes, 1) or 1
    if target.is_local and num_nodes > 1 and not request.has_local_nodes:
        raise UserError(
            f"--nodes {num_nodes}: the local backend is one machine", "more nodes need --backend slurm"
        )
    if recipe.is_one_process and num_nodes > 1:
        raise UserError(
            f"--nodes {num_nodes}: recipe {recipe.name} uses {_only(recipe)}", "use 1, or another recipe"
        )
    most = num_nodes if target.num_nodes is None else target.num_nodes
    if num_nodes > most and not (target.is_local and request.has_local_nodes):
        raise UserError(f"--nodes {num_nodes}: {target.name} has {target.num_nodes}")
    if target.max_nodes is not None and num_nodes > target.max_nodes:
        raise UserError(f"--nodes {num_nodes}: {target.name} allows at most {target.max_nodes} per job")
    return num_nodes


def _ranks(recipe: Recipe, num_nodes: int) -> int | None:
    """Ranks per node, if the recipe needs a fixed number in all."""
    return None if recipe.ranks is None else max(1, recipe.ranks // num_nodes)


def _only(recipe: Recipe) -> str:
    return "a single device" if recipe.is_single_device else "one process"


def _started_ranks(recipe: Recipe, parameters: Mapping[str, Any], gpus: int) -> int | None:
    """Ranks that the trainer's single process starts: its parameter `ranks`, or one per GPU, or 2. None: it
    starts none."""
    asked = parameters.get("ranks")
    if not recipe.is_one_process or not isinstance(asked, int):
        return None
    if gpus and asked > gpus:
        raise UserError(
            f"ranks = {asked}: {_count(gpus, 'GPU')} per node; two ranks cannot share one",
            "ranks are at most the GPUs per node, or any number of CPU ranks with --gpus 0",
        )
    return asked or gpus or 2


def _gpus(
    request: LaunchRequest, recipe: Recipe, parameters: Mapping[str, Any], target: _Target, num_nodes: int
) -> int:
    asked = _at_least("--gpus", request.gpus_per_node, 0)
    if recipe.is_single_device and asked is not None and asked > 1:
        raise UserError(
            f"--gpus {asked}: recipe {recipe.name} uses a single device", "use 1 or 0, or another recipe"
        )
    if target.has_gpus is None:
        return _gpus_unseen(asked, target)
    counts = [_gpus_of(node, request.gpu_type) for node in target.nodes] if target.has_gpus else []
    most = _on_each_of(num_nodes, counts) or 0
    if asked is None:
        ranks = request.nproc_per_node
        if ranks is not None and not recipe.is_one_process and 0 < most < ranks:
            raise UserError(
                f"--nproc-per-node {ranks}: {target.name} has {_count(most, 'GPU')} per node",
                "use --gpus 0 for ranks on CPUs",
            )
        return min(most, _wanted_gpus(recipe, parameters, ranks, num_nodes))
    if asked > most:
        kind = f" of type {request.gpu_type}" if request.gpu_type else ""
        _refuse_gpus(asked, most, target, num_nodes, counts, kind)
    return asked


def _gpus_unseen(asked: int | None, target: _Target) -> int:
    """GPUs per node if the site hides its nodes: the requested number. Without a request coach cannot choose
    one: CPUs alone would waste a cluster with GPUs, and a job that asks for GPUs waits for ever on one
    without."""
    if asked is None:
        why = f"--gpus: how many GPUs {target.name} has is not known: {hidden_by_site('nodes')}"
        raise UserError(why, _SAY_GPUS)
    return asked


def _wanted_gpus(recipe: Recipe, parameters: Mapping[str, Any], ranks: int | None, num_nodes: int) -> int:
    """GPUs per node if nobody asked for a number: one per rank."""
    if recipe.is_single_device:
        return 1
    if recipe.is_one_process:
        asked: int | None = parameters.get("ranks")
        return asked or 2
    return ranks or _ranks(recipe, num_nodes) or 2


def _refuse_gpus(
    asked: int, most: int, target: _Target, num_nodes: int, counts: Sequence[int], kind: str
) -> None:
    if not target.has_gpus:
        hint = "use --gpus 0 to train on CPUs, or another partition"
        if any(node.gpus for node in target.nodes) and target.partition_name is not None:
            name = target.partition_name
            said = f"--gpus {asked}: {target.name} is for the CPUs of its nodes"
            raise UserError(said, f"{hint}; --partition {name} asks for the GPUs of its nodes")
        raise UserError(f"--gpus {asked}: {target.name} has no GPUs", hint)
    if max(counts, default=0) >= asked:
        enough = sum(count >= asked for count in counts)
        raise UserError(
            f"--gpus {asked}: {enough} of {_count(num_nodes, 'node')} in {target.name} have that many "
            f"GPUs{kind}"
        )
    raise UserError(f"--gpus {asked}: {target.name} has {_count(most, 'GPU')}{kind} per node")


def _nproc(request: LaunchRequest, recipe: Recipe, num_nodes: int, gpus: int, warnings: list[str]) -> int:
    asked = _at_least("--nproc-per-node", request.nproc_per_node, 1)
    if recipe.is_one_process:
        if asked is not None and asked > 1:
            raise UserError(
                f"--nproc-per-node {asked}: recipe {recipe.name} uses {_only(recipe)}",
                "use 1, or another recipe",
            )
        return 1
    if asked is None:
        if gpus:
            return gpus
        return _ranks(recipe, num_nodes) or (2 if num_nodes == 1 else 1)
    if gpus and asked > gpus:
        raise UserError(
            f"--nproc-per-node {asked}: {_count(gpus, 'GPU')} per node; two ranks cannot share one",
            "ranks per node are at most the GPUs per node, or any number of CPU ranks with --gpus 0",
        )
    if gpus > asked:
        warnings.append(
            f"{_count(asked, 'rank')} on {gpus} GPUs per node: {gpus - asked} of them will be idle"
        )
    return asked


def _check_gpu_type(request: LaunchRequest, target: _Target) -> None:
    """Refuse a type that the target lacks, before its GPUs are counted: it has none of that type."""
    asked, types = request.gpu_type, target.gpu_types
    if asked is None or not target.has_gpus or request.gpus_per_node == 0 or asked in types:
        return
    same = [kind for kind in types if kind.lower() == asked.lower()]
    near = same or get_close_matches(asked, types, 1)
    hint = f"did you mean {near[0]}?" if near else f"its GPU types: {', '.join(types) or 'none'}"
    raise UserError(f"--gpu-type {asked}: {target.name} has none of that type", hint)


def _gpu_type(
    request: LaunchRequest, target: _Target, num_nodes: int, gpus: int, notes: list[str]
) -> str | None:
    asked = request.gpu_type
    if asked is None:
        return None
    if target.has_gpus is None and gpus:
        return asked
    if request.gpus_per_node == 0:
        notes.append(f"the launch uses no GPU: GPU type {asked} is not requested")
        return None
    if not target.has_gpus:
        raise UserError(f"--gpu-type {asked}: {target.name} has none of that type", "its GPU types: none")
    if gpus == 0:
        raise UserError(f"--gpu-type {asked}: fewer than {num_nodes} nodes in {target.name} have one")
    return asked


def _cpus_per_gpu(request: LaunchRequest, gpus: int, notes: list[str]) -> int | None:
    """CPUs per GPU if the request gives them in this form. Slurm takes CPUs per GPU or per task, not both."""
    asked = _at_least("--cpus-per-gpu", request.cpus_per_gpu, 1)
    if asked is None:
        return None
    is_default = "cpus_per_gpu" in request.defaulted
    if gpus == 0:
        if not is_default:
            notes.append(f"the launch uses no GPU: --cpus-per-gpu {asked} is not requested")
        return None
    if request.cpus_per_task is None or "cpus_per_task" in request.defaulted:
        return asked
    if is_default:
        return None
    raise UserError(
        f"--cpus-per-gpu {asked}: Slurm takes either this or --cpus-per-task {request.cpus_per_task}",
        "leave one of them out",
    )


def _most_cpus(request: LaunchRequest, target: _Target, num_nodes: int, gpus: int) -> int | None:
    """CPUs that each of `num_nodes` nodes with enough GPUs has."""
    fitting = [node for node in target.nodes if not gpus or _gpus_of(node, request.gpu_type) >= gpus]
    return _on_each_of(num_nodes, [node.num_cpus for node in fitting if node.num_cpus is not None])


def _cpus_of_gpus(cpus_per_gpu: int, gpus: int, most: int | None, target: _Target) -> int:
    wanted = cpus_per_gpu * gpus
    if most is not None and wanted > most:
        raise UserError(
            f"--cpus-per-gpu {cpus_per_gpu}: {wanted} for {_count(gpus, 'GPU')}; "
            f"{target.name} has {_count(most, 'CPU')} per node"
        )
    return wanted


def _cpus(
    request: LaunchRequest,
    parameters: Mapping[str, Any],
    target: _Target,
    most: int | None,
    num_ranks: int,
    usual_ranks: int,
    notes: list[str],
) -> int:
    """CPUs of a node for its ranks and their workers. `usual_ranks` is the recipe's own number of ranks: the
    user is not warned of it, however few CPUs there are."""
    asked = _at_least("--cpus-per-task", request.cpus_per_task, 1)
    if asked is not None:
        if most is not None and asked > most:
            raise UserError(f"--cpus-per-task {asked}: {target.name} has {_count(most, 'CPU')} per node")
        return asked
    if request.nproc_per_node is not None and most is not None and num_ranks > max(most, usual_ranks):
        raise UserError(
            f"--nproc-per-node {request.nproc_per_node}: {target.name} has {_count(most, 'CPU')} per node"
        )
    num_workers = parameters.get("num_workers")
    per_rank = 1 + (num_workers if isinstance(num_workers, int) else 0)
    wanted = num_ranks * per_rank
    if most is not None and wanted > most:
        notes.append(
            f"{wanted} processes per node ({num_ranks} × (1 + {per_rank - 1} workers)) share "
            f"{_count(most, 'CPU')}"
        )
        return most
    return wanted


def _memory_mib(target: _Target, num_nodes: int) -> int | None:
    return _on_each_of(num_nodes, [node.memory_mib for node in target.nodes if node.memory_mib is not None])


def _mem_need(
    recipe: Recipe, parameters: Mapping[str, Any], num_ranks: int, gpus: int
) -> tuple[int | None, str]:
    """MiB per node that the recipe needs, with headroom, and their sum in words. None: it does not say."""
    if not recipe.memory:
        return None, ""
    node, rank, worker = (recipe.memory[name] for name in ("node", "rank", "worker"))
    num_workers = parameters.get("num_workers")
    per_rank = num_workers if isinstance(num_workers, int) else 0
    if parameters.get("eval_every_epoch") or parameters.get("eval_at_end"):
        per_rank *= 2  # an evaluation starts its own workers, and those of the training stay
    on_cuda = max(num_ranks, gpus) if gpus else 0
    need = node + num_ranks * (rank + per_rank * worker) + on_cuda * CUDA_MIB
    parts = [f"{node} MiB", f"{_count(num_ranks, 'rank')} × {rank}"]
    parts += [f"{_count(num_ranks * per_rank, 'worker')} × {worker}"] if per_rank else []
    parts += [f"{on_cuda} × {CUDA_MIB} for CUDA (calculated)"] if on_cuda else []
    return mem_mib(spell_memory(MEM_HEADROOM * need)), f"{' + '.join(parts)}, measured; × {MEM_HEADROOM}"


def _mem(
    request: LaunchRequest,
    need: tuple[int | None, str],
    target: _Target,
    num_nodes: int,
    cpus: int,
    notes: list[str],
    warnings: list[str],
) -> str | None:
    """The memory per node to ask for: the request's own, else the recipe's need. None: Slurm's default is
    enough or must do, or no scheduler would take it."""
    if request.mem is not None:
        _check_mem(request.mem, target, num_nodes)
        return request.mem
    need_mib, why = need
    real_mib = _memory_mib(target, num_nodes)
    if need_mib is None or real_mib == _NO_REAL_MEMORY or _MEM_OPTIONS & set(request.sbatch):
        return None
    partition = target.partition
    limits = (real_mib, partition.max_mem_per_node_mib if partition is not None else None)
    most = min((limit for limit in limits if limit), default=need_mib)
    if most < need_mib:
        warnings.append(f"{target.name} has {most} MiB per node, the recipe needs {need_mib} MiB: {why}")
    if target.is_local or _default_mem_mib(partition, cpus) >= need_mib:
        return None
    mem = spell_memory(min(need_mib, most), is_most=most < need_mib)
    notes.append(f"--mem {mem}: {why}")
    return mem


def _check_mem(mem: str, target: _Target, num_nodes: int) -> None:
    asked, most = parse_mem_mib(mem, "--mem"), _memory_mib(target, num_nodes)
    if most is not None and asked > most:
        raise UserError(f"--mem {mem}: {target.name} has {most} MiB per node")


def _default_mem_mib(partition: Partition | None, cpus: int) -> int:
    """Memory per node that the partition gives to a job that asks for none; 0: not known."""
    if partition is None:
        return 0
    return partition.default_mem_per_node_mib or cpus * (partition.default_mem_per_cpu_mib or 0)


def _time_limit(request: LaunchRequest, recipe: Recipe, target: _Target, notes: list[str]) -> int | None:
    limit = target.partition.time_limit_s if target.partition else None
    asked = _at_least("--time", request.time_limit_s, 1)
    if asked is None:
        if recipe.time_limit_s is None:
            site = "it may run forever" if target.is_local else f"{target.name} has its default"
            notes.append(f"no time limit: {site}, unless --time sets one")
        if limit is not None and recipe.time_limit_s is not None and recipe.time_limit_s > limit:
            notes.append(f"time limit {format_time(limit)}: the most that {target.name} allows")
            return limit
        return recipe.time_limit_s
    if limit is not None and asked > limit:
        raise UserError(f"--time {format_time(asked)}: {target.name} allows at most {format_time(limit)}")
    return asked


def signal_of(request: LaunchRequest, own: OwnProgram | None, time_limit_s: int | None) -> str | None:
    """The signal before the limit, `USR1@60`; None: no signal. Raises UserError if no signal can be sent."""
    is_long = request.until_done is not None
    if own is not None and "signal" not in own.offers and not is_long:
        return None  # a program that does not handle the signal dies of it
    if time_limit_s is None:
        if own is not None or is_long:
            said = "--until-done" if is_long else "--with signal"
            raise UserError(f"{said}: there is no time limit to signal before", "set one with --time")
        return None
    if request.signal is not None:
        lead = parse_signal_lead(request.signal, "signal")
        if lead >= time_limit_s:
            raise UserError(
                f"signal {request.signal}: {lead} s before the limit, but the time limit is {time_limit_s} s",
                "use a longer --time",
            )
        return f"USR1@{lead}"
    if time_limit_s < MIN_TIME_FOR_SIGNAL_S and not is_long:
        return None
    return f"USR1@{min(MAX_SIGNAL_LEAD_S, time_limit_s // 4)}"


def _own_nproc(request: LaunchRequest, own: OwnProgram | None, gpus: int) -> int | None:
    """Ranks per node of an own program: one, unless the launch asks for more for a script. None: it is a
    recipe."""
    if own is None:
        return None
    asked = _at_least("--nproc-per-node", request.nproc_per_node, 1)
    if asked is not None and asked > 1 and own.kind is not OwnKind.SCRIPT:
        raise UserError(
            f"--nproc-per-node {asked}: coach starts a command unchanged",
            "put it into the command, for example `-- torchrun --nproc-per-node=2 train.py`",
        )
    if asked is None and "torchrun" in own.offers:
        return max(1, gpus)
    return asked or 1


def _own_text(own: OwnProgram, num_nodes: int, nproc: int, gpus: int) -> str:
    where = f"{_count(gpus, 'GPU')} per node" if gpus else "no GPU"
    if own.kind is OwnKind.SCRIPT and num_nodes * nproc > 1:
        ranks = f"{num_nodes * nproc} ranks on {_count(num_nodes, 'node')}"
        return f"your script, started by torchrun: {ranks}, {where}"
    return f"your {own.kind}, unchanged: {where}"


def _with_own_cpus(
    request: LaunchRequest, target: _Target, num_nodes: int, gpus: int, nproc: int
) -> LaunchRequest:
    """The request with CPUs, if it has none: the GPUs' share of the node's CPUs; without GPUs two per
    rank."""
    if request.cpus_per_task is not None or (gpus and request.cpus_per_gpu is not None):
        return request
    if not gpus:
        most = _most_cpus(request, target, num_nodes, gpus)
        return replace(request, cpus_per_task=min(2 * nproc, most or 2 * nproc))
    shares = [
        node.num_cpus * gpus // _gpus_of(node, None)
        for node in target.nodes
        if node.num_cpus is not None and _gpus_of(node, request.gpu_type) >= gpus
    ]
    return replace(request, cpus_per_task=max(1, min(shares))) if shares else request


def _gpus_of(node: Node, gpu_type: str | None) -> int:
    return sum(gpu.total for gpu in node.gpus if gpu_type is None or gpu.type == gpu_type)


def _on_each_of(num_nodes: int, amounts: Sequence[int]) -> int | None:
    """The amount that at least `num_nodes` nodes have; None if fewer amounts are known."""
    ordered = sorted(amounts, reverse=True)
    return ordered[num_nodes - 1] if len(ordered) >= num_nodes else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _at_least(option: str, value: int | None, least: int) -> int | None:
    if value is not None and value < least:
        raise UserError(f"{option} {value}: must be at least {least}")
    return value
