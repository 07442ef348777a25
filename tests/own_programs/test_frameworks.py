"""Trainings in the style of their frameworks' own tutorials, healthy and with one fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.own_programs.environments import environment_without
from tests.own_programs.proof import LOCAL, PROGRAMS, Here, Trial, copy_programs, judge, launch, mend
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.proof, pytest.mark.train, pytest.mark.frameworks]

TWO_RANKS = ("--", "torchrun", "--standalone", "--nproc-per-node", "2")


@pytest.fixture
def coach(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without torchvision, which transformers and Lightning import where they find it."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    return environment_without(folder, "torchvision", "mpi4py", "mpich")


def tell(program: str, fault: str, healthy: Trial, faulty: Trial, mended: Trial | None = None) -> None:
    """A row of docs/measured/diagnosis.md."""
    fix = "advice" if mended is None else "; ".join(_changes(faulty, mended))
    effect = "–" if mended is None else ", ".join(mended.alarms) or "healthy"
    found = ", ".join(faulty.alarms)
    sys.stdout.write(
        f"\n| {program} | {', '.join(healthy.alarms) or 'none'} | {fault} | {found} | {fix} | {effect} |\n"
    )


def _changes(before: Trial, after: Trial) -> list[str]:
    old, new = before.recorded()["parameters"], after.recorded()["parameters"]
    return [f"{name} {old.get(name)} → {new[name]}" for name in new if new[name] != old.get(name)]


def test_the_trainer_of_transformers(coach: Here, plain_python: Path) -> None:
    copy_programs(coach.folder, "hf_trainer.py")
    words = ("hf_trainer.py", *LOCAL, "--python", str(plain_python), "--")
    usual = ("--output_dir", "out", "--max_steps", "100", "--logging_steps", "5", "--use_cpu")
    plain = (*usual, "--report_to", "none", "--optim", "sgd", "--max_grad_norm", "0")
    healthy = launch(coach, *words, *plain, "--learning_rate", "0.3")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, *words, *plain, "--learning_rate", "10")
    assert faulty.primary["cause"] == "nan_loss"
    mended = mend(coach, faulty)
    assert (mended.state, mended.alarms) == ("COMPLETED", [])
    assert mended.recorded()["parameters"]["lr"] == 1.0
    tell("Hugging Face Trainer", "learning rate 10 without clipping", healthy, faulty, mended)


def test_an_accelerate_loop_with_a_slow_shard_on_one_rank(coach: Here) -> None:
    copy_programs(coach.folder, "accelerate_loop.py")
    command = (*LOCAL, *TWO_RANKS, "accelerate_loop.py")
    healthy = launch(coach, *command, "--num_epochs", "30")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, *command, "--num_epochs", "3", "--slow_part_ms", "10", timeout_s=180)
    assert (faulty.primary["rule"], faulty.primary["subject"]["rank"]) == ("DST008", 1)
    assert "accelerate_loop.py:23 __getitem__()" in faulty.primary["summary"]
    tell("accelerate, 2 ranks", "10 ms an item on rank 1", healthy, faulty)


def test_a_hydra_application_whose_rate_is_overridden(coach: Here) -> None:
    copy_programs(coach.folder, "hydra_app.py")
    shutil.copytree(PROGRAMS / "conf", coach.folder / "conf")
    healthy = launch(coach, "hydra_app.py", *LOCAL)
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, "hydra_app.py", *LOCAL, "--", "optimizer.lr=0")
    assert faulty.primary["cause"] == "not_learning"
    assert "the launch asks for 0" in faulty.primary["fixes"][0]["title"]
    given = launch(coach, "hydra_app.py", *LOCAL, "--set", "lr=0.02")
    assert (given.alarms, given.recorded()["parameters"]["lr"]) == ([], 0.02)
    tell("Hydra application", "optimizer.lr=0", healthy, faulty)


def test_a_lightning_module_whose_images_are_slow_to_decode(coach: Here, plain_python: Path) -> None:
    copy_programs(coach.folder, "lightning_module.py")
    words = ("lightning_module.py", *LOCAL, "--python", str(plain_python), "--")
    healthy = launch(coach, *words, "--max_epochs", "6")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, *words, "--max_epochs", "6", "--decode_ms", "20", timeout_s=240)
    assert faulty.primary["rule"] == "GPU005"
    assert "lightning_module.py:23 __getitem__()" in faulty.primary["summary"]
    mended = mend(coach, faulty, timeout_s=240)
    assert mended.state == "COMPLETED"
    assert mended.recorded()["parameters"]["num_workers"] > 0
    rows = compared(coach, faulty, mended)
    assert rows["run time"]["verdict"] == "better"
    tell(f"Lightning, run time × {rows['run time']['ratio']:.2f}", "20 ms an image", healthy, faulty, mended)


def test_a_lightning_module_that_is_launched_with_a_rate_of_0(coach: Here, plain_python: Path) -> None:
    copy_programs(coach.folder, "lightning_module.py")
    words = ("lightning_module.py", *LOCAL, "--python", str(plain_python), "--", "--max_epochs", "6")
    healthy = launch(coach, *words, "--lr", "0.001")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, *words, "--lr", "0")
    assert (faulty.state, faulty.alarms) == ("COMPLETED", ["NUM008"])
    assert "asks for a learning rate of 0" in faulty.primary["summary"]
    tell("Lightning", "learning rate 0", healthy, faulty)


def test_a_jax_loop_whose_rate_is_too_high(coach: Here) -> None:
    copy_programs(coach.folder, "jax_loop.py")
    healthy = launch(coach, "jax_loop.py", *LOCAL)
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, "jax_loop.py", *LOCAL, "--", "--learning_rate", "0.5")
    assert faulty.primary["cause"] == "nan_loss"
    mended = mend(coach, faulty)
    assert (mended.state, mended.alarms) == ("COMPLETED", [])
    tell("JAX loop", "learning rate 0.5", healthy, faulty, mended)


def test_a_rank_of_deepspeed_that_stands_still_is_named_while_it_runs(coach: Here) -> None:
    copy_programs(coach.folder, "deepspeed_train.py", "ds_config.json")
    command = (*LOCAL, *TWO_RANKS, "deepspeed_train.py", "--deepspeed_config", "ds_config.json")
    healthy = launch(coach, *command)
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    started = coach("launch", "--format", "json", *command, "--stuck_rank", "1")
    answer, _ = json.JSONDecoder().raw_decode(started.stdout)
    run_dir = Path(answer["run_dir"])
    try:
        wait_until(lambda: '"stalled"' in samples_of(run_dir), 500, "the stacks of the stall")
        faulty = judge(coach, answer["run_id"])
    finally:
        os.kill(json.loads((run_dir / "run.json").read_text())["supervisor"]["pid"], signal.SIGTERM)
    assert (faulty.primary["rule"], faulty.primary["subject"]["rank"]) == ("DST007", 1)
    assert "rank 1 stands in deepspeed_train.py:" in faulty.primary["summary"]
    tell("DeepSpeed, 2 ranks", "rank 1 waits for a file", healthy, faulty)


def test_deepspeed_refuses_batch_sizes_that_do_not_fit_its_ranks(coach: Here) -> None:
    copy_programs(coach.folder, "deepspeed_train.py", "ds_config.json")
    usual = json.loads((coach.folder / "ds_config.json").read_text())
    (coach.folder / "wrong.json").write_text(json.dumps({**usual, "train_batch_size": 48}))
    command = (*LOCAL, *TWO_RANKS, "deepspeed_train.py", "--deepspeed_config")
    healthy = launch(coach, *command, "ds_config.json")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, *command, "wrong.json")
    assert (faulty.state, faulty.primary["rule"]) == ("FAILED", "DSP002")
    assert "48 != 16 * 1 * 2" in faulty.primary["summary"]
    assert {finding["consequence_of"] for finding in faulty.findings[1:]} <= {"DSP002"}
    tell("DeepSpeed, 2 ranks", "train_batch_size 48 for 2 × 16", healthy, faulty)


def samples_of(run_dir: Path) -> str:
    return "".join(file.read_text() for file in run_dir.glob("stacks/samples-*.jsonl"))


def compared(coach: Here, before: Trial, after: Trial) -> dict[str, dict[str, object]]:
    told = coach("compare", before.run_id, after.run_id, "--format", "json").stdout
    return {row["quantity"]: row for row in json.loads(told)["rows"]}
