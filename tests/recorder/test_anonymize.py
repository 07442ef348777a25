from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from coach.model.reading import JobList, MetricsChunk
from coach.recorder import Header, Names, RecordingIo, ReplayIo, anonymize, open_recording
from coach.recorder.anonymize import striker
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.metrics.run_metrics import MetricsSource
from coach.sources.runs.run_list import RunListSource
from coach.sources.slurm.client import JobsSource, NodesSource
from coach.sources.slurm.job_summaries import KIND, parse_summaries, summaries_query
from coach.sources.slurm.jobstats import packed
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import own_squeue, squeue

ROOT = "/home/alice.smith/coach/runs"
RUN = "20261121-142233-ddp-4f2a"
SECRETS = ("alice.smith", "bobby", "secret-protein", "grant77", "bignode", "zoe", "carla", "hidden-drug")


def names() -> Names:
    made = Names()
    made.users |= {"alice.smith", "bobby", "zoe", "root"}
    made.jobs |= {"secret-protein", "loss", "ddp"}
    made.accounts.add("grant77")
    made.hosts |= {"bignode017", "bignode018", "login"}
    made.recipes.add("ddp")
    return made


@pytest.fixture
def cleaned(tmp_path: Path) -> Path:
    """A recording of a queue, a run and its log, with names in all places; then struck."""
    world = FakeIo()
    raw, clean = tmp_path / "raw.gz", tmp_path / "clean.gz"
    io = RecordingIo(world, raw, Header(1000.0, "slurm", "alice.smith", ROOT, targets=(RUN,)))
    found = Names()
    mine = {
        "job_id": "17",
        "user": "alice.smith",
        "name": "secret-protein",
        "account": "grant77",
        "nodes": "bignode[017-018]",
    }
    theirs = {"job_id": "18", "user": "bobby", "name": "x", "work_dir": "/scratch/zoe/project"}
    world.answer("jobs", squeue(mine, theirs))
    world.write(f"{ROOT}/{RUN}/run.json", json.dumps({"recipe": "ddp", "user": "alice.smith"}).encode())
    log = f"{ROOT}/{RUN}/stdout.log"
    world.write(log, b"started on bignode017 by alice.smith at /home/alice.smi")
    world.write(f"{ROOT}/{RUN}/metrics/rank-0.jsonl", b'{"step": 1, "loss": 2.5, "node": "bignode017"}\n')
    somebody_elses = {"job_id": "19", "user": "carla", "name": "hidden-drug", "stdout": "/o/%j"}
    world.answer("job-files 19", own_squeue(somebody_elses))
    OutputPaths(io).of("19")
    told = packed('{"nodes": {"bignode017": {"cpus": 4}}, "total_time": 90}')
    world.answer(KIND, lambda query: f"19{query.separator}{told}{query.separator}\n".encode())
    io.run(summaries_query(["19"]))
    for reading in (*JobsSource(io, "alice.smith", 10).poll(), *RunListSource(io, Path(ROOT)).poll()):
        found.add_reading(reading)
    list(MetricsSource(io, RUN, Path(ROOT) / RUN).poll())
    io.read(Path(log), 0, 1000)
    world.append(log, b"th/data of bob")
    io.read(Path(log), 0, 1000)
    world.append(log, b"by_results\nMASTER_ADDR=bignode018 secret-protein2\nunfinished zoe")
    io.read(Path(log), 0, 1000)
    io.close()
    found.hosts |= {"bignode017", "bignode018"}
    anonymize(open_recording(raw), found, clean)
    return clean


@pytest.mark.parametrize("secret", SECRETS)
def test_nothing_of_the_originals_remains(cleaned: Path, secret: str) -> None:
    assert secret not in gzip.decompress(cleaned.read_bytes()).decode()
    assert secret.encode() not in cleaned.read_bytes()


def test_a_struck_recording_still_plays_and_names_are_struck_alike_everywhere(cleaned: Path) -> None:
    recording = open_recording(cleaned)
    header = recording.header
    assert header.is_anonymized
    replay = ReplayIo(recording, lambda: 0.0)
    (jobs,) = JobsSource(replay, header.user, 10, is_all=False).poll()
    assert isinstance(jobs.payload, JobList)
    mine, theirs = jobs.payload.jobs
    assert (mine.user, jobs.num_bad_rows) == (header.user, 0)
    assert mine.user != theirs.user
    assert header.user in header.runs_root
    assert (mine.nodes or "").endswith("[017-018]")
    (chunk,) = MetricsSource(replay, RUN, Path(header.runs_root) / RUN).poll()
    assert isinstance(chunk.payload, MetricsChunk)
    assert [step.loss for step in chunk.payload.steps] == [2.5]
    log = replay.read(Path(header.runs_root) / RUN / "stdout.log", 0, 1000).decode()
    stem = (mine.nodes or "").partition("[")[0]
    answer = replay.run(summaries_query(["19"]))
    (summary,) = parse_summaries(answer.stdout.decode(), answer.query.separator).values()
    assert [node.node for node in summary.nodes] == [f"{stem}017"]
    assert log.startswith(f"started on {stem}017 by {header.user} at ")
    assert f"MASTER_ADDR={stem}018" in log


def test_names_in_nodes_and_partitions_are_struck_too() -> None:
    world, found = FakeIo(), Names()
    node = (
        "NodeName=gpu1 State=DOWN Owner=zoe.ito(1003) Partitions=gpu Reason=fan [carla@2026-11-26T10:00:00]"
    )
    partition = (
        "PartitionName=gpu AllowGroups=keller-lab AllowAccounts=grant77 AllowQos=hidden-drug"
        " AllocNodes=bignode[1-2] DenyAccounts=undergrads State=UP"
    )
    world.answer("nodes", lambda _: f"{node}\n".encode())
    world.answer("partitions", lambda _: f"{partition}\n".encode())
    for reading in NodesSource(world, 60).poll():
        found.add_reading(reading)
    struck = striker(found, b"key")(f"{node} {partition}")
    people = ("zoe.ito", "carla", "keller-lab", "grant77", "hidden-drug", "bignode", "undergrads")
    assert [name for name in people if name in struck] == []


def test_words_that_are_no_names_stay() -> None:
    made = names()
    made.accounts |= {"long", "high"}  # names of QOS
    strike = striker(made, b"key")
    kept = '{"loss": 2.5} root ddp recipe 20261121-142233-ddp-4f2a torch.long, higher'
    assert strike(kept) == kept


def test_the_longest_name_is_one_name() -> None:
    made = names()
    made.jobs.add("alice.smith-exp1")
    struck = striker(made, b"key")("alice.smith-exp1 alice.smith")
    first, second = struck.split()
    assert first.startswith("job-")
    assert second.startswith("user-")


def test_short_names_are_struck_only_where_they_stand_alone() -> None:
    made = Names()
    made.users.add("al")
    struck = striker(made, b"key")("/home/al/x global al_results tal")
    assert "/al/" not in struck
    assert " global " in struck
    assert struck.endswith(" tal")
    assert "al_results" not in struck.replace("global", "")


def test_each_recording_has_its_own_words() -> None:
    assert striker(names(), b"one")("bobby") != striker(names(), b"two")("bobby")
    assert striker(names(), b"one")("bobby") == striker(names(), b"one")("bobby")


def test_without_names_the_text_stays_unchanged() -> None:
    assert striker(Names(), b"key")("anything") == "anything"


@pytest.mark.parametrize("user", ["s", "a", "max", "run", "loss", "time", "step", "node"])
def test_a_name_that_stands_inside_of_keys_leaves_every_record_readable(user: str) -> None:
    made = Names()
    made.users.add(user)
    record = {
        "create_time_s": 1.5,
        "time_limit_s": 600,
        "max_steps": 3,
        "step_time_s": 0.1,
        "a": {"num_nodes": 1},
        "run_dir": f"/home/{user}/coach/runs/x",
    }
    struck = json.loads(striker(made, b"key")(json.dumps(record)))
    assert struck.keys() == record.keys()
    assert struck["create_time_s"] == 1.5
    assert user in ("loss", "run", "step", "node") or f"/{user}/" not in struck["run_dir"]


def test_a_key_that_is_a_name_as_a_whole_is_struck() -> None:
    struck = json.loads(striker(names(), b"key")('{"bignode017": {"bobby": 1, "bobby_time_s": 2}}'))
    (host,) = struck
    assert host.startswith("host")
    assert host.endswith("017")
    assert [key.startswith("user-") for key in struck[host]] == [True, False]


def test_a_secret_of_a_command_line_leaves_no_anonymized_recording(tmp_path: Path) -> None:
    world = FakeIo()
    raw, clean = tmp_path / "raw.gz", tmp_path / "clean.gz"
    io = RecordingIo(world, raw, Header(1000.0, "slurm", "me", ROOT))
    command = ["python3", "t.py", "--api-key=hunter2hunter2", "--token", "hunter3hunter3"]
    world.write(f"{ROOT}/{RUN}/run.json", json.dumps({"command": command}).encode() + b"\n")
    world.write(f"{ROOT}/{RUN}/stdout.log", b"WANDB_API_KEY=hunter4hunter4 set\npad_token: hello0\n")
    for name in ("run.json", "stdout.log"):
        io.read(Path(f"{ROOT}/{RUN}/{name}"), 0, 1000)
    io.close()
    anonymize(open_recording(raw), Names(), clean)
    text = gzip.decompress(clean.read_bytes()).decode()
    assert "hunter" not in text
    assert "pad_token: hello0" in text
    entries = open_recording(clean).entries
    run_json = "".join(entry["data"] for entry in entries if "run.json" in entry["path"])
    assert json.loads(run_json)["command"][:3] == ["python3", "t.py", "--api-key=***"]
