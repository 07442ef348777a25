"""The files of a job that coach did not launch: found by name and time, within bounds, and never another
job's."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.slurm.cluster import Job
from coach.rules.registry import build, signatures
from coach.sources.io import SystemIo
from coach.sources.logs.job_outputs import OutputPaths
from coach.workflows.judging.directory_files import (
    MAX_ENTRIES,
    ForeignFiles,
    Kind,
    directory_files,
    is_metrics,
)
from coach.workflows.judging.job_files import job_files as find_job_files
from tests.sources.fake_io import FakeIo

START_S, END_S = 10_000.0, 13_600.0
JOB = Job(
    *("17", "train", "ada", "FAILED", None, "gpu", "node1", 1, 4, 2, 3600, None, 7200),
    *(START_S - 100, START_S, END_S),
    work_dir="/w",
    stdout="/w/slurm-%j.out",
)


def job_files(io: FakeIo, *others: Job, job: Job = JOB, forgotten: tuple[Job, ...] = ()) -> ForeignFiles:
    paths = OutputPaths(io, lambda: forgotten)
    paths.learn([job, *others])
    return find_job_files(io, job.job_id, paths)


def write(io: FakeIo, path: str, at_s: float = START_S + 60) -> None:
    io.files[path], io.modified[path] = b"x", at_s


def names(paths: tuple[Path, ...]) -> list[str]:
    return [str(path.relative_to("/w")) for path in paths]


def test_log_names_of_slurm_torchrun_and_trainers_are_found_and_slurm_s_path_comes_first() -> None:
    io = FakeIo()
    for path in (
        "slurm-17.out",
        "out/step-17-0.log",
        "logs/none_x1/attempt_0/1/stderr.log",
        "lightning_logs/version_0/metrics.csv",
        "out/checkpoint-500/trainer_state.json",
        "runs/Nov21/events.out.tfevents.1.node1.9.0",
        "traces/nccl_trace_rank_3",
        "traces/_dump_12",
        "outputs/comm_traces/rank_4",
        "torchcomm_fr_trace_5",
        "torch/comm_lib_trace_rank_6",
        "logs/rank_7",
        "slurm-171.out",
        "notes.log",
        "data.csv",
    ):
        write(io, f"/w/{path}")
    files = job_files(io)
    assert names(files.logs()) == ["slurm-17.out", "out/step-17-0.log", "logs/none_x1/attempt_0/1/stderr.log"]
    assert sorted(names(files.metrics())) == [
        "lightning_logs/version_0/metrics.csv",
        "out/checkpoint-500/trainer_state.json",
        "runs/Nov21/events.out.tfevents.1.node1.9.0",
    ]
    found = files.found()
    assert names(found.of(Kind.DUMP)) == [
        "outputs/comm_traces/rank_4",
        "torch/comm_lib_trace_rank_6",
        "torchcomm_fr_trace_5",
        "traces/_dump_12",
        "traces/nccl_trace_rank_3",
    ]
    assert files.lines() == []


def test_logs_that_the_script_gives_its_steps_are_found_inside_and_outside_of_the_directory() -> None:
    io = FakeIo()
    io.files["/w/job.sh"] = (
        b"OUT=/scratch/out\nsrun -o steps/%t.log python train.py\npython eval.py > $OUT/eval.txt\n"
    )
    for path in ("/w/steps/0.log", "/w/steps/notes.log", "/scratch/out/eval.txt", "/scratch/out/other.txt"):
        write(io, path)
    write(io, "/w/a/steps/0.log", START_S - 3600)
    job = replace(JOB, command="/w/job.sh")
    assert [str(path) for path in job_files(io, job=job).logs()] == [
        "/w/slurm-17.out",
        "/w/steps/0.log",
        "/scratch/out/eval.txt",
    ]
    rival = replace(JOB, job_id="18", start_time_s=START_S + 10)
    assert names(job_files(io, rival, job=job).logs()) == ["slurm-17.out"]
    io.files["/w/job.sh"] = b"srun -o nowhere.log python train.py\n"
    assert "logs that its script names" in job_files(io, job=job).lines()[0]


def test_a_task_keeps_the_log_with_its_number_though_the_next_began_in_the_same_second() -> None:
    io = FakeIo()
    task = replace(JOB, job_id="17_1", raw_job_id="18", stdout="/w/elsewhere-%a.out")
    write(io, "/w/slurm-17_1.out", END_S + 0.4)
    write(io, "/w/a/metrics.csv", END_S + 0.4)
    files = job_files(io, replace(task, job_id="17_2", raw_job_id="19", start_time_s=END_S), job=task)
    assert names(files.logs()) == ["elsewhere-1.out", "slurm-17_1.out"]
    assert files.metrics() == ()


def test_files_written_before_or_long_after_the_job_are_not_its_own() -> None:
    io = FakeIo()
    write(io, "/w/a/metrics.csv", START_S - 3600)
    write(io, "/w/b/metrics.csv", END_S + 3600)
    write(io, "/w/c/metrics.csv", END_S + 60)  # buffers are flushed late
    assert names(job_files(io).metrics()) == ["c/metrics.csv"]


def test_a_log_whose_number_is_a_date_or_an_epoch_of_another_time_is_not_the_job_s() -> None:
    io = FakeIo()
    write(io, "/w/slurm-17.out")
    write(io, "/w/2023-11-17.log", START_S - 86400)
    write(io, "/w/epoch-17.log", END_S + 86400)
    assert names(job_files(io).logs()) == ["slurm-17.out"]


def test_the_numbers_in_a_log_that_two_jobs_wrote_at_the_same_time_are_nobody_s() -> None:
    io = FakeIo()
    write(io, "/w/same.log")
    one, other = (replace(JOB, job_id=number, stdout="/w/same.log") for number in ("17", "18"))
    files = job_files(io, job=one, forgotten=(other,))
    assert (names(files.logs()), files.logs_with_numbers()) == (["same.log"], ())
    rules = [each.rule for each in files.signatures(signatures(build()))]
    assert "COD001" in rules  # it failed, and a log shows why
    assert not [rule for rule in rules if rule.startswith("NUM")]
    assert "other jobs wrote to it at the same time (18)" in files.lines()[0]
    completed = replace(one, state="COMPLETED")
    assert not job_files(io, job=completed, forgotten=(other,)).signatures(signatures(build()))


def test_a_log_is_shared_only_by_jobs_that_ran_at_the_same_time() -> None:
    io = FakeIo()
    write(io, "/w/same.log")
    one = replace(JOB, stdout="/w/same.log")
    later = replace(one, job_id="18", start_time_s=END_S + 5, end_time_s=END_S + 90)
    component = replace(one, job_id="17+1")
    files = job_files(io, later, component, job=replace(one, job_id="17+0"))
    assert names(files.logs_with_numbers()) == ["same.log"]


def test_a_file_belongs_to_the_job_with_the_nearest_directory_above_it() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv")
    write(io, "/w/project/metrics.csv")
    below = replace(JOB, job_id="18", work_dir="/w/project")
    assert names(job_files(io, below).metrics()) == ["metrics.csv"]
    assert names(job_files(io, replace(JOB, job_id="17"), job=below).metrics()) == ["project/metrics.csv"]
    for aside in ("/", "/w2", "/w/proj"):
        found = job_files(io, replace(JOB, job_id="18", work_dir=aside)).metrics()
        assert names(found) == ["metrics.csv", "project/metrics.csv"]
    twin = replace(below, job_id="19")
    assert job_files(io, twin, job=below).metrics() == ()


def test_files_that_may_belong_to_another_job_are_left_out_and_named() -> None:
    io = FakeIo()
    write(io, "/w/slurm-17.out")
    write(io, "/w/metrics.csv")
    rival = replace(JOB, job_id="18", start_time_s=START_S + 10)
    files = job_files(io, rival)
    assert (files.metrics(), names(files.logs())) == ((), ["slurm-17.out"])
    assert "other jobs that ran there too (18)" in files.lines()[0]


def test_a_file_with_the_number_of_a_job_or_that_slurm_names_for_it_is_that_jobs() -> None:
    io = FakeIo()
    other = replace(JOB, job_id="9", work_dir="/elsewhere", stdout="/w/logs/notes-17.out")
    rival = replace(JOB, job_id="18")
    for path in ("logs/notes-17.out", "logs/healthy17-9.out", "9/metrics.csv", "17/train.log"):
        write(io, f"/w/{path}")
    for path in ("17/metrics.csv", "17/18/metrics.csv", "trainer_state.json"):
        write(io, f"/w/{path}")
    files = job_files(io, other, rival)
    assert names(files.logs()) == ["slurm-17.out", "17/train.log"]
    assert names(files.metrics()) == ["17/metrics.csv"]


def test_a_job_that_slurm_has_forgotten_may_still_be_the_writer() -> None:
    io = FakeIo()
    write(io, "/w/a/metrics.csv")
    writer = replace(JOB, job_id="18", work_dir="/w/a")
    files = job_files(io, forgotten=(writer,))
    assert (files.metrics(), "(18)" in files.lines()[0]) == ((), True)


def test_a_file_that_changed_while_no_other_job_ran_is_the_job_s_own() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv", END_S)
    short = replace(JOB, job_id="18", start_time_s=START_S + 10, end_time_s=END_S - 300)
    files = job_files(io, short)
    assert (names(files.metrics()), "other jobs" in files.lines()[0]) == (["metrics.csv"], False)
    write(io, "/w/trainer_state.json", END_S - 320)
    assert names(job_files(io, short).metrics()) == ["metrics.csv"]


def test_a_job_that_never_ran_wrote_nothing() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv")
    never = replace(JOB, job_id="18", state="CANCELLED", nodes=None, end_time_s=START_S + 10)
    assert names(job_files(io, never).metrics()) == ["metrics.csv"]


def test_a_job_whose_end_was_not_seen_writes_until_its_time_limit() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv")
    lost = replace(JOB, job_id="18", state="RUNNING", start_time_s=START_S - 7000, end_time_s=None)
    assert job_files(io, forgotten=(lost,)).metrics() == ()
    earlier = replace(lost, start_time_s=START_S - 9000)
    assert names(job_files(io, forgotten=(earlier,)).metrics()) == ["metrics.csv"]


def test_of_many_possible_writers_three_are_named() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv")
    files = job_files(io, *(replace(JOB, job_id=str(number)) for number in range(18, 88)))
    assert "(18, 19, 20 and 67 more)" in files.lines()[0]


def test_a_later_job_in_the_same_directory_keeps_its_own_files() -> None:
    io = FakeIo()
    write(io, "/w/a/metrics.csv")
    write(io, "/w/b/metrics.csv", END_S + 60)
    follower = replace(JOB, job_id="18", start_time_s=END_S + 30, end_time_s=END_S + 90)
    assert names(job_files(io, follower).metrics()) == ["a/metrics.csv"]
    assert names(job_files(io, JOB, job=follower).metrics()) == ["b/metrics.csv"]


def test_the_search_is_bounded_in_depth_and_entries_and_says_where_it_ended() -> None:
    io = FakeIo()
    write(io, "/w/1/2/3/4/metrics.csv")
    write(io, "/w/1/2/3/4/5/metrics.csv")
    assert names(job_files(io).metrics()) == ["1/2/3/4/metrics.csv"]
    for number in range(MAX_ENTRIES):
        write(io, f"/w/1/{number:05}.pt")
    files = job_files(io)
    assert files.metrics() == ()
    assert files.lines()[-1] == "only the first 2000 entries of /w were looked at"


def test_once_the_entries_are_used_up_no_further_folder_of_a_data_set_is_listed() -> None:
    """ImageNet in the job's directory: a thousand folders of a thousand images each."""

    class DataSetIo(FakeIo):
        num_listed = 0

        def list_dir(self, path: Path) -> list[str]:
            self.num_listed += 1
            if path == Path("/w"):
                return ["train"]
            if path == Path("/w/train"):
                return [f"n{number:08}" for number in range(1000)]
            return [f"{number}.JPEG" for number in range(1300)]

    io = DataSetIo()
    files = job_files(io)
    assert files.lines()[-1] == "only the first 2000 entries of /w were looked at"
    assert io.num_listed == 3


def test_hidden_folders_environments_and_files_are_not_walked_into() -> None:
    io = FakeIo()
    for folder in (".cache", "venv", "wandb", "model.pt"):
        write(io, f"/w/{folder}/metrics.csv")
    assert job_files(io).metrics() == ()


def test_a_search_without_a_result_is_reported() -> None:
    io = FakeIo()
    write(io, "/w/slurm-17.out")
    assert job_files(io).lines() == [
        "not found in /w, 4 levels down: torchrun's logs of each rank; "
        "metrics.csv, trainer_state.json, TensorBoard events, wandb's and MLflow's files; "
        "flight-recorder dumps"
    ]
    assert "No such file" in job_files(FakeIo()).lines()[0]


def test_a_job_that_waits_has_no_files_and_its_directory_is_looked_at_only_when_it_runs() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv")
    waiting = replace(JOB, state="PENDING")
    assert job_files(io, job=waiting).found().directory is None


def test_a_running_job_is_looked_at_again_for_new_files() -> None:
    io = FakeIo(START_S + 30)
    running = replace(JOB, state="RUNNING", end_time_s=END_S + 9999)
    files = job_files(io, job=running)
    assert files.metrics() == ()
    write(io, "/w/metrics.csv", START_S + 40)
    assert files.metrics() == ()
    io.now_s += 121
    assert names(files.metrics()) == ["metrics.csv"]


def test_files_that_a_person_names_take_the_place_of_those_that_would_be_found() -> None:
    io = FakeIo()
    write(io, "/w/metrics.csv")
    files = find_job_files(io, "17", OutputPaths(io), (Path("/mine.log"),), (Path("/mine.csv"),))
    assert (files.logs(), files.metrics()) == ((Path("/mine.log"),), (Path("/mine.csv"),))


@pytest.mark.parametrize(
    ("name", "is_empty"), [("train.log", False), ("metrics.csv", False), ("data.csv", False), ("a.png", True)]
)
def test_a_directory_is_one_to_be_read_when_a_log_or_metrics_lie_in_it(name: str, is_empty: bool) -> None:
    io = FakeIo()
    write(io, f"/w/sub/{name}", 5.0)
    assert (not directory_files(io, Path("/w")).found().files) is is_empty


def test_a_table_of_any_name_is_read_only_where_there_is_nothing_else() -> None:
    io = FakeIo()
    for name in ("train.log", "results.csv", "data.csv"):
        write(io, f"/w/{name}", 5.0)
    files = directory_files(io, Path("/w"))
    assert (names(files.logs()), names(files.metrics())) == (["train.log"], ["results.csv"])


def test_a_link_that_leads_out_of_a_checked_directory_is_named_and_not_followed(tmp_path: Path) -> None:
    outside, checked = tmp_path / "outside", tmp_path / "checked"
    for folder in (outside, checked / "inner"):
        folder.mkdir(parents=True)
    (outside / "secret.log").write_text("secret")
    (checked / "inner" / "train.log").write_text("loss 1")
    (checked / "folder").symlink_to(outside)
    (checked / "file.log").symlink_to(outside / "secret.log")
    (checked / "same.log").symlink_to("inner/train.log")
    (checked / "loop").symlink_to(".")
    (checked / "again").symlink_to("inner")
    (tmp_path / "link").symlink_to(checked)
    for named in (checked, tmp_path / "link"):
        files = directory_files(SystemIo({}), named)
        assert sorted(path.name for path in files.logs()) == ["same.log", "train.log"]
        assert files.lines()[-1] == f"not followed, as they lead out of {named}: file.log, folder"


def test_the_log_of_an_array_s_task_is_not_the_log_of_the_job_with_the_task_s_number() -> None:
    io = FakeIo()
    for name in (
        "slurm-9_17.out",
        "9_17.err",
        "slurm-17_2.out",
        "slurmd-node17.log",
        "run2_17.out",
        "exp_17.log",
    ):
        write(io, f"/w/{name}")
    assert names(job_files(io).logs()) == ["slurm-17.out", "exp_17.log", "run2_17.out"]


def test_the_newest_runs_of_wandb_and_mlflow_are_found_and_their_other_files_are_not_asked_for() -> None:
    io = FakeIo()
    run = "0123456789abcdef" * 2
    wandb = [f"wandb/offline-run-20260101_0000{n:02}-abc/run-abc.wandb" for n in range(10)]
    for path in (
        *wandb,
        "wandb/run-20260101_000100-xyz/files/media/table.json",
        "wandb/run-20260101_000100-xyz/run-xyz.wandb",
        "wandb/debug/notes.log",
        f"mlruns/4711/{run}/meta.yaml",
        f"mlruns/4711/{run}/metrics/train/metrics.csv",
        "mlruns/4711/meta.yaml",
    ):
        write(io, f"/w/{path}")
    files = job_files(io)
    assert sorted(names(files.metrics())) == sorted(
        [*wandb, "wandb/run-20260101_000100-xyz/run-xyz.wandb", f"mlruns/4711/{run}/meta.yaml"]
    )
    assert names(files.logs()) == ["slurm-17.out"]


def test_the_run_in_a_database_is_chosen_by_the_job_s_time(tmp_path: Path) -> None:
    statements = [
        "CREATE TABLE runs (run_uuid TEXT, start_time INT, end_time INT)",
        "CREATE TABLE latest_metrics (run_uuid TEXT)",
    ]
    for run_id, start_s in (("before", START_S - 5000), ("own", START_S + 60), ("after", END_S + 5000)):
        statements.append(f"INSERT INTO runs VALUES ('{run_id}', {int(start_s * 1000)}, NULL)")
        statements.append(f"INSERT INTO latest_metrics VALUES ('{run_id}')")
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    io = FakeIo()
    io.files["/w/mlflow.db"] = (tmp_path / "mlflow.db").read_bytes()
    io.modified["/w/mlflow.db"] = END_S + 5100
    assert names(job_files(io).metrics()) == ["mlflow.db/own"]


def test_the_log_is_found_among_a_hundred_thousand_files(tmp_path: Path) -> None:
    class CrowdedIo(SystemIo):
        def list_dir(self, path: Path) -> list[str]:
            crowd = [f"part-{number:06d}.bin" for number in range(100_000)] if path == tmp_path else []
            return [*crowd, *super().list_dir(path)]

    for name in ("slurm-17.out", "metrics.csv"):
        (tmp_path / name).write_text("step 1\n")
    found = directory_files(CrowdedIo({}), tmp_path).found()
    assert not found.is_whole
    assert found.files[Kind.LOG] == (tmp_path / "slurm-17.out",)
    assert found.files[Kind.METRICS] == (tmp_path / "metrics.csv",)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> str:
    """The directory for caches of the user, who is ada."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/ada/.cache")
    monkeypatch.setattr("coach.workflows.judging.job_files.user_name", lambda: "ada")
    return "/home/ada/.cache"


def test_dumps_in_the_user_s_cache_from_the_time_of_the_job_are_its_own(cache: str) -> None:
    io = FakeIo()
    write(io, "/w/slurm-17.out")
    for rank, at_s in enumerate((START_S + 60, END_S + 30, START_S - 3600, END_S + 3600)):
        write(io, f"{cache}/torch/comm_lib_trace_rank_{rank}", at_s)
    write(io, f"{cache}/torchcomm_fr_trace_17")
    write(io, f"{cache}/torch/hub/nccl_trace_rank_9")
    earlier = replace(JOB, job_id="16", work_dir="/v", start_time_s=START_S - 7200, end_time_s=START_S - 60)
    stranger = replace(JOB, job_id="18", work_dir="/v", user="bob")
    assert [str(path) for path in job_files(io, earlier, stranger).dumps()] == [
        f"{cache}/torch/comm_lib_trace_rank_0",
        f"{cache}/torch/comm_lib_trace_rank_1",
        f"{cache}/torchcomm_fr_trace_17",
    ]


def test_dumps_in_a_cache_that_may_be_another_job_s_or_of_another_user_are_not_read(cache: str) -> None:
    io = FakeIo()
    write(io, "/w/slurm-17.out")
    write(io, f"{cache}/torch/comm_lib_trace_rank_0", START_S + 600)
    beside = replace(JOB, job_id="18", work_dir="/v", start_time_s=START_S + 300)
    assert job_files(io, beside).dumps() == ()
    assert job_files(io, job=replace(JOB, user="bob")).dumps() == ()
    over = replace(beside, start_time_s=START_S, end_time_s=START_S + 300)
    assert len(job_files(io, over).dumps()) == 1
    io.owner_of = lambda path: 4711  # type: ignore[method-assign]
    assert job_files(io).dumps() == ()


def test_the_results_csv_of_ultralytics_is_no_log() -> None:
    assert is_metrics(Path("runs/detect/train/results.csv"))
    assert not is_metrics(Path("runs/detect/train/log.csv"))
