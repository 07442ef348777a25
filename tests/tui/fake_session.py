"""A scripted session, and values for the screens to show. The scripted ports are in fake_ports.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach.launch.parameters import Parameter
from coach.launch.recipe import Recipe, data_dir
from coach.lookback.glance import Glance, glance_of
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Evidence, Finding, Fix, NotMeasured, Severity, Subject
from coach.model.launching.launch import AppliedFix, LaunchRequest, Plan, Resources
from coach.model.politeness import ACTIVE_S, Attention
from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import GpuCount, Job, Node, Partition
from coach.model.snapshot import Snapshot, SourceStatus, TargetSnapshot, Watch
from coach.model.teaching.cohort import Cohort, Person, Summary
from coach.model.teaching.drill import Answer, Drill, Twin
from coach.model.training.log import LogTail
from coach.model.training.metrics import Step
from coach.model.training.run import Checkpoint, Run
from coach.model.training.stacks import Frame, Missed, RankStack, Stacks
from coach.model.training.telemetry import GpuSample, HostSample, SensorGap
from coach.sources.slurm.overlap_step import StreamSource
from coach.tui.ports import OnUpdate
from coach.workflows.jobs.place_in_queue import PlaceInQueue
from coach.workflows.launching.recipes import Page
from coach.workflows.teaching.drill_answer import Choice, Judgement
from coach.workflows.teaching.drills import DrillEntry

NOW_S = 1_800_000_000.0
RUN_ID = "20261121-142233-ddp-4f2a"
CHILD_ID = "20261121-143000-ddp-77aa"
LOST = (
    "lost: 0.3 GPU-hours since the newest complete checkpoint, step-40.pt (PyTorch, step 40), 00:10:00 old",
    "incomplete: step-80.pt (PyTorch, step 80): its end is missing",
)


class FakeSession:
    """Shows the snapshots of a test. `push` acts like a source's answer."""

    def __init__(self, snapshot: Snapshot, histories: dict[str, History] | None = None) -> None:
        self._snapshot = snapshot
        self._histories = histories or {}
        self._on_update: OnUpdate | None = None
        self.watches: list[Watch] = []
        self.num_looks_at_cluster = 0
        self.attached: list[tuple[str, tuple[StreamSource, ...]]] = []
        self.num_refreshes = 0
        self.is_stopped = False
        self.idle_minutes = 60.0
        self.attentions: list[Attention] = []

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def start(self, on_update: OnUpdate) -> None:
        self._on_update = on_update
        on_update(self._snapshot)

    def push(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        assert self._on_update is not None
        self._on_update(snapshot)

    def watch(self, watch: Watch) -> None:
        self.watches.append(watch)

    def attach(self, target: str, streams: Sequence[StreamSource]) -> None:
        self.attached.append((target, tuple(streams)))

    def history(self, target: str) -> History:
        return self._histories.get(target, History())

    def glance(self, target: str) -> Glance:
        return glance_of(self.history(target))

    def refresh_soon(self, *, is_cluster_only: bool = False) -> None:
        self.num_refreshes += not is_cluster_only
        self.num_looks_at_cluster += is_cluster_only

    def attend(self, idle_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        is_active = is_focused and idle_s < ACTIVE_S
        is_asleep = idle_s >= self.idle_minutes * 60
        self.attentions.append(Attention(is_active, is_focused, is_run_open, is_asleep))
        return self.attentions[-1]

    def stop(self) -> None:
        self.is_stopped = True


def make_stacks() -> Stacks:
    """Four ranks on two nodes: three wait for rank 3, whose node refuses ptrace."""
    torch = "/venv/lib/python3.11/site-packages/torch/"
    train = Frame("train", "/home/ada/train.py", 41)
    waits = (Frame("all_reduce", torch + "distributed/distributed_c10d.py", 3252), train)
    loads = (Frame("__next__", torch + "utils/data/dataloader.py", 725), train)
    missed = (Missed("py-spy", "ptrace is refused here"),)
    facts: dict[str, Any] = {"world_size": 4, "num_threads": 1, "collective": None, "state": "S"}
    facts |= {"wait_channel": "futex_do_wait", "cpu_pct": 0.0, "num_sockets": 3}
    ranks = [
        RankStack(
            node=f"node{rank // 2 + 1}",
            pid=100 + rank,
            rank=rank,
            rung="faulthandler" if rank == 3 else "py-spy",
            missed=missed if rank == 3 else (),
            frames=loads if rank == 3 else waits,
            **facts,
        )
        for rank in range(4)
    ]
    return Stacks(tuple(ranks), "/runs/r/stacks/1", 2)


def make_place(**parts: Part[Any]) -> PlaceInQueue:
    """The answers of a site without accounting, except those that a test gives."""
    untold: Part[Any] = Part(None, "Slurm accounting storage is disabled")
    named = {"priorities": untold, "fair_share": untold, "associations": untold, "qos": untold}
    return PlaceInQueue(**{**named, "reservations": Part(()), **parts})


def make_drills() -> tuple[DrillEntry, ...]:
    """A drill that was not launched yet, a drill whose run waits for its answer, a drill whose requirement is
    missing here."""
    causes = ("input_bound", "slow_storage", "memory_pressure", "too_many_workers")
    drill = Drill("input_bound", causes, Twin("baseline"))
    names = {"idle_hands": "The epochs take long", "typo": "It worked yesterday", "full_card": "It stops"}
    idle, typo, full = (
        replace(make_pages()[0].recipe, name=name, title=title, summary="Since Monday.", drill=drill)
        for name, title in names.items()
    )
    run = make_run(recipe="typo", drill="typo")
    return (DrillEntry(idle, None), DrillEntry(typo, None, run), DrillEntry(full, "needs a GPU"))


def make_summary(uid: int = 1000, run_id: str = RUN_ID, **more: Any) -> Summary:
    """A running run of a recipe; a test can set any field."""
    made = Summary(
        *(uid, run_id, "ddp", False, "RUNNING", 512.0, True, None, None, None),
        created_time_s=NOW_S - 60,
        started_time_s=NOW_S - 50,
        ended_time_s=None,
        updated_time_s=NOW_S - 5,
    )
    return replace(made, **more)


def make_cohort(num_people: int = 2) -> Cohort:
    """Some learners with runs, and one without."""
    people = [
        Person(f"learner{n:02}", 1000 + n, True, (make_summary(1000 + n, f"run-{n}"),))
        for n in range(num_people)
    ]
    return Cohort("/course/shared", (*people, Person("zoe", 999, True)), ("x.json: not valid JSON",))


def make_judgement(run_id: str, answer: Answer | None = None, **told: object) -> Judgement:
    choices = (Choice("slow_storage", "A disk is slow."), Choice("input_bound", "The steps wait."))
    judgement = Judgement(run_id, f"/runs/{run_id}", "typo", choices, answer)
    return replace(judgement, **told)  # type: ignore[arg-type]  # a test can set any field


def make_pages() -> tuple[Page, ...]:
    """Two steps of a ladder, and a user's copy of the second."""
    lr = Parameter("lr", "float", 0.05, "Learning rate of SGD", above=0, usual=(1e-4, 1.0))
    steps = Parameter("max_steps", "int", 0, "Optimizer steps", min=0, unit="steps")
    known = {"lr": lr, "max_steps": steps}
    recipes = data_dir() / "recipes"
    baseline = Recipe(
        "baseline",
        "One device",
        "What the others change.",
        "baseline.py",
        "single",
        "1",
        600,
        known,
        recipes / "baseline.toml",
        teaches="A training loop",
        next="ddp",
    )
    ddp = replace(
        baseline,
        name="ddp",
        title="DDP: one process per device",
        trainer="ddp.py",
        devices="multiple",
        key="2",
        path=recipes / "ddp.toml",
        teaches="Data parallelism",
        expect="Twice the samples per second on two devices, less what averaging costs",
        gpu_hours=0.02,
        watch=("GPU005",),
        next=None,
    )
    own = replace(ddp, title="DDP, changed", path=Path("/home/ada/my-ddp/ddp.toml"))
    diff = (
        "--- trainers/baseline.py",
        "+++ trainers/ddp.py",
        "@@ -1 +1 @@",
        "-model = SimpleCNN()",
        "+model = DDP(SimpleCNN())",
    )
    lesson = (
        "# The lesson\n\n**What it teaches.** Gradients are averaged.\n\n- One item\n\n    torchrun ddp.py\n"
    )
    return (
        Page(baseline, "1", None, "", ()),
        Page(ddp, "2", "baseline", lesson, diff),
        Page(own, None, "ddp", "", ()),
    )


SCRIPT = """#!/bin/bash
#SBATCH --job-name=coach-ddp
#SBATCH --nodes={nodes}
#SBATCH --time=00:30:00
# the run directory
set -euo pipefail
srun --kill-on-bad-exit=1 coach run -- torchrun trainers/ddp.py --lr {lr}
"""


def make_plan(request: LaunchRequest) -> Plan:
    nodes = request.num_nodes or 1
    lr = float(request.set.get("lr", 0.05))
    return Plan(
        request=request,
        run_id=CHILD_ID,
        run_dir=f"/runs/{CHILD_ID}",
        backend="slurm",
        recipe=request.recipe,
        title="DDP: one process per device, gradients averaged",
        parameters={"lr": lr, "batch_size": 64, "epochs": 3, "max_steps": 0, "optimizer": "sgd"},
        resources=Resources(
            nodes,
            request.gpus_per_node or 0,
            request.nproc_per_node or 1,
            2,
            1800,
            partition=request.partition or "cpu",
            account=request.account,
            reservation=request.reservation or None,
            gpu_type=request.gpu_type,
            gpu_request=request.gpu_request or "gpus-per-node",
            exclude=request.exclude,
        ),
        script=SCRIPT.format(nodes=nodes, lr=lr),
        meanings={
            "num_nodes": "Machines that train together; at most 4; default 1.",
            "lr": "Step size of the optimizer, and quite a long sentence about it [above 0 · default 0.05]",
        },
        notes=("no GPU in partition cpu: ranks train on CPUs over gloo",),
        warnings=("lr = 1e+20: usual are 0.0001 to 1",) if lr > 1 else (),
        code_dir="/runs/.code/abc",
        run_json={},
    )


def make_job(job_id: str = "17", user: str = "ada", **changes: object) -> Job:
    job = Job(
        job_id=job_id,
        name="coach-ddp",
        user=user,
        state="RUNNING",
        reason=None,
        partition="cpu",
        nodes="node[1-2]",
        num_nodes=2,
        num_cpus=4,
        num_gpus=0,
        time_used_s=130,
        time_left_s=1670,
        time_limit_s=1800,
        submit_time_s=NOW_S - 140,
        start_time_s=NOW_S - 130,
        end_time_s=None,
    )
    return replace(job, **changes)  # type: ignore[arg-type]  # a test changes any field


def make_run(run_id: str = RUN_ID, **changes: object) -> Run:
    run = Run(
        run_id=run_id,
        run_dir=f"/runs/{run_id}",
        recipe="ddp",
        backend="slurm",
        job_id="17",
        state="RUNNING",
        parameters={"lr": 1e20, "batch_size": 64, "epochs": 3, "max_steps": 0, "optimizer": "sgd"},
        resources={"num_nodes": 2, "gpus_per_node": 0, "nproc_per_node": 1, "time_limit_s": 1800},
        launch={"recipe": "ddp"},
        created_time_s=NOW_S - 140,
        started_time_s=NOW_S - 130,
        ended_time_s=None,
        parent_run_id=None,
        fix=None,
        device={"type": "cpu", "name": "AMD EPYC"},
        dataset={"name": "cifar10", "is_synthetic": True},
        versions={},
    )
    return replace(run, **changes)  # type: ignore[arg-type]  # a test changes any field


def nan_diagnosis(target: str = RUN_ID) -> Diagnosis:
    finding = Finding(
        rule="NUM001",
        name="loss-not-finite",
        cause="lr_too_high",
        severity=Severity.CRITICAL,
        confidence=0.99,
        is_primary=True,
        consequence_of=None,
        subject=Subject(rank=0),
        summary=(
            "The loss is NaN since step 2; the last finite value was 2.31 at step 1. The learning rate 1e+20 "
            "lies far above the usual range."
        ),
        evidence=(
            Evidence("loss at step 1: 2.31, at step 2: NaN", "/runs/x/metrics/rank-0.jsonl", 3, 2.0, "step"),
            Evidence("lr 1e+20, usual 0.0001 to 1"),
        ),
        fixes=(Fix("Set the learning rate to the recipe's default", {"lr": 0.05}, None, True),),
        since_s=NOW_S - 60,
    )
    other = replace(
        finding,
        rule="GPU001",
        name="low",
        severity=Severity.WARNING,
        is_primary=False,
        consequence_of="NUM001",
        summary="GPU utilization is low",
        fixes=(),
        evidence=(),
    )
    gap = NotMeasured("gpu.utilization", "no NVIDIA driver", "run on a node with GPUs")
    return Diagnosis(target, "RUNNING", (finding, other), (gap,))


def make_history(num_steps: int = 200, lost_at: int | None = None, num_ranks: int = 2) -> History:
    history = History()
    for step in range(1, num_steps + 1):
        for rank in range(num_ranks):
            loss = 2.3 * math.exp(-step / 80) + 0.1 * math.sin(step / 3)
            if lost_at is not None and step >= lost_at:
                loss = float("nan")
            step_time = 0.11 + 0.01 * math.sin(step / 7) + 0.02 * rank
            history.add_steps(
                [
                    Step(
                        rank,
                        step,
                        NOW_S - 130 + step * 0.5,
                        step // 78,
                        loss,
                        0.05,
                        64,
                        128,
                        0.012,
                        step_time,
                        memory_allocated_mib=412.0,
                    )
                ]
            )
    for node in ("node1", "node2"):
        history.add_samples(
            HostSample(node, NOW_S - 60 + i, 70 + 20 * math.sin(i / 5), 2, 900.0 + i, 4096.0, 8000.0, 4)
            for i in range(60)
        )
    return history


def add_gpus(history: History, node: str = "node1") -> History:
    history.add_samples(
        GpuSample(
            node,
            NOW_S - 60 + i,
            0,
            "GPU-1",
            "NVIDIA A100",
            60 + 30 * math.sin(i / 4),
            20480,
            81920,
            250,
            400,
            61,
        )
        for i in range(60)
    )
    return history


def make_target(run: Run, job: Job | None = None) -> TargetSnapshot:
    lines = tuple(f"step {i} loss {2.3 - i * 0.01:.3f} 1164 samples/s" for i in range(1, 60))
    return TargetSnapshot(
        target=run.run_id,
        now_s=NOW_S,
        job=job,
        run=run,
        log_tails=(
            LogTail(f"{run.run_dir}/stdout.log", 1, lines, 4000, len(lines)),
            LogTail(f"{run.run_dir}/stderr.log", 1, ("a warning from torch",), 20, 1),
        ),
        checkpoints=(Checkpoint(f"{run.run_dir}/checkpoints/step-00000160.pt", 160, NOW_S - 20),),
        sensor_gaps=(
            SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "run on a node with GPUs"),
            SensorGap("node2", "gpu.utilization", "no NVIDIA driver", "run on a node with GPUs"),
        ),
    )


def status(source: str, age_s: float = 2.0, error: str | None = None, num_bad_rows: int = 0) -> SourceStatus:
    return SourceStatus(source, NOW_S - age_s, error, NOW_S if error else None, num_bad_rows, 0.05)


def make_snapshot(**changes: object) -> Snapshot:
    """A small cluster in the middle of a day: three nodes, two own jobs, two foreign ones, a run in
    trouble."""
    job, run = make_job(), make_run()
    snapshot = Snapshot(
        now_s=NOW_S,
        nodes=(
            Node("node1", "mixed", None, ("cpu", "gpu"), 4, 2, 16000, 8000, (GpuCount("a100", 2, 1),)),
            Node("node2", "mixed", None, ("cpu", "gpu"), 4, 2, 16000, 8000, (GpuCount("a100", 2, 0),)),
            Node(
                "node3",
                "down+drain",
                "disk failure",
                ("cpu", "gpu"),
                4,
                0,
                16000,
                0,
                (GpuCount("a100", 2, 0),),
            ),
        ),
        partitions=(
            Partition("cpu", True, "up", None, None, 3, 0, 12, 4, (), 0),
            Partition("gpu", False, "up", 86400, None, 3, 0, 12, 4, (GpuCount("a100", 6, 1),), 2),
        ),
        jobs=(
            make_job("12", "bob", name="vasp", nodes="node1", num_gpus=1),
            make_job(
                "13", "bob", name="vasp", state="PENDING", reason="Resources", nodes=None, time_used_s=0
            ),
            job,
            make_job("18", state="PENDING", reason="Priority", nodes=None, time_used_s=0),
        ),
        runs=(run,),
        targets=MappingProxyType({run.run_id: make_target(run, job)}),
        diagnoses=MappingProxyType({run.run_id: nan_diagnosis()}),
        sources=MappingProxyType({name: status(name) for name in ("jobs", "nodes", "runs")}),
    )
    return replace(snapshot, **changes)  # type: ignore[arg-type]  # a test changes any field


def applied_fix() -> AppliedFix:
    return AppliedFix("NUM001", "Set the learning rate to the recipe's default", {"lr": 0.05})
