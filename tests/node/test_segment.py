"""The segments of a long training: its checkpoints are known by their form, and torn ones do not count."""

from __future__ import annotations

import argparse
import json
import os
import zipfile
from pathlib import Path

import pytest

from coach import runs
from coach.node import ended, segment

START_S = 1_795_280_000.0


def save(path: Path, age_s: float = 10.0, data: bytes = b"state") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (START_S + age_s, START_S + age_s))
    return path


def newest(place: Path) -> str | None:
    found = segment.newest_checkpoint([str(place)], START_S)
    return None if found is None else os.path.relpath(found.path, place)


@pytest.mark.parametrize(
    ("files", "checkpoint"),
    [
        (["checkpoint-10/state.bin", "checkpoint-20/state.bin"], "checkpoint-20"),
        (["out/checkpoint-5/model.safetensors", "out/checkpoint-5/trainer_state.json"], "out/checkpoint-5"),
        (
            ["lightning_logs/version_0/checkpoints/epoch=1-step=20.ckpt"],
            "lightning_logs/version_0/checkpoints/epoch=1-step=20.ckpt",
        ),
        (["model_step_200.pt"], "model_step_200.pt"),
        (["epoch-3.pth"], "epoch-3.pth"),
        (["checkpoint.pth.tar", "model_best.pth.tar", "data.tar"], "checkpoint.pth.tar"),
        (["checkpoints/step-00000040.pt"], "checkpoints/step-00000040.pt"),
        (["model_step_9.pt", "optimizer_step_9.pt", "step_9_rng_state.pt"], "model_step_9.pt"),
        (["model_and_optimizer_step_9.pt", "scheduler_step_9.pt"], "model_and_optimizer_step_9.pt"),
        (["checkpoint-7/global_step7/mp_rank_00_model_states.pt", "checkpoint-7/latest"], "checkpoint-7"),
    ],
)
def test_each_framework_s_checkpoint_is_known_by_its_name(
    tmp_path: Path, files: list[str], checkpoint: str
) -> None:
    for number, name in enumerate(files):
        save(tmp_path / name, 10.0 + number)
    assert newest(tmp_path) == checkpoint


def test_a_link_that_leads_nowhere_hides_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint-10" / "state.bin")
    (tmp_path / "checkpoint-10" / "events").symlink_to(tmp_path / "gone")
    assert newest(tmp_path) == "checkpoint-10"


def test_deepspeed_resumes_from_the_directory_above_the_step_that_latest_names(tmp_path: Path) -> None:
    save(tmp_path / "ds" / "global_step10" / "mp_rank_00_model_states.pt")
    assert newest(tmp_path) is None
    save(tmp_path / "ds" / "latest", data=b"global_step10\n")
    assert newest(tmp_path) == "ds"


def test_torn_old_and_unrelated_files_are_no_checkpoints(tmp_path: Path) -> None:
    whole = tmp_path / "step-1.pt"
    with zipfile.ZipFile(whole, "w") as file:
        file.writestr("data", b"x" * 5000)
    data = whole.read_bytes()
    whole.unlink()
    save(tmp_path / "step-2.pt", data=data[:-200])
    save(tmp_path / "step-3.pt", data=b"")
    save(tmp_path / "step-4.pt", -3600.0, data)
    save(tmp_path / "dataset.pt", data=data)
    save(tmp_path / "checkpoint-5" / "model.safetensors")
    (tmp_path / "checkpoint-6").mkdir()
    assert newest(tmp_path) is None
    save(tmp_path / "step-7.pt", data=data)
    assert newest(tmp_path) == "step-7.pt"


def test_a_second_segment_goes_on_from_the_checkpoint_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = runs.create_run_dir(tmp_path / "runs", "20261121-142233-own-4f2a")
    runs.write_json(paths.run_json, {"schema": 1, "state": None})
    out = tmp_path / "out"
    assert segment.begin(paths, 3, "node1", START_S) is None
    saved = save(out / "checkpoint-9" / "state.bin", 100.0).parent
    assert segment.end(paths, 3, [str(out)], START_S + 160.0) == (str(saved), None)
    assert segment.begin(paths, 3, "node2", START_S + 300.0) == str(saved)
    told = json.loads(paths.run_json.read_text())["segments"]
    assert (told[0]["lost_s"], told[0]["why"], told[0]["nodes"]) == (60.0, "the time limit was near", "node1")
    assert (told[1]["resumed_from"], told[1]["end_time_s"]) == (str(saved), None)
    assert f"segment 2 of at most 3, goes on from {saved}" in capsys.readouterr().err


def test_the_last_segment_ends_with_the_run(tmp_path: Path) -> None:
    paths = runs.create_run_dir(tmp_path / "runs", "20261121-142233-own-4f2a")
    runs.write_json(paths.run_json, {"schema": 1})
    ended.record_state(paths, 0)
    assert "segments" not in json.loads(paths.run_json.read_text())
    segment.begin(paths, 2, "node1", START_S)
    ended.record_state(paths, 0)
    (only,) = json.loads(paths.run_json.read_text())["segments"]
    assert (only["why"], only["end_time_s"] > 0) == ("COMPLETED", True)


def test_a_path_with_control_characters_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "a\x1b[2J\n" / "step-3.pt")
    assert newest(tmp_path) is None


def test_without_a_newer_checkpoint_or_after_the_last_segment_there_is_no_further_one(tmp_path: Path) -> None:
    paths = runs.create_run_dir(tmp_path / "runs", "20261121-142233-own-4f2a")
    runs.write_json(paths.run_json, {"schema": 1})
    segment.begin(paths, 1, "node1", START_S)
    checkpoint, refusal = segment.end(paths, 1, [str(tmp_path / "out")], START_S + 60)
    assert (checkpoint, "no newer checkpoint" in (refusal or "")) == (None, True)
    save(tmp_path / "out" / "checkpoint-9" / "state.bin")
    _, refusal = segment.end(paths, 1, [str(tmp_path / "out")], START_S + 60)
    assert "at most 1 were asked for" in (refusal or "")
    (only,) = json.loads(paths.run_json.read_text())["segments"]
    assert (only["why"], only["refusal"]) == ("the time limit was near", refusal)


def test_a_checkpoint_in_the_run_directory_itself_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = runs.create_run_dir(tmp_path / "runs", "20261121-142233-own-4f2a")
    runs.write_json(paths.run_json, {"schema": 1})
    segment.begin(paths, 2, "node1", START_S)
    saved = save(paths.run_dir / "ckpt_2.pt")
    parser = argparse.ArgumentParser()
    segment.configure(parser)
    words = ["--run-dir", str(paths.run_dir), "--max", "2", "--end", "--exit-code", "143"]
    assert segment.run(parser.parse_args(words)) == 0
    assert capsys.readouterr().out == f"{saved}\n"
