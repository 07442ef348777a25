"""The work lost when a job is ended: the newest complete checkpoint of any framework counts, and a torn one
is reported as torn."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from coach.config import Settings
from coach.model.training.checkpoint_files import SavedFound
from coach.model.training.run import Run
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query, SystemIo
from coach.sources.machine.user import user_name
from coach.workflows.jobs.lost_work import lost_lines, lost_of_job, lost_of_run
from coach.workflows.jobs.own_checkpoints import find_saved
from tests.rules import examples
from tests.sources.squeue import own_squeue

NOW_S = 2_000_000.0


def torch_file() -> bytes:
    """A file as torch.save writes it: a zip without compression."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data.pkl", b"x" * 5000)
    return buffer.getvalue()


def safetensors_file() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


class Then(SystemIo):
    """This machine's files, at a fixed time."""

    def __init__(self) -> None:
        super().__init__({})

    def now(self) -> float:
        return NOW_S


class Work:
    """A job's directory, with files of known ages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, data: bytes, minutes_old: float) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (NOW_S - 60 * minutes_old,) * 2)

    def found(self, from_s: float = 0.0) -> SavedFound:
        return find_saved(SystemIo({}), self.folder, from_s)

    def told(self) -> list[tuple[str, str, int | None, str | None]]:
        return [
            (str(Path(each.path).relative_to(self.folder)), each.made_by, each.step, each.torn)
            for each in self.found().saved
        ]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_the_newest_complete_checkpoint_counts_and_newer_torn_ones_are_named(work: Work) -> None:
    work.write("out/epoch=1-step=200.ckpt", torch_file(), 60)
    work.write("out/epoch=2-step=300.ckpt", torch_file(), 30)
    work.write("out/epoch=3-step=400.ckpt", torch_file()[:-300], 5)
    assert work.told() == [
        ("out/epoch=3-step=400.ckpt", "Lightning", 400, "its end is missing"),
        ("out/epoch=2-step=300.ckpt", "Lightning", 300, None),
    ]
    first, torn = lost_lines(work.found(), NOW_S - 7200, 8, NOW_S)
    assert first.startswith("lost: 4.0 GPU-hours since the newest complete checkpoint, ")
    assert first.endswith("epoch=2-step=300.ckpt (Lightning, step 300), 00:30:00 old")
    assert torn.endswith("epoch=3-step=400.ckpt (Lightning, step 400): its end is missing")


def test_hugging_face_writes_its_state_last_and_names_the_parts_of_a_large_model(work: Work) -> None:
    index = json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    )
    for step, minutes in ((500, 40), (1000, 20), (1500, 2)):
        work.write(f"checkpoint-{step}/model-00001-of-00002.safetensors", safetensors_file(), minutes)
        work.write(f"checkpoint-{step}/model.safetensors.index.json", index.encode(), minutes)
    for step in (500, 1000):
        work.write(f"checkpoint-{step}/trainer_state.json", b"{}", 20)
        work.write(f"checkpoint-{step}/optimizer.pt", torch_file(), 20)
    work.write("checkpoint-500/model-00002-of-00002.safetensors", safetensors_file(), 40)
    work.write("checkpoint-1000/trainer_state.json", b"{}", 19)
    assert work.told() == [
        ("checkpoint-1500", "Hugging Face", 1500, "trainer_state.json is missing"),
        ("checkpoint-1000", "Hugging Face", 1000, "model-00002-of-00002.safetensors is missing"),
        ("checkpoint-500", "Hugging Face", 500, None),
    ]


def test_the_length_of_a_safetensors_file_is_read_from_its_header(work: Work) -> None:
    work.write("model_step_10.safetensors", safetensors_file(), 9)
    work.write("model_step_20.safetensors", safetensors_file()[:-5], 5)
    work.write("model_step_30.safetensors", safetensors_file()[:12], 4)
    work.write("model_step_40.safetensors", b"\xff" * 40, 3)
    assert [(step, torn) for _, _, step, torn in work.told()] == [
        (40, "its header is broken"),
        (30, "its end is missing"),
        (20, "it ends 5 bytes early"),
        (10, None),
    ]


def test_every_rank_of_deepspeed_has_a_share_and_latest_names_the_finished_checkpoint(work: Work) -> None:
    for step, minutes in ((100, 60), (200, 30), (300, 1)):
        for rank in range(3):
            share = f"ckpt/global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
            work.write(share, torch_file(), minutes)
        work.write(f"ckpt/global_step{step}/mp_rank_00_model_states.pt", torch_file(), minutes)
    (work.folder / "ckpt/global_step200/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    work.write("ckpt/latest", b"global_step200", 30)
    assert work.told() == [
        ("ckpt/global_step300", "DeepSpeed", 300, "`latest` names global_step200, an earlier one"),
        ("ckpt/global_step200", "DeepSpeed", 200, "the share of rank 1 is missing"),
        ("ckpt/global_step100", "DeepSpeed", 100, None),
    ]


def test_a_checkpoint_share_of_a_huge_rank_number_is_judged_at_once(work: Work) -> None:
    for rank in (0, 10**12):
        work.write(f"global_step5/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", torch_file(), 9)
    assert work.told() == [("global_step5", "DeepSpeed", 5, "the share of rank 1 is missing")]


def test_the_hours_that_a_requeued_run_waited_are_not_lost(work: Work) -> None:
    work.write("step-40.pt", torch_file(), 600)
    (line,) = lost_lines(work.found(), NOW_S - 900, 4, NOW_S)
    assert line.startswith("lost: 1.0 GPU-hours since it began again from step-40.pt (PyTorch, step 40), ")
    assert line.endswith("the newest complete checkpoint, 10:00:00 old")


def test_a_checkpoint_from_before_the_job_is_not_its_own(work: Work) -> None:
    work.write("pretrained.pt", torch_file(), 600)
    assert work.found(NOW_S - 3600).saved == ()
    (line,) = lost_lines(work.found(NOW_S - 3600), NOW_S - 3600, None, NOW_S)
    assert line.startswith("lost: 01:00:00 of work: no complete checkpoint of this attempt was found in ")


def test_checkpoints_of_a_coach_run_below_the_directory_are_not_the_job_s(work: Work) -> None:
    work.write("coach/runs/20260101-120000-ddp-4f2a/run.json", b"{}", 5)
    work.write("coach/runs/20260101-120000-ddp-4f2a/checkpoints/step-00000400.pt", torch_file(), 5)
    assert work.found().saved == ()
    work.write("out/last.ckpt", torch_file(), 30)
    assert [name for name, *_ in work.told()] == ["out/last.ckpt"]


def test_a_directory_that_cannot_be_read_is_no_directory_without_checkpoints(tmp_path: Path) -> None:
    (line,) = lost_lines(find_saved(SystemIo({}), tmp_path / "gone", 0.0), 0.0, 8, NOW_S)
    assert line.endswith("gone: No such file or directory")
    assert line.startswith("whether a checkpoint is there is not known")


def launched_in(folder: Path, **more: Any) -> Run:
    resources = {"num_nodes": 2, "gpus_per_node": 4}
    return examples.run(
        {}, resources, run_dir=str(folder), **{"state": "RUNNING", "started_time_s": NOW_S - 7200, **more}
    )


def test_the_lost_work_of_a_coach_run_counts_from_its_own_checkpoints(tmp_path: Path) -> None:
    work = Work(tmp_path / "checkpoints")
    work.write("step-300.pt", torch_file(), 30)
    work.write("step-400.pt", torch_file()[:-300], 5)
    io_ = Then()
    assert lost_of_run(io_, launched_in(tmp_path)) == (
        (
            "lost: 4.0 GPU-hours since the newest complete checkpoint, step-300.pt (PyTorch, step 300), "
            "00:30:00 old"
        ),
        "incomplete: step-400.pt (PyTorch, step 400): its end is missing",
    )
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    assert lost_of_run(io_, launched_in(tmp_path))[2:] == (f"`coach resume {tmp_path.name}` goes on from it",)
    assert lost_of_run(io_, launched_in(tmp_path, state="COMPLETED")) == ()
    assert lost_of_run(io_, launched_in(tmp_path, state="PENDING", started_time_s=None)) == ()


def test_a_run_that_has_saved_nothing_yet_loses_all(tmp_path: Path) -> None:
    (line,) = lost_of_run(Then(), launched_in(tmp_path))
    assert line.startswith("lost: 16.0 GPU-hours: no complete checkpoint of this attempt was found in ")


def row(job_id: str, folder: Path, minutes_ago: float, **more: str) -> dict[str, str]:
    """A job of the user's own queue that began so many minutes ago in this folder."""
    owner = {"job_id": job_id, "user": user_name(), "raw_job_id": job_id, "work_dir": str(folder)}
    return {
        **owner,
        "limit": "2:00:00",
        "command": "job.sh",
        "stdout": f"{folder}/%j.out",
        "start": _ago(minutes_ago),
        **more,
    }


class Queue(Then):
    """This machine's files at a fixed time, and a queue with these rows."""

    def __init__(self, *rows: dict[str, str]) -> None:
        super().__init__()
        self._rows = rows

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        asked = [query.argv[query.argv.index("-j") + 1]] if "-j" in query.argv else None
        rows = [each for each in self._rows if asked is None or each["job_id"] in asked]
        return CommandResult(query, 0, own_squeue(*rows)(query), "", NOW_S, 0.1)


def lost_of_17(work: Work, tmp_path: Path, *others: dict[str, str]) -> tuple[str, ...]:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    return lost_of_job(Queue(row("17", work.folder, 60), *others), "17", None, settings)


@pytest.fixture
def shared(tmp_path: Path) -> Work:
    return Work(tmp_path / "work")


def test_a_checkpoint_that_a_job_beside_may_have_written_does_not_count(shared: Work, tmp_path: Path) -> None:
    shared.write("ckpt_tl/step_80.pt", torch_file(), 22)
    shared.write("ckpt_tl/step_40.pt", torch_file(), 25)
    beside = row("16", shared.folder, 40, state="TIMEOUT", end=_ago(21))
    assert lost_of_17(shared, tmp_path, beside) == (
        f"lost: 01:00:00 of work: no complete checkpoint of this attempt was found in {shared.folder}",
        (
            "not counted: ckpt_tl/step_80.pt (PyTorch, step 80), 00:22:00 old: it may belong to job 16, "
            "in the same directory at that time"
        ),
    )
    assert "since the newest complete checkpoint, ckpt_tl/step_80.pt" in lost_of_17(shared, tmp_path)[0]


def test_a_checkpoint_with_the_job_s_number_or_of_another_time_is_its_own(
    shared: Work, tmp_path: Path
) -> None:
    beside = row("16", shared.folder, 40, state="TIMEOUT", end=_ago(21))
    shared.write("out/step_300.pt", torch_file(), 10)
    (line,) = lost_of_17(shared, tmp_path, beside)
    assert "since the newest complete checkpoint, out/step_300.pt" in line
    shared.write("ckpt-17/step_400.pt", torch_file(), 22)
    shared.write("out/step_300.pt", torch_file(), 30)
    shared.write("out/step_17.pt", torch_file(), 21.5)  # a step is no job's number
    line, doubtful = lost_of_17(shared, tmp_path, beside)
    assert "since the newest complete checkpoint, ckpt-17/step_400.pt" in line
    assert doubtful.startswith("not counted: out/step_17.pt")


def test_many_checkpoints_of_a_job_beside_hide_none_of_its_own(shared: Work, tmp_path: Path) -> None:
    shared.write("mine/step_5.pt", torch_file(), 50)
    for step in range(10):
        shared.write(f"theirs/step_{step}.pt", torch_file(), 30 - step)
    line, _ = lost_of_17(shared, tmp_path, row("16", shared.folder, 40))
    assert "since the newest complete checkpoint, mine/step_5.pt" in line


def test_a_checkpoint_of_the_job_before_it_is_not_its_own(shared: Work, tmp_path: Path) -> None:
    shared.write("step_80.pt", torch_file(), 60.5)
    before = row("16", shared.folder, 90, state="TIMEOUT", end=_ago(60.4))
    assert "no complete checkpoint" in lost_of_17(shared, tmp_path, before)[0]


def _ago(minutes: float) -> str:
    return datetime.fromtimestamp(NOW_S - 60 * minutes, tz=None).isoformat()  # noqa: DTZ006 (local time)


REAL = """
import sys, torch, torch.distributed.checkpoint as dcp
from pathlib import Path
folder = Path(sys.argv[1])
model = torch.nn.Linear(300, 300)
torch.save(model.state_dict(), folder / "model_step_7.pt")
dcp.save({"model": model.state_dict()}, checkpoint_id=folder / "sharded" / "step-9", no_dist=True)
"""


@pytest.mark.train
def test_a_real_torch_checkpoint_is_whole_until_it_is_cut(work: Work) -> None:
    subprocess.run([sys.executable, "-c", REAL, str(work.folder)], check=True, capture_output=True)
    sharded, single = work.folder / "sharded" / "step-9", work.folder / "model_step_7.pt"
    for path in sharded.iterdir():
        os.utime(path, (NOW_S, NOW_S))
    os.utime(single, (NOW_S - 60, NOW_S - 60))
    assert work.told() == [("sharded/step-9", "torch.distributed.checkpoint", 9, None)]
    (sharded / ".metadata").unlink()
    single.write_bytes(single.read_bytes()[:-4000])
    os.utime(single, (NOW_S - 60, NOW_S - 60))
    assert [(name, torn) for name, _, _, torn in work.told()] == [
        ("sharded/step-9", ".metadata, which is written last, is missing"),
        ("model_step_7.pt", "its end is missing"),
    ]
