"""The findings of all own jobs: one screen, reachable from anywhere, and the worst finding in every top
line."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from coach.model.judging.finding import Diagnosis, Evidence, Finding, Fix, Severity, Subject
from coach.model.judging.outcome import End, Outcome, RankEnd
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.job_action import Verb
from coach.model.snapshot import Snapshot, SourceStatus, TargetSnapshot
from coach.model.training.log import LogTail
from coach.tui.messages import ScreenOpened
from coach.tui.render.findings import gpu_hours
from coach.tui.widgets.keyed_table import KeyedTable
from coach.workflows.jobs.ended_jobs import PastJobs
from tests.tui.driving import opened
from tests.tui.fake_ports import FakeFixes, FakePorts, FakeQuestions
from tests.tui.fake_session import (
    CHILD_ID,
    NOW_S,
    RUN_ID,
    FakeSession,
    make_history,
    make_job,
    make_run,
    make_snapshot,
    make_target,
    status,
)


def idle(target: str) -> Diagnosis:
    finding = Finding(
        *("GPU003", "low-utilization", "gpu_idle", Severity.WARNING, 0.9, True, None, Subject()),
        *("The GPUs hardly work", (), (), NOW_S - 7200),
    )
    return Diagnosis(target, "RUNNING", (finding,), ())


def grave(target: str) -> Diagnosis:
    found = idle(target)
    return replace(found, findings=(replace(found.findings[0], severity=Severity.CRITICAL),))


def with_foreign_job(user: str = "ada") -> FakeSession:
    """Beside the run, a job that coach did not launch, whose eight GPUs idle for two hours."""
    snapshot = make_snapshot()
    job = replace(make_job("99", user), raw_job_id="99", num_gpus=8, name="bert", state="RUNNING")
    target = TargetSnapshot("99", NOW_S, job=job)
    return FakeSession(
        replace(
            snapshot,
            jobs=(*snapshot.jobs, job),
            targets=MappingProxyType({**snapshot.targets, "99": target}),
            diagnoses=MappingProxyType({**snapshot.diagnoses, "99": idle("99")}),
        ),
        {RUN_ID: make_history(lost_at=150)},
    )


async def test_f_lists_the_findings_of_all_jobs_the_most_costly_first_and_enter_tells_all_of_one() -> None:
    async with opened(with_foreign_job()) as driver:
        await driver.press("f")
        await driver.reaches("findings")
        await driver.sees("16")  # 8 GPUs for two hours
        rows = [line for line in driver.text().splitlines() if " GPU003 " in line or " NUM001 " in line]
        assert "bert" in rows[1], rows  # the first is the worst in the top line
        await driver.press("home", "enter")
        await driver.reaches("finding")
        await driver.sees("The GPUs hardly work")
        assert driver.session.watches[-1].targets == ("99",)
        await driver.press("escape", "escape")
        assert driver.place == "cluster"


@pytest.mark.parametrize(
    ("size", "place"), [((120, 36), "finding"), ((80, 24), "finding"), ((80, 24), "job")]
)
async def test_the_fix_of_a_job_that_coach_did_not_launch_is_its_script_as_a_diff(
    size: tuple[int, int], place: str
) -> None:
    session = with_foreign_job()
    finding = replace(
        idle("99").findings[0], fixes=(Fix("DataLoader workers 2 → 6 per rank", {"num_workers": 6}),)
    )
    told = replace(idle("99"), findings=(finding,))
    diagnoses = MappingProxyType({**session.snapshot.diagnoses, "99": told})
    session = FakeSession(replace(session.snapshot, diagnoses=diagnoses), {RUN_ID: make_history(lost_at=150)})
    async with opened(session, size=size) as driver:
        await driver.sees("GPU003")
        if place == "finding":
            await driver.press("f")
            await driver.reaches("findings")
            await driver.sees("LOST GPU-H")
            await driver.press("home", "enter")
        else:
            await driver.press("down", "enter")
        await driver.reaches(place)
        await driver.press("F")
        await driver.sees("script: as Slurm keeps it")
        text = driver.text()
        await driver.press("enter", "end")
        await driver.sees("+python train.py --num_workers 6")
        text += driver.text()
        for part in ("if you cancel it now:", "lost: 0.3 GPU-hours", "-python train.py --num_workers 2"):
            assert part in text, part
        assert driver.ports.fixes.relaunched == []
        assert driver.ports.launches.requests == []


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_f_on_an_own_job_submits_its_script_with_another_time_and_memory(size: tuple[int, int]) -> None:
    session = with_foreign_job()
    more = Fix("Memory per node → 8G", {"mem": "8G"})
    told = replace(idle("99"), findings=(replace(idle("99").findings[0], fixes=(more,)),))
    diagnoses = MappingProxyType({**session.snapshot.diagnoses, "99": told})
    session = FakeSession(replace(session.snapshot, diagnoses=diagnoses), {RUN_ID: make_history()})
    async with opened(session, size=size) as driver:
        await driver.press("f")
        await driver.sees("LOST GPU-H")
        await driver.press("home", "enter")
        await driver.reaches("finding")
        await driver.press("F")
        await driver.until(
            lambda: "--time=00:30:00--mem=8G/home" in "".join(driver.text().split()), "what is suggested"
        )
        await driver.press("1", "x")
        await driver.sees("time limit '1x'")
        await driver.press("backspace", ":", "0", "0", ":", "0", "0", "down", "down", "n", "7", "y", "y")
        await driver.press("backspace", "backspace")
        await driver.until(
            lambda: "--time=01:00:00--mem=8G--exclude=n7/home/ada/job.sh" in "".join(driver.text().split()),
            "the line that sbatch gets",
        )
        assert driver.ports.job_actions.performed == []
        await driver.press("enter")
        await driver.sees("y submits exactly this; the old job stays as it is")
        driver.clock.turn(1)
        await driver.press("y")
        await driver.until(lambda: driver.ports.job_actions.performed, "submitted")
        (action,) = driver.ports.job_actions.performed
        assert action.verb is Verb.RESUBMIT
        assert action.steps[0].argv[-4:] == (
            "--time=01:00:00",
            "--mem=8G",
            "--exclude=n7",
            "/home/ada/job.sh",
        )
        assert driver.place == "finding"


async def test_f_on_a_job_without_a_script_says_so_in_one_sentence() -> None:
    ports = FakePorts(fixes=FakeFixes(again=None))
    async with opened(with_foreign_job(), ports) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "99"))
        await driver.reaches("job")
        await driver.press("F")
        await driver.sees("job 99: its batch script is not available any more")


async def test_f_on_another_user_s_job_says_that_only_own_jobs_are_submitted() -> None:
    async with opened(with_foreign_job("bob")) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "99"))
        await driver.reaches("job")
        await driver.press("F")
        await driver.sees("job 99 is bob's, not yours")
        assert driver.place == "job"


async def test_the_gravest_finding_stands_in_the_top_line_of_every_screen() -> None:
    async with opened(with_foreign_job(), size=(80, 24)) as driver:
        for keys in ([], ["enter"], ["f"], ["escape", "escape", "H"], ["question_mark"]):
            await driver.press(*keys)
            await driver.until(
                lambda: "✖ NUM001" in driver.text().splitlines()[0], "the worst in the top line"
            )


async def test_over_a_screen_of_one_run_stands_its_own_finding_or_that_of_another_job() -> None:
    session = with_foreign_job()
    wrong, well = session.snapshot, replace(session.snapshot.diagnoses[RUN_ID], findings=())
    wrong = replace(wrong, diagnoses=MappingProxyType({RUN_ID: well, "99": grave("99")}))
    session = FakeSession(wrong, {RUN_ID: make_history()})
    async with opened(session, size=(80, 24)) as driver:
        await driver.until(lambda: "  ✖ GPU003 99" in driver.text().splitlines()[0], "the worst of all")
        await driver.press("r", "enter")
        await driver.reaches("job")
        await driver.until(
            lambda: "other job ✖ GPU003 99" in driver.text().splitlines()[0], "it is elsewhere"
        )
        own = replace(wrong, diagnoses=MappingProxyType({RUN_ID: idle(RUN_ID), "99": grave("99")}))
        session.push(own)
        await driver.until(
            lambda: "▲ GPU003 ddp" in driver.text().splitlines()[0], "its own, which is milder"
        )
        assert "other job" not in driver.text()
        await driver.press("escape", "escape")
        await driver.until(lambda: "✖ GPU003 99" in driver.text().splitlines()[0], "the worst of all again")


async def test_a_finding_on_the_job_of_the_run_on_screen_is_not_called_another_job_s() -> None:
    """The job was judged as a foreign one until its run was known; the list of runs is read more rarely."""
    snapshot = make_snapshot()
    judged = {RUN_ID: replace(snapshot.diagnoses[RUN_ID], findings=()), "17": grave("17")}
    targets = {**snapshot.targets, "17": TargetSnapshot("17", NOW_S, job=make_job())}
    early = replace(snapshot, runs=(), targets=MappingProxyType(targets), diagnoses=MappingProxyType(judged))
    session = FakeSession(snapshot, {RUN_ID: make_history()})
    async with opened(session, size=(80, 24)) as driver:
        await driver.press("r", "enter")
        await driver.reaches("job")
        session.push(early)
        await driver.until(lambda: "NUM001" not in driver.text().splitlines()[0], "the new diagnosis")
        assert "other job" not in driver.text().splitlines()[0]


async def test_the_top_line_of_a_job_shows_the_job_s_own_finding() -> None:
    session = with_foreign_job()
    async with opened(session, size=(80, 24)) as driver:
        await driver.sees("GPU003")
        await driver.press("down", "enter")
        await driver.reaches("job")
        await driver.until(lambda: "▲ GPU003 99" in driver.text().splitlines()[0], "the job's own")
        assert "NUM001" not in driver.text().splitlines()[0]


async def test_own_running_jobs_are_followed_with_any_launcher_and_jobs_of_others_never() -> None:
    async with opened(with_foreign_job()) as driver:
        assert set(driver.session.watches[-1].targets) >= {"99", RUN_ID}
    async with opened(with_foreign_job(user="bob")) as driver:
        assert "99" not in driver.session.watches[-1].targets


async def test_a_job_that_ended_today_is_read_when_its_findings_are_asked_for_and_an_older_one_is_not() -> (
    None
):
    ended = replace(make_job("41", "ada"), state="FAILED", end_time_s=NOW_S - 3600)
    older = replace(ended, job_id="40", end_time_s=NOW_S - 200_000)
    ports = FakePorts(questions=FakeQuestions(past=PastJobs((PastJob(ended), PastJob(older)), (), 0)))
    async with opened(ports=ports) as driver:
        await driver.press("f")
        session = driver.session
        await driver.until(lambda: ports.questions.asked, "the history was asked")
        session.push(session.snapshot)
        await driver.until(lambda: "41" in session.watches[-1].targets, "the ended job is read")
        assert "40" not in session.watches[-1].targets
        assert "1 not checked" in driver.text()


async def test_home_opens_with_a_job_that_failed_today_though_the_queue_has_forgotten_it() -> None:
    failed = replace(make_job("41", "ada"), state="FAILED", end_time_s=NOW_S - 3600)
    ports = FakePorts(questions=FakeQuestions(failed=PastJobs((PastJob(failed),), (), 0)))
    async with opened(ports=ports) as driver:
        session = driver.session
        await driver.until(lambda: driver.app.context.answers.past_jobs, "what is remembered was read")
        session.push(session.snapshot)
        await driver.until(lambda: "41" in session.watches[-1].targets, "the failed job is read")
        assert ports.questions.asked == []


def kept_of(job_id: str) -> PastJobs:
    """A job that completed today, with a verdict of an earlier session."""
    ended = replace(make_job(job_id, "ada"), state="COMPLETED", end_time_s=NOW_S - 3600)
    return PastJobs((PastJob(ended),), (), 0, {job_id: replace(idle(job_id), state="COMPLETED")})


async def test_a_verdict_of_an_earlier_session_is_shown_at_once_and_its_job_is_not_read_again() -> None:
    ports = FakePorts(questions=FakeQuestions(failed=kept_of("41")))
    async with opened(ports=ports) as driver:
        await driver.until(lambda: driver.app.context.answers.past_jobs, "what is remembered was read")
        driver.session.push(driver.session.snapshot)
        await driver.press("f")
        await driver.sees("The GPUs hardly work")
        await driver.press("/", "4", "1")
        await driver.sees("filter")
        assert "not checked" not in driver.text()
        assert "41" not in driver.session.watches[-1].targets


async def test_without_lost_gpu_hours_their_room_is_the_findings() -> None:
    summary = "The GPUs hardly work in small batches"
    kept = kept_of("41")
    (finding,) = kept.verdicts["41"].findings
    diagnosis = replace(kept.verdicts["41"], findings=(replace(finding, summary=summary),))
    questions = FakeQuestions(failed=replace(kept, verdicts={"41": diagnosis}))
    session = FakeSession(make_snapshot(jobs=(), runs=(), targets={}, diagnoses={}))
    async with opened(session, FakePorts(questions=questions), size=(84, 24)) as driver:
        await driver.until(lambda: driver.app.context.found, "what is remembered was read")
        await driver.press("f")
        await driver.sees(summary)
        assert "LOST" not in driver.text()


async def test_ended_jobs_and_arrays_that_coach_remembers_are_found_by_name_and_opened() -> None:
    ended = {"state": "FAILED", "end_time_s": NOW_S - 3600}
    jobs = (
        *(PastJob(replace(make_job(f"62_{task}", "ada"), name="kfold", **ended)) for task in range(3)),
        PastJob(replace(make_job("78", "ada"), name="my [bold]job", **ended)),
    )
    kept = PastJobs(jobs, (), 0, {"62_2": idle("62_2")})
    async with opened(ports=FakePorts(questions=FakeQuestions(failed=kept))) as driver:
        await driver.until(lambda: driver.app.context.answers.past_jobs, "what is remembered was read")
        for words, seen in (("62", "62_2"), ("bold", "my [bold]job")):
            await driver.press(":", *words, "enter")
            await driver.reaches("job")
            await driver.sees(seen)
            assert "Slurm knows no job" not in driver.text()
            is_array = words == "62"  # a finding of its task is not that of another job
            assert ("other job" not in driver.text().splitlines()[0]) is is_array
            await driver.press("escape")


async def test_home_opens_with_the_jobs_that_went_wrong_on_top_the_worst_first_and_enter_opens_them() -> None:
    async with opened(with_foreign_job(), size=(80, 24)) as driver:
        await driver.sees("1 of 2 checked jobs went wrong, 1 warned")
        rows = [line.split() for line in driver.text().splitlines()]
        rules = [row[2] for row in rows if row[1:2] in (["critical"], ["warning"])]
        assert rules == ["NUM001", "GPU003"], rows
        await driver.press("tab")
        await driver.until(lambda: getattr(driver.app.focused, "id", "") == "verdicts", "Tab goes there")
        await driver.press("end", "enter")
        await driver.reaches("job")
        await driver.sees("The GPUs hardly work")


async def test_the_keys_over_the_jobs_that_went_wrong_lead_there_from_the_focused_pane() -> None:
    async with opened(with_foreign_job(), size=(80, 24)) as driver:
        await driver.sees("went wrong, 1 warned · Tab goes here, f lists all")
        await driver.press("tab")
        await driver.sees("went wrong, 1 warned · Enter opens, f lists all")
        await driver.press("tab")
        await driver.sees("went wrong, 1 warned · Tab goes here, f lists all")


async def test_a_cause_of_38_letters_is_read_whole_at_80_columns() -> None:
    session, summary = with_foreign_job(), "ValueError: 11 classes, 10 are present"
    told = replace(idle("99"), findings=(replace(idle("99").findings[0], summary=summary),))
    diagnoses = MappingProxyType({**session.snapshot.diagnoses, "99": told})
    session = FakeSession(replace(session.snapshot, diagnoses=diagnoses), {RUN_ID: make_history(lost_at=150)})
    async with opened(session, size=(80, 24)) as driver:
        await driver.sees(summary)


@pytest.mark.parametrize(
    ("hours", "shown"), [(0.0, "0"), (2.78e-4, "< 0.01"), (0.01, "0.01"), (12.345, "12.3"), (1234.5, "1,234")]
)
def test_gpu_hours_have_no_exponent_and_no_digits_beyond_their_use(hours: float, shown: str) -> None:
    assert gpu_hours(hours) == shown


async def test_many_jobs_with_one_cause_are_one_line_and_enter_opens_the_newest() -> None:
    snapshot = make_snapshot(runs=())
    jobs = [
        replace(
            make_job(str(number), "ada"), raw_job_id=str(number), state="FAILED", end_time_s=NOW_S - number
        )
        for number in range(40, 51)
    ]
    found = {job.job_id: TargetSnapshot(job.job_id, job.end_time_s, job=job) for job in jobs}
    told = {job.job_id: replace(idle(job.job_id), state="FAILED") for job in jobs}
    session = FakeSession(
        replace(
            snapshot, jobs=tuple(jobs), targets=MappingProxyType(found), diagnoses=MappingProxyType(told)
        ),
        {},
    )
    async with opened(session, size=(80, 24)) as driver:
        await driver.sees("11 of 11 checked jobs went wrong")
        await driver.sees("GPU003 ×11")
        await driver.sees("40 +10")
        assert driver.text().count("▲ warning") == 1
        await driver.press("tab")
        await driver.until(lambda: getattr(driver.app.focused, "id", "") == "verdicts", "Tab goes there")
        await driver.press("enter")
        await driver.reaches("job")
        await driver.sees("job 40, yours")


async def test_a_new_critical_cause_comes_into_sight_among_older_warnings() -> None:
    """The pane has two rows at 80x24. The user had looked at the last row, and gone on."""
    snapshot = make_snapshot(runs=())
    names = [f"{number}" for number in range(40, 46)]
    jobs = [
        replace(make_job(name, "ada"), raw_job_id=name, state="COMPLETED", end_time_s=NOW_S - 100)
        for name in names
    ]
    found = {job.job_id: TargetSnapshot(job.job_id, job.end_time_s, job=job) for job in jobs}

    def told(name: str, severity: Severity) -> Diagnosis:
        finding = replace(idle(name).findings[0], rule=f"GPU{name}", severity=severity)
        return replace(idle(name), findings=(finding,), state="COMPLETED")

    def with_critical(*critical: str) -> Snapshot:
        severity = {name: Severity.CRITICAL if name in critical else Severity.WARNING for name in names}
        diagnoses = {name: told(name, severity[name]) for name in names if name != "45" or name in critical}
        return replace(
            snapshot, jobs=tuple(jobs), targets=MappingProxyType(found), diagnoses=MappingProxyType(diagnoses)
        )

    async with opened(FakeSession(with_critical(), {}), size=(80, 24)) as driver:
        await driver.sees("5 of 5 checked jobs warned")
        await driver.press("tab", "end", "tab")
        verdicts = driver.app.screen.query_one("#verdicts", KeyedTable)
        await driver.sees("GPU44")
        driver.session.push(with_critical("45"))
        await driver.sees("1 of 6 checked jobs went wrong, 5 warned")
        await driver.sees("✖ critical  GPU45")
        assert not verdicts.has_focus


async def test_a_job_that_goes_wrong_meanwhile_moves_neither_the_focus_nor_the_cursor() -> None:
    session = with_foreign_job()
    wrong = session.snapshot
    async with opened(session) as driver:
        driver.app.context.found.clear()
        driver.session.push(replace(wrong, diagnoses=MappingProxyType({})))
        await driver.until(lambda: "went wrong" not in driver.text(), "nothing is wrong")
        await driver.press("down")
        queue = driver.app.screen.query_one("#queue", KeyedTable)
        key = queue.cursor_key
        session.push(wrong)
        await driver.sees("1 of 2 checked jobs went wrong, 1 warned")
        assert (driver.app.focused, queue.cursor_key) == (queue, key)


async def test_when_all_is_well_again_the_room_is_the_clusters_and_the_keys_go_to_the_queue() -> None:
    async with opened(with_foreign_job()) as driver:
        await driver.sees("checked jobs went wrong")
        await driver.press("tab")
        await driver.until(lambda: getattr(driver.app.focused, "id", "") == "verdicts", "Tab goes there")
        driver.app.context.found.clear()
        driver.session.push(replace(driver.session.snapshot, diagnoses=MappingProxyType({})))
        await driver.until(lambda: "went wrong" not in driver.text(), "nothing is wrong any more")
        assert getattr(driver.app.focused, "id", "") == "queue"


async def test_a_failed_job_opens_on_its_cause_and_until_it_is_read_the_screen_says_so() -> None:
    snapshot = make_snapshot()
    job = replace(make_job("41", "ada"), raw_job_id="41", state="FAILED", end_time_s=NOW_S - 60)
    session = FakeSession(replace(snapshot, jobs=(job,)), {RUN_ID: make_history(lost_at=150)})
    async with opened(session, size=(80, 24)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "41"))
        await driver.reaches("job")
        await driver.sees("– not checked yet · looking for its files")
        await driver.until(lambda: session.watches[-1].targets[:1] == ("41",), "it is followed first")
        read = TargetSnapshot("41", NOW_S, job=job)
        diagnosis = replace(idle("41"), state="FAILED")
        session.push(replace(session.snapshot, targets={"41": read}, diagnoses={"41": diagnosis}))
        await driver.sees("The GPUs hardly work")
        session.push(replace(session.snapshot, diagnoses={"41": replace(diagnosis, findings=())}))
        await driver.sees("? nothing wrong seen")
        await driver.press("F")
        await driver.reaches("foreign_fix")
        await driver.sees("sbatch --parsable --job-name=bert")


async def test_a_job_that_was_just_launched_has_not_left_a_queue_that_was_read_before() -> None:
    job = replace(make_job("17", submit_time_s=NOW_S), raw_job_id="17")
    target = make_target(make_run(), job)
    told = {"jobs": (), "targets": {RUN_ID: target}, "diagnoses": {}}
    before = make_snapshot(**told, sources={"jobs": status("jobs", age_s=5.0)})
    session = FakeSession(before, {RUN_ID: make_history()})
    async with opened(session) as driver:
        driver.app.screen.post_message(ScreenOpened("job", RUN_ID))
        await driver.reaches("job")
        await driver.sees("RUNNING")
        assert "no longer in the queue" not in driver.text()
        session.push(replace(before, sources={"jobs": status("jobs", age_s=-10.0)}))
        await driver.sees("no longer in the queue")


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_cause_proof_fix_and_the_marked_line_of_the_log_need_no_key(size: tuple[int, int]) -> None:
    job = replace(make_job("41", "ada"), raw_job_id="41", state="FAILED", end_time_s=NOW_S - 60, exit_code=1)
    lines = (
        *(f"step {number} loss 0.5" for number in range(1, 40)),
        "ValueError: 11 classes",
        "srun: exit 1",
    )
    tail = LogTail("/home/ada/slurm-41.out", 1, lines, 900, len(lines))
    proof = Evidence("ValueError: 11 classes", tail.file, 40)
    finding = replace(
        idle("41").findings[0],
        rule="COD001",
        name="plain-exception",
        summary="ValueError: " + "11 classes, 10 expected " * 5,
        evidence=(proof,),
        fixes=(Fix("Correct the program at the line that is shown, and try it for a few steps"),),
    )
    outcome = Outcome(
        End.EXCEPTION, "ValueError", first=RankEnd(1, "node2", 1), lost_steps=39, can_resume=True
    )
    diagnosis = Diagnosis("41", "FAILED", (finding,), (), outcome=outcome)
    snapshot = replace(
        make_snapshot(),
        jobs=(job,),
        targets={"41": TargetSnapshot("41", NOW_S, job=job, log_tails=(tail,))},
        diagnoses={"41": diagnosis},
    )
    async with opened(FakeSession(snapshot, {RUN_ID: make_history(lost_at=150)}), size=size) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "41"))
        await driver.reaches("job")
        await driver.sees("it ended with ValueError, rank 1 first, on node2")
        await driver.sees("steps are lost")
        assert "it can resume" in " ".join(driver.text().split())
        await driver.sees("▸ValueError: 11 classes")
        await driver.sees("fix: Correct the program at the line that is shown")
        assert "srun: exit 1" in driver.text()
        assert "exit code 1" in " ".join(driver.text().split())
        if size == (80, 24):  # a wider screen has all facts at once
            assert "work dir" not in driver.text()
            await driver.press("v")
        await driver.sees("work dir")


async def test_a_running_job_whose_log_is_silent_says_since_when() -> None:
    job = replace(make_job("41", "ada"), raw_job_id="41", state="RUNNING")
    tail = LogTail("/home/ada/slurm-41.out", 1, ("step 1",), 7, 1, written_s=NOW_S - 190)
    target = TargetSnapshot("41", NOW_S, job=job, log_tails=(tail,))
    before = replace(make_snapshot(), jobs=(job,), targets={"41": target})
    async with opened(FakeSession(before)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "41"))
        await driver.reaches("job")
        await driver.sees("slurm-41.out · 1 line · silent for 3 min")
        ended = replace(job, state="COMPLETED")
        driver.session.push(replace(before, jobs=(ended,), targets={"41": replace(target, job=ended)}))
        await driver.until(lambda: "silent for" not in driver.text(), "an ended log is no silent one")


async def test_the_job_of_another_user_is_read_only_while_it_is_open() -> None:
    job = replace(make_job("41", "bob"), raw_job_id="41", state="FAILED")
    async with opened(FakeSession(replace(make_snapshot(), jobs=(job,)))) as driver:
        assert "41" not in driver.session.watches[-1].targets
        driver.app.screen.post_message(ScreenOpened("job", "41"))
        await driver.reaches("job")
        await driver.until(lambda: "41" in driver.session.watches[-1].targets, "it is read")
        await driver.press("escape")
        await driver.until(lambda: "41" not in driver.session.watches[-1].targets, "no longer")


async def test_a_job_in_no_list_is_asked_for_and_the_screen_says_if_slurm_does_not_know_it() -> None:
    before = make_snapshot()
    async with opened(FakeSession(before)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "999"))
        await driver.reaches("job")
        await driver.sees("asking Slurm for job 999…")
        await driver.until(lambda: "999" in driver.session.watches[-1].targets, "the job is asked for")
        answered = SourceStatus("row:999", NOW_S, None, None, 0, 0.1)
        target = TargetSnapshot("999", NOW_S)
        sources = {**before.sources, "row:999": answered}
        driver.session.push(replace(before, targets={"999": target}, sources=sources))
        await driver.sees("Slurm knows no job 999")
        told = replace(target, job=replace(make_job("999", "bob"), state="FAILED"))
        driver.session.push(replace(before, targets={"999": told}, sources=sources))
        await driver.sees("of bob")


async def test_a_job_in_no_list_is_not_said_to_be_unknown_to_a_slurm_that_does_not_answer() -> None:
    before = make_snapshot()
    silent = SourceStatus("jobs", NOW_S - 60, "Unable to contact slurm controller", NOW_S, 0, 9.0)
    answered = SourceStatus("row:999", NOW_S, None, None, 0, 0.1)
    sources = {**before.sources, "jobs": silent, "row:999": answered}
    told = replace(before, targets={"999": TargetSnapshot("999", NOW_S)}, sources=sources)
    async with opened(FakeSession(told)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "999"))
        await driver.reaches("job")
        await driver.sees("Slurm does not answer: Unable to contact slurm controller")
        assert "Slurm knows no job" not in driver.text()


async def test_a_failure_is_listed_once_when_the_run_of_a_judged_job_becomes_known() -> None:
    session = with_foreign_job()
    before = session.snapshot
    run = replace(before.runs[0], run_id=CHILD_ID, job_id="99", user="ada")
    target = TargetSnapshot(CHILD_ID, NOW_S, run=run, job=before.targets["99"].job)
    after = replace(
        before,
        runs=(*before.runs, run),
        targets=MappingProxyType({RUN_ID: before.targets[RUN_ID], CHILD_ID: target}),
        diagnoses=MappingProxyType({RUN_ID: before.diagnoses[RUN_ID], CHILD_ID: idle(CHILD_ID)}),
    )
    async with opened(session) as driver:
        await driver.sees("1 of 2 checked jobs went wrong, 1 warned")
        session.push(after)
        await driver.until(lambda: CHILD_ID in driver.app.context.found, "the run is judged")
        await driver.sees("1 of 2 checked jobs went wrong, 1 warned")
        listed = driver.app.screen.query_one("#verdicts", KeyedTable).keys
        assert sum(" GPU003 " in key for key in listed) == 1
        await driver.press("l")
        await driver.reaches("log")
        assert session.watches[-1].targets[0] in (RUN_ID, CHILD_ID)


async def test_the_log_opens_at_the_line_of_the_finding_that_is_marked() -> None:
    wrong = grave("99").findings[0]
    note = replace(wrong, rule="CUD004", severity=Severity.INFO, is_primary=False)
    note = replace(note, evidence=(Evidence("device-side assert triggered", "/home/ada/slurm-99.out", 41),))
    session = with_foreign_job()
    told = replace(idle("99"), findings=(wrong, note))
    diagnoses = MappingProxyType({**session.snapshot.diagnoses, "99": told})
    session = FakeSession(replace(session.snapshot, diagnoses=diagnoses), {RUN_ID: make_history()})
    async with opened(session) as driver:
        await driver.until(lambda: "99" in driver.app.context.diagnoses, "the job is judged")
        driver.app._go("finding", "99")
        await driver.reaches("finding")
        for keys, place in ((["l"], None), (["n", "l"], ("/home/ada/slurm-99.out", 41))):
            await driver.press(*keys)
            await driver.reaches("log")
            assert driver.app.screen._place == place
            await driver.press("escape")
            await driver.reaches("finding")


async def test_a_job_with_the_number_of_another_user_s_older_run_keeps_its_finding() -> None:
    session = with_foreign_job()
    before = session.snapshot
    run = replace(before.runs[0], run_id=CHILD_ID, job_id="99", user="bob")
    async with opened(session) as driver:
        session.push(replace(before, runs=(*before.runs, run)))
        await driver.until(lambda: driver.app.context.run(CHILD_ID), "the run is known")
        assert "99" in driver.app.context.found


async def test_f_in_the_list_of_findings_shows_the_fix_of_the_marked_one() -> None:
    snapshot = make_snapshot()
    first, second = (
        replace(idle(RUN_ID).findings[0], rule=rule, fixes=(Fix(title, {"num_workers": workers}),))
        for rule, title, workers in (("GPU003", "four workers", 4), ("GPU005", "eight workers", 8))
    )
    told = MappingProxyType({RUN_ID: replace(idle(RUN_ID), findings=(first, second))})
    session = FakeSession(replace(snapshot, diagnoses=told), {RUN_ID: make_history()})
    async with opened(session) as driver:
        await driver.press("f")
        await driver.reaches("findings")
        for keys in (["home"], ["down"]):
            await driver.press(*keys)
            marked = driver.app.screen._row().finding
            await driver.press("F")
            await driver.reaches("fix")
            assert driver.app.screen.index == (first, second).index(marked)
            await driver.press("escape")
            await driver.reaches("findings")


async def test_in_the_list_of_findings_f_on_advice_opens_it() -> None:
    snapshot = make_snapshot()
    advised = replace(idle(RUN_ID).findings[0], fixes=(Fix("Read the samples from local disks"),))
    told = MappingProxyType({RUN_ID: replace(idle(RUN_ID), findings=(advised,))})
    async with opened(FakeSession(replace(snapshot, diagnoses=told), {RUN_ID: make_history()})) as driver:
        await driver.press("f", "home")
        await driver.reaches("findings")
        await driver.press("F")
        await driver.reaches("finding")
        await driver.sees("fix: Read the samples from local disks")


async def test_f_on_advice_for_a_job_that_coach_did_not_launch_opens_the_advice_not_a_form() -> None:
    """No time limit or memory mends an overfitted model, so the form that submits again would not help."""
    session = with_foreign_job()
    advised = replace(idle("99").findings[0], fixes=(Fix("Stop at the best evaluation"),))
    told = {**session.snapshot.diagnoses, "99": replace(idle("99"), findings=(advised,))}
    session = FakeSession(replace(session.snapshot, diagnoses=MappingProxyType(told)), {})
    async with opened(session) as driver:
        for way in (("F",), ("f", "home", "F")):
            assert driver.place != "cluster" or driver.app.top.point_at("99")  # type: ignore[union-attr]
            await driver.press(*way)
            await driver.reaches("finding")
            await driver.sees("fix: Stop at the best evaluation")
            await driver.press("escape")
        assert driver.place == "findings"


async def test_a_fix_that_no_launch_carries_out_is_called_advice_and_f_shows_it() -> None:
    snapshot = make_snapshot()
    advised = replace(idle(RUN_ID).findings[0], fixes=(Fix("Read the samples from local disks"),))
    told = MappingProxyType({RUN_ID: replace(idle(RUN_ID), findings=(advised,))})
    session = FakeSession(replace(snapshot, diagnoses=told), {RUN_ID: make_history()})
    async with opened(session) as driver:
        await driver.press("home", "enter")
        await driver.reaches("job")
        await driver.sees("F advice")
        assert "F fix" not in driver.text()
        await driver.press("F")
        await driver.reaches("finding")
        await driver.sees("fix: Read the samples from local disks")
        await driver.press("F")
        await driver.sees("coach cannot apply this advice")
