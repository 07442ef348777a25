"""The filter language as people type it, applied to rows of a queue."""

from __future__ import annotations

import pytest

from coach.analysis.query.job_fields import job_vocabulary, past_job_vocabulary
from coach.analysis.query.language import in_order
from coach.model.errors import UserError
from coach.model.slurm.accounting import Efficiency, PastJob
from coach.sources.slurm.node_sets import expand_nodes
from tests.analysis.made_jobs import job

NOW_S = 10_000.0
VOCABULARY = job_vocabulary("ada", NOW_S, expand_nodes)
RUNNING = job(
    "9",
    "RUNNING",
    nodes="gpu[1-2]",
    num_nodes=2,
    num_gpus=4,
    time_used_s=3600,
    time_left_s=7200,
    time_limit_s=10_800,
)
WAITING = job("17_[3-8%2]", reason="Priority", num_gpus=2, submit_time_s=NOW_S - 7200, account="lab")
LIMITED = job("20", reason="QOSMaxJobsPerUserLimit", user="bob", partition="cpu,long", num_gpus=0)
HELD = job("21+1", reason="JobHeldUser", user="bob", name="my big job", num_gpus=None, qos="low")
NEVER = job("30_2", reason="PartitionTimeLimit", partition="long", time_limit_s=86_400)
QUEUE = [RUNNING, WAITING, LIMITED, HELD, NEVER]


def found(text: str) -> list[str]:
    return [each.job_id for each in VOCABULARY.query(text).matching(QUEUE)]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ["9", "17_[3-8%2]", "20", "21+1", "30_2"]),
        ("state:pending part:gpu user:me gpu:>0", ["17_[3-8%2]"]),
        ("state:r", ["9"]),
        ("STATE:Pend user:bob", ["20", "21+1"]),
        ("state:r,pd user:me gpu:>=2", ["9", "17_[3-8%2]"]),
        ("part:long", ["20", "30_2"]),
        ("partition:g*", ["9", "17_[3-8%2]", "21+1"]),
        ("user:bo", []),
        ("id:17", ["17_[3-8%2]"]),
        ("id:17_4", ["17_[3-8%2]"]),
        ("id:17_[1-2]", []),
        ("id:21,30_2", ["21+1", "30_2"]),
        ("node:gpu2", ["9"]),
        ("node:gpu[2-9],cpu1", ["9"]),
        ("node:gpu*", ["9"]),
        ("node:gpu3", []),
        ("nodes:2..4", ["9"]),
        ("gpus:0", ["20"]),
        ("gpu:<2", ["20", "30_2"]),
        ("used:>30m", ["9"]),
        ("left:1h..3h", ["9"]),
        ("limit:>=3h", ["9", "30_2"]),
        ("limit:1-00:00:00", ["30_2"]),
        ("wait:>1h user:me part:gpu", ["17_[3-8%2]"]),
        ("class:limit", ["20"]),
        ("class:wait,never", ["17_[3-8%2]", "30_2"]),
        ("class:held", ["21+1"]),
        ("reason:held", ["21+1"]),
        ("account:lab", ["17_[3-8%2]"]),
        ("qos:LOW", ["21+1"]),
        ('name:"my big"', ["21+1"]),
        ('"big job" bob', ["21+1"]),
        ("gpu2", []),
        ("GPU[1-2]", ["9"]),
        ("lab", ["17_[3-8%2]"]),
        ("-bob -state:r", ["17_[3-8%2]", "30_2"]),
        ("!user:bob,me", []),
        ("-user:bob !part:gpu", ["30_2"]),
    ],
)
def test_every_word_has_to_be_true(text: str, ids: list[str]) -> None:
    assert found(text) == ids


def test_an_unknown_value_matches_no_number_and_is_in_the_rest() -> None:
    assert HELD.job_id not in found("gpu:0") + found("gpu:>0")
    assert HELD.job_id in found("-gpu:>0")
    assert found("left:<100h") == ["9"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stat:pending", 'stat:pending: no key "stat"; did you mean state:?'),
        ("partion:gpu", "did you mean part:?"),
        ("colour:red", 'no key "colour"'),
        (
            "state:pnding",
            "state:pnding: did you mean pending?; expected",
        ),
        ("state:", "state:: expected"),
        ("gpu:many", "gpu:many: expected 4, >0, >=2, <8 or 2..4"),
        ("gpu:>", "gpu:>: expected"),
        ("limit:30", "30 of what? 30m are minutes"),
        ("left:>2x", "left:>2x: expected >2h"),
        ("class:helt", "did you mean held?"),
        ("node:[", "node:[: expected node7"),
        ("node:@all", "node:@all: expected node7"),
        ("node:n[1-999999999]", "expected node7"),
        ("id:$(x)", "expected 17 (with all its tasks)"),
        ("submit:1h", "submit is a column, not a filter key"),
    ],
)
def test_a_mistake_is_named_with_the_correct_form(text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        VOCABULARY.query(f"user:me {text}")
    assert words in error.value.message
    assert "\n" not in error.value.message


def test_an_unknown_key_lists_the_keys() -> None:
    with pytest.raises(UserError) as error:
        VOCABULARY.query("x:1")
    assert error.value.hint is not None
    assert "account class cpus gpu id left limit name node nodes part" in error.value.hint


def test_hostile_names_are_searched_and_break_nothing() -> None:
    evil = job("40", name="[@click=app.quit]\x1b[31m\nstate:running " + "x" * 10_000)
    assert VOCABULARY.query("click state:pd -state:r").matching([evil, RUNNING]) == [evil]


def sorted_by(text: str) -> list[str]:
    return [each.job_id for each in in_order(QUEUE, VOCABULARY.orders(text))]


def test_jobs_are_sorted_by_one_field_and_then_the_next_with_the_unknown_last() -> None:
    assert sorted_by("gpu") == ["20", "30_2", "17_[3-8%2]", "9", "21+1"]
    assert sorted_by("-gpu") == ["9", "17_[3-8%2]", "30_2", "20", "21+1"]
    assert sorted_by("user,-id") == ["30_2", "17_[3-8%2]", "9", "21+1", "20"]
    assert sorted_by("") == [each.job_id for each in QUEUE]
    assert sorted_by("class")[-1] == "9"


def test_columns_are_named_by_the_words_of_the_filter() -> None:
    assert [field.attribute for field in VOCABULARY.columns("id,user, gpus,id")] == [
        "job_id",
        "user",
        "num_gpus",
    ]
    with pytest.raises(UserError, match='columns: no field "stat"; did you mean state'):
        VOCABULARY.columns("id,stat")
    with pytest.raises(UserError, match='sort: no field "subit"; did you mean submit'):
        VOCABULARY.orders("-subit")


def test_the_history_knows_the_queue_s_keys_and_the_efficiency_of_a_job() -> None:
    past = past_job_vocabulary("ada", expand_nodes)
    idle = PastJob(job("1", "COMPLETED", num_gpus=2), Efficiency(gpu_pct=4.0), "run")
    busy = PastJob(job("2", "FAILED", exit_code=1), Efficiency(gpu_pct=95.0))
    unknown = PastJob(job("3", "COMPLETED"), source="seen")
    rows = [unknown, idle, busy]
    assert past.query("use_gpu:<30 state:completed").matching(rows) == [idle]
    assert past.query("exit:>0").matching(rows) == [busy]
    assert past.query("source:seen").matching(rows) == [unknown]
    assert in_order(rows, past.orders("-use_gpu")) == [busy, idle, unknown]
    with pytest.raises(UserError, match="no key"):
        past.query("wait:>1h")


def test_the_help_has_a_line_for_each_field() -> None:
    lines = VOCABULARY.help_lines()
    assert len(lines) == len(VOCABULARY.fields)
    assert any(line.split()[:2] == ["part,", "partition"] for line in lines)


def test_fifty_thousand_jobs_are_compiled_once_and_looked_at_word_by_word() -> None:
    """Plain text, the most expensive word, is searched last: only in rows that match the others."""
    looked_at = []

    def text(each: object) -> str:
        looked_at.append(each)
        return "train"

    vocabulary = type(VOCABULARY)(VOCABULARY.fields, text)
    many = [job(str(number), num_gpus=number % 100) for number in range(50_000)]
    assert len(vocabulary.query("train gpu:99 user:me").matching(many)) == 500
    assert len(looked_at) == 500
