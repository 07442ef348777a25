"""A checkpoint is judged by the ends of its files, to find the one from which a resubmitted job can
resume."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path

import pytest

from coach.sources.runs.checkpoint_files import groups, newest_saved, step_of, why_torn
from tests.sources.fake_io import FakeIo

HOME = Path("/home/ada")
WHOLE = b"PK\x03\x04" + b"weights" * 400 + b"PK\x05\x06" + b"\0" * 18
TORN = WHOLE[:-60]


def safetensors(*ends: int, size: int) -> bytes:
    tensors = {f"t{place}": {"data_offsets": [0, end]} for place, end in enumerate(ends)}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    return struct.pack("<Q", len(header)) + header + b"\1" * size


def told(files: dict[str, bytes]) -> list[tuple[str, str, int | None, str | None]]:
    """(path, framework, step, why torn) of the checkpoints of these files, each written later than the one
    before."""
    io = FakeIo()
    for time_s, (name, data) in enumerate(files.items()):
        io.now_s = 1000.0 + time_s
        io.write(f"{HOME}/{name}", data)
    folders = {str(up) for name in files for up in Path(name).parents if str(up) != "."}
    saved = newest_saved(io, HOME, [*files, *folders], 1000.0)
    return [(each.path.removeprefix(f"{HOME}/"), each.made_by, each.step, each.torn) for each in saved]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (safetensors(40, 100, size=100), None),
        (safetensors(40, 100, size=97), "it ends 3 bytes early"),
        (safetensors(size=0), None),
        (safetensors(100, size=100)[:7], "its end is missing"),
        (safetensors(100, size=100)[:30], "its end is missing"),
        (struct.pack("<Q", 1 << 40) + b"x" * 50, "its header is broken"),
        (struct.pack("<Q", 4) + b"nope" + b"x" * 50, "its header is broken"),
        (b"", "it is empty"),
    ],
)
def test_the_missing_bytes_of_a_torn_safetensors_file_are_known(data: bytes, why: str | None) -> None:
    io = FakeIo()
    io.write("/m.safetensors", data)
    assert why_torn(io, Path("/m.safetensors")) == why


def test_the_newest_complete_checkpoint_is_found_behind_torn_ones() -> None:
    files = {"a_step1.pt": WHOLE, "b_step2.pt": WHOLE, "c_step3.pt": TORN, "notes.txt": b"x"}
    assert told(files) == [
        ("c_step3.pt", "PyTorch", 3, "its end is missing"),
        ("b_step2.pt", "PyTorch", 2, None),
    ]
    assert told({"last.ckpt": WHOLE})[0][1] == "Lightning"
    assert told({"m.safetensors": safetensors(size=0)})[0][1] == "safetensors"
    assert told({"old.pt": b"a pickle of 2018"}) == [("old.pt", "PyTorch", None, None)]


def test_a_checkpoint_from_before_the_job_is_not_the_job_s() -> None:
    io = FakeIo(now_s=999.0)
    io.write("/home/ada/a.pt", WHOLE)
    assert newest_saved(io, HOME, ["a.pt"], 999.5) == ()
    assert len(newest_saved(io, HOME, ["a.pt", "gone.pt"], 999.0)) == 1
    io.failing["/home/ada/a.pt"] = errno.EACCES
    assert newest_saved(io, HOME, ["a.pt"], 0.0) == ()


def test_a_hugging_face_checkpoint_needs_its_state_and_all_its_shards() -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    whole = {
        "out/checkpoint-20/model.safetensors.index.json": index,
        "out/checkpoint-20/model-1.safetensors": safetensors(size=0),
        "out/checkpoint-20/model-2.safetensors": safetensors(size=0),
        "out/checkpoint-20/trainer_state.json": b"{}",
    }
    assert told(whole) == [("out/checkpoint-20", "Hugging Face", 20, None)]
    for name, why in (
        ("trainer_state.json", "trainer_state.json is missing"),
        ("model-2.safetensors", "model-2.safetensors is missing"),
    ):
        left = {path: data for path, data in whole.items() if not path.endswith(name)}
        assert told(left)[0][3] == why
    torn = {**whole, "out/checkpoint-20/model-1.safetensors": safetensors(9, size=8)}
    assert told(torn)[0][3] == "model-1.safetensors: it ends 1 bytes early"


def test_a_deepspeed_checkpoint_needs_every_rank_s_share_and_to_be_named_latest() -> None:
    def shares(step: int, *ranks: int) -> dict[str, bytes]:
        return {f"ds/global_step{step}/zero_pp_rank_{n}_mp_rank_00_optim_states.pt": WHOLE for n in ranks}

    assert told(shares(10, 0, 1, 2)) == [("ds/global_step10", "DeepSpeed", 10, None)]
    assert told(shares(10, 0, 2))[0][3] == "the share of rank 1 is missing"
    ahead = {"ds/latest": b"global_step10\n", **shares(10, 0, 1), **shares(20, 0, 1)}
    assert [row[2:] for row in told(ahead)] == [
        (20, "`latest` names global_step10, an earlier one"),
        (10, None),
    ]


def test_a_sharded_checkpoint_is_whole_once_its_last_file_is_there() -> None:
    files = {"dcp/step_5/__0_0.distcp": b"x", "dcp/step_5/__1_0.distcp": b"x"}
    made_by = "torch.distributed.checkpoint"
    missing = ".metadata, which is written last, is missing"
    assert told(files) == [("dcp/step_5", made_by, 5, missing)]
    assert told({**files, "dcp/step_5/.metadata": b"x"}) == [("dcp/step_5", made_by, 5, None)]
    assert groups([*files, "dcp/readme"]) == {"dcp/step_5": sorted(files)}


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("logs/version_3/checkpoints/epoch=1-step=200.ckpt", 200),
        ("run-7/checkpoint-40/model.safetensors", 40),
        ("iteration_12.pt", 12),
        ("model.pt", None),
    ],
)
def test_the_step_of_a_checkpoint_is_read_from_its_path(path: str, step: int | None) -> None:
    assert step_of(path) == step
