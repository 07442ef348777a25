"""The places where a job could start now, and the resources of one node: unknown is never shown as free or
allowed."""

from __future__ import annotations

from dataclasses import replace

from coach.analysis.queueing.free_gpus import allocation_map, free_by_partition, free_gpus, why_no_access
from coach.model.slurm.accounting import Limits
from coach.model.slurm.cluster import GpuAllocation, GpuCount, Node
from coach.render.text import Line, plain
from coach.tui.render.allocation import node_fact_lines, node_job_lines, slot_lines
from coach.tui.render.cluster import empty_nodes_note, nodes_title, partition_lines
from coach.tui.render.job import place_node_lines
from coach.tui.render.queue import EmptyBecause, Queue, empty_queue_note, queue_title
from coach.tui.render.where import where_lines
from tests.tui.fake_session import NOW_S, make_job, make_snapshot

SNAPSHOT = make_snapshot()
FREE = free_by_partition(SNAPSHOT.nodes, SNAPSHOT.partitions)
GPU = SNAPSHOT.partitions[1]
MINE = (Limits("association", "ml", "ada", None, ("normal", "long"), {}),)


def text(lines: list[Line]) -> str:
    return "\n".join(plain(row) for row in lines)


def test_the_strip_counts_only_gpus_on_which_a_job_could_start_now() -> None:
    shown = text(partition_lines(SNAPSHOT.partitions, FREE, 200, 2))
    assert "free 3 of 6 a100" in shown
    assert "cpus 4/12" in shown


def test_each_partition_shows_the_most_gpus_on_one_node_and_those_idle_but_not_free() -> None:
    shown = text(where_lines(SNAPSHOT.partitions, FREE, None, 120))
    assert "free 3 of 6 a100 on 2 nodes, at most 2 on one node" in shown
    assert "2 idle, not available: " in shown
    assert "at most 1-00:00:00" in shown


def test_a_node_that_does_not_report_its_use_is_unknown_not_free() -> None:
    node = Node("n1", "idle", None, ("gpu",), 4, 0, 1, 0, (GpuCount("a100", 4, None),))
    partition = replace(GPU, gpus=(GpuCount("a100", 4, None),))
    free = free_by_partition([node], [partition])
    assert "free – of 4 a100" in text(where_lines([partition], free, None, 100))


def test_a_node_that_was_read_before_its_job_started_says_so() -> None:
    """Slurm is asked for nodes less often than for jobs: "nothing runs on it" may be older than the job."""
    node = Node("n1", "idle", None, ("gpu",), 4, 0, 1, 0, ())
    job = replace(make_job(state="RUNNING"), nodes="n1", start_time_s=NOW_S - 20)

    def shown(read_s: float | None) -> str:
        return text(place_node_lines(job, [(node, ())], NOW_S, 80, 20, read_s))

    assert "node n1   as it was 60 s ago, before this job started\n" in shown(NOW_S - 60)
    assert "as it was" not in shown(NOW_S - 5)
    assert "as it was" not in shown(None)
    assert "node n1   as it was 60 s ago\n" in text(
        place_node_lines(replace(job, start_time_s=NOW_S - 100), [(node, ())], NOW_S, 80, 20, NOW_S - 60)
    )


def test_the_users_of_a_partition_are_shown_as_far_as_the_site_tells_them() -> None:
    assert why_no_access(GPU, None) == (True, ())
    of_ml = replace(GPU, allow_accounts=("ml", "hep"))
    assert why_no_access(of_ml, MINE) == (True, ("with account ml",))
    assert why_no_access(of_ml, None) == (None, ("only account ml or hep or below",))
    of_both = replace(of_ml, deny_accounts=("ml",))  # Slurm ignores DenyAccounts beside AllowAccounts
    assert why_no_access(of_both, MINE) == (True, ("with account ml",))
    above_mine = replace(GPU, allow_accounts=("hep",))  # since Slurm 23.02 ml may be a subaccount of hep
    assert why_no_access(above_mine, MINE) == (None, ("only account hep or below",))
    assert why_no_access(replace(GPU, allow_qos=("long",)), MINE) == (True, ("with QOS long",))
    assert why_no_access(replace(GPU, allow_groups=("staff",)), MINE) == (None, ("only group staff",))
    assert why_no_access(replace(GPU, state="drain"), MINE) == (False, ("it is drain",))
    assert why_no_access(replace(GPU, is_root_only=True), MINE) == (False, ("only root",))
    assert why_no_access(replace(GPU, needs_reservation=True), MINE) == (None, ("only with a reservation",))
    assert why_no_access(replace(GPU, allow_submit_nodes=("l1",)), MINE) == (None, ("only from l1",))
    assert why_no_access(replace(GPU, deny_accounts=("ml",)), MINE) == (False, ("not account ml",))
    assert why_no_access(replace(GPU, deny_accounts=("hep",)), MINE) == (True, ())
    assert why_no_access(replace(GPU, deny_accounts=("hep",)), None) == (None, ("not account hep",))


def test_a_node_shows_its_state_in_words_the_author_of_the_reason_and_why_nothing_is_free() -> None:
    node = replace(
        SNAPSHOT.nodes[2], reason="bad fan \x1b[31m[bold]", reason_user="root", reason_time_s=NOW_S - 7200
    )
    shown = text(node_fact_lines(node, free_gpus([node]), NOW_S, 80))
    assert "\x1b" not in shown
    assert "[bold]" in shown
    assert "root, 2 h ago" in shown
    assert "0 free of 2 a100, 0 in use" in shown
    assert "the idle ones are not available" in shown


def test_each_gpu_shows_its_user_or_idle_or_unknown() -> None:
    node = replace(SNAPSHOT.nodes[0], gpus=(GpuCount("a100", 3, 2),), gpu_indices=(0, 2))
    slots = allocation_map([node], [GpuAllocation("12", ("node1",), (0,))])
    shown = text(slot_lines(slots, {"12": make_job("12", "bob", name="vasp")}, True, 80)).splitlines()
    assert "job 12 of bob" in shown[0]
    assert "idle" in shown[1]
    assert "in use by an unknown job" in shown[2]


def test_a_node_on_which_only_others_may_have_jobs_names_the_key_that_shows_them() -> None:
    own = text(node_job_lines((), 80, all_key="a")).splitlines()[0].strip()
    assert own == "no job of yours runs here; a in the queue shows everybody's"
    assert text(node_job_lines((), 80)).splitlines()[0].strip() == "no job runs here"


def test_facts_that_the_site_hides_are_named_as_hidden_and_never_shown_as_zero() -> None:
    node = replace(SNAPSHOT.nodes[0], gpus=(GpuCount("a100", 1, 1),), gpu_indices=(0,))
    slots = allocation_map([node], [])
    hidden = text(slot_lines(slots, {}, True, 80, are_others_hidden=True))
    assert "in use by a job that the site hides" in hidden
    assert "other users' jobs are hidden" in text(node_job_lines((), 80, are_others_hidden=True))
    assert "partitions are hidden by the site" in text(where_lines((), {}, None, 80, True))
    assert "partitions are hidden by the site" in text(partition_lines((), {}, 80, 2, True))
    assert empty_nodes_note(True, is_hidden=True) == "nodes are hidden by the site (PrivateData)"
    assert nodes_title(0, "", 0, is_hidden=True) == "nodes · hidden"
    title = queue_title(Queue(num_own=3), 3, True, "", str, are_others_hidden=True)
    assert title == "queue · 3 yours, other users' jobs are hidden by the site (PrivateData)"
    empty = empty_queue_note(EmptyBecause(True, True, are_others_hidden=True), str)
    assert empty == "You have no jobs; other users' jobs are hidden by the site (PrivateData)"


def test_a_filter_that_no_job_of_the_queue_matches_leads_to_the_ended_ones() -> None:
    because = EmptyBecause(has_answer=True, are_all_shown=False, query="bold")
    told = empty_queue_note(because, str)
    assert told == "No job of yours matches. Esc clears the filter, all: everybody's, history: ended ones"
    assert "ended" not in empty_queue_note(replace(because, has_queue=False), str)
