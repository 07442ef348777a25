"""The plan of a launch, driven by keys: coach submits exactly the shown plan, and a refusal leads to its
answer."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from textual import events

from coach.launch.refusal import Choice, Refused
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Plan
from coach.tui.key_guard import GUARD_S
from coach.tui.screens.plan import PlanField, PlanScreen
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakeLaunches, FakePorts
from tests.tui.fake_session import make_plan

SIZES = [(80, 24), pytest.param((120, 36), marks=pytest.mark.long)]


async def open_plan(driver: Driver) -> None:
    await driver.press("2")
    await until_keys_count(driver)


async def until_keys_count(driver: Driver) -> None:
    """Wait until the question has been painted, and for as long as it refuses keys then."""
    await driver.sees("submits exactly this script")
    screen = driver.app.screen
    assert isinstance(screen, PlanScreen)
    await driver.until(lambda: screen._guard.admits(driver.clock() + 2 * GUARD_S), "the guard is armed")
    driver.clock.turn(GUARD_S + 0.1)


async def submit(driver: Driver) -> None:
    """Enter, as soon as it counts."""
    await until_keys_count(driver)
    await driver.press("enter")


async def test_enter_submits_the_plan_that_was_shown_and_opens_the_run() -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("enter")
        await driver.until(lambda: driver.ports.launches.submitted, "submitted")
        await driver.reaches("job")
        assert [plan.recipe for plan in driver.ports.launches.submitted] == ["ddp"]
        assert driver.session.num_refreshes == 1


async def test_the_notes_of_a_group_are_shown_beside_the_number_of_its_runs() -> None:
    async with opened() as driver:
        driver.ports.launches.notes = ("sbatch: few nodes",)
        await open_plan(driver)
        screen = driver.app.screen
        assert isinstance(screen, PlanScreen)
        assert screen.plan is not None
        screen.plan = replace(screen.plan, others=(make_plan(LaunchRequest("ddp")),))
        await driver.press("enter")
        await driver.reaches("job")
        await driver.sees("2 runs launched")
        await driver.sees("sbatch: few nodes")


async def test_keys_in_one_burst_submit_nothing() -> None:
    async with opened() as driver:
        await driver.press("1", "enter", "enter")
        await driver.sees("submits exactly this script")
        await driver.press("enter")
        assert driver.ports.launches.submitted == []
        assert driver.place == "plan"


async def test_enter_right_after_the_question_is_called_too_early_beside_the_keys() -> None:
    async with opened(size=(80, 24)) as driver:
        await open_plan(driver)
        screen = driver.app.screen
        assert isinstance(screen, PlanScreen)
        screen._guard.arm(driver.clock())
        driver.clock.turn(GUARD_S / 2)
        await driver.press("enter")
        await driver.sees("too early: press it again")
        await driver.sees("? keys")
        assert driver.ports.launches.submitted == []


async def test_enter_before_the_plan_is_made_submits_nothing() -> None:
    gate = threading.Event()

    def wait_for_gate() -> None:
        gate.wait(10)

    ports = FakePorts(launches=FakeLaunches(before_prepare=wait_for_gate))
    async with opened(ports=ports) as driver:
        await driver.press("2")
        await driver.sees("making the plan")
        driver.clock.turn(5)
        await driver.press("enter")
        gate.set()
        await driver.sees("submits exactly this script")
        assert ports.launches.submitted == []


async def test_two_nodes_in_the_plan_are_two_nodes_in_the_script() -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("2")
        await driver.sees("#SBATCH --nodes=2")
        await driver.sees("submits exactly this script")
        await driver.press("enter")
        assert driver.ports.launches.submitted == []  # the changed plan was painted just now
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        await driver.until(lambda: driver.ports.launches.submitted, "submitted")
        assert driver.ports.launches.submitted[0].resources.num_nodes == 2


async def test_the_old_script_stays_while_the_plan_is_made_again() -> None:
    gate = threading.Event()
    async with opened() as driver:
        await open_plan(driver)
        driver.ports.launches.before_prepare = lambda: gate.wait(10) and None
        await driver.press("2")
        await driver.sees("job.sh · making it again…")
        assert "#SBATCH --nodes=1" in driver.text()
        gate.set()
        await driver.sees("#SBATCH --nodes=2")
        assert "making it again" not in driver.text()


@pytest.mark.parametrize("size", SIZES)
async def test_the_first_value_has_the_focus_and_its_meaning_beside_it(size: tuple[int, int]) -> None:
    async with opened(size=size) as driver:
        await open_plan(driver)
        field = driver.app.focused
        assert isinstance(field, PlanField)
        assert field.field.name == "num_nodes"
        rows = driver.text().splitlines()
        at = next(index for index, row in enumerate(rows) if "Machines that train together; at most 4" in row)
        assert rows[at].startswith(" nodes")
        assert any("default 1." in row for row in rows[at : at + 2])
        assert at < next(index for index, row in enumerate(rows) if "#!/bin/bash" in row)


async def test_a_field_that_is_no_number_is_refused_in_the_plan_and_can_be_mended() -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("x")
        await driver.sees("expected a whole number from 1")
        driver.clock.turn(1)
        await driver.press("enter")
        assert driver.ports.launches.submitted == []
        await driver.press("backspace", "3")
        await driver.sees("#SBATCH --nodes=3")


@pytest.mark.parametrize("again", [pytest.param("1", marks=pytest.mark.long), "4"])
async def test_a_field_that_was_erased_and_typed_again_holds_the_new_text(again: str) -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("4")
        await driver.sees("#SBATCH --nodes=4")
        await driver.press(*["backspace"] * 8, again)
        await driver.until(
            lambda: driver.ports.launches.requests[-1].num_nodes == int(again), f"{again} nodes are asked for"
        )
        await driver.sees(f"#SBATCH --nodes={again}")


@pytest.mark.parametrize("is_plan_awaited", [True, False])
async def test_a_field_that_was_left_empty_shows_the_plans_own_value(is_plan_awaited: bool) -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("4")
        await driver.sees("#SBATCH --nodes=4")
        await driver.press("backspace")
        if is_plan_awaited:
            await driver.sees("#SBATCH --nodes=1")
        await driver.press("down")
        first = driver.app.screen.query(PlanField).first()
        await driver.until(lambda: first.value == "1", "the first field shows one node")


async def test_a_refused_submission_shows_slurms_own_words_and_stays() -> None:
    words = (
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
        "specified"
    )
    async with opened(
        ports=FakePorts(launches=FakeLaunches(refusal=UserError(words, "see `sacctmgr show assoc`")))
    ) as driver:
        await open_plan(driver)
        await driver.press("enter")
        await driver.sees("Invalid account or account/partition combination")
        await driver.sees("see `sacctmgr show assoc`")
        assert driver.place == "plan"


async def test_escape_leaves_a_plan_with_nothing_done() -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("escape")
        assert driver.place == "cluster"
        assert driver.ports.launches.submitted == []


async def test_the_question_mark_lists_the_keys_until_the_field_is_edited() -> None:
    async with opened() as driver:
        await open_plan(driver)
        await driver.press("question_mark")
        await driver.reaches("help")
        await driver.press("escape")
        await driver.reaches("plan")
        await driver.press("4", "question_mark")
        first = driver.app.screen.query(PlanField).first()
        assert (driver.place, first.value) == ("plan", "4?")


async def test_down_past_the_last_field_stays_in_the_form_and_up_returns() -> None:
    async with opened() as driver:
        await open_plan(driver)
        fields = list(driver.app.screen.query(PlanField))
        for _ in range(len(fields) + 2):
            await driver.press("down")
        assert driver.app.focused is fields[-1]
        for _ in range(len(fields) + 2):
            await driver.press("up")
        assert driver.app.focused is fields[0]


async def test_arrows_and_digits_in_one_packet_go_to_the_field_that_the_arrow_chose() -> None:
    async with opened() as driver:
        await open_plan(driver)
        for key in ("2", "down", "down", "3", "down", "down", "5"):
            driver.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await driver.sees("#SBATCH --nodes=2")
        await driver.sees("submits exactly this script")
        request = driver.ports.launches.requests[-1]
        assert (request.num_nodes, request.nproc_per_node, request.time_limit_s) == (2, 3, 300)


WORDS = ("You must say who pays: --account=NAME.", "Batch job submission failed: Invalid account")
ACCOUNT = Refused(
    WORDS, "account", [Choice(name, {"account": name}) for name in ("lab", "teaching")], "try --account=lab"
)
GRES = Refused(["no type"], "gpu_type", [Choice("a100", {"gpu_type": "a100", "gpu_request": "gres"})])
RESERVATION = Refused(["reserved"], "reservation", [Choice("workshop", {"reservation": "workshop"})])


@pytest.mark.parametrize("size", SIZES)
async def test_a_refusal_moves_to_the_field_marks_it_and_offers_the_choices(size: tuple[int, int]) -> None:
    async with opened(ports=FakePorts(launches=FakeLaunches(refusals=[ACCOUNT])), size=size) as driver:
        await open_plan(driver)
        await driver.press("enter")
        await driver.sees("account: 1 lab  2 teaching")
        text = driver.text()
        for part in (*WORDS, "✖account", "a digit picks, or type it"):
            assert part in text, part
        assert "--account=lab" not in text  # the hint of the command line
        focused = driver.app.focused
        assert isinstance(focused, PlanField)
        assert focused.field.name == "account"


async def test_from_three_refusals_to_a_submission_it_takes_six_keys() -> None:
    ports = FakePorts(launches=FakeLaunches(refusals=[ACCOUNT, GRES, RESERVATION]))
    async with opened(ports=ports) as driver:
        await open_plan(driver)
        await driver.press("enter")
        for offer, digit in (("2 teaching", "2"), ("1 a100", "1"), ("1 workshop", "1")):
            await driver.sees(offer)
            await driver.press(digit)
            await submit(driver)
        await driver.until(lambda: ports.launches.submitted, "submitted")
        request = ports.launches.submitted[0].request
        assert (request.account, request.gpu_type, request.gpu_request, request.reservation) == (
            *("teaching", "a100", "gres", "workshop"),
        )


async def test_a_typed_answer_counts_too_and_a_digit_after_a_letter_is_a_digit() -> None:
    ports = FakePorts(launches=FakeLaunches(refusals=[ACCOUNT]))
    async with opened(ports=ports) as driver:
        await open_plan(driver)
        await driver.press("enter")
        await driver.sees("2 teaching")
        await driver.press("m", "1", "2")
        await submit(driver)
        await driver.until(lambda: ports.launches.submitted, "submitted")
        assert ports.launches.submitted[0].request.account == "m12"


async def test_a_choice_can_remove_a_value_of_the_config() -> None:
    without = Refused(["expired"], "reservation", [Choice("none", {"reservation": ""})])
    ports = FakePorts(launches=FakeLaunches(refusals=[without]))
    async with opened(ports=ports) as driver:
        await open_plan(driver)
        await driver.press("enter")
        await driver.sees("1 none")
        await driver.press("1")
        await submit(driver)
        await driver.until(lambda: ports.launches.submitted, "submitted")
        assert ports.launches.submitted[0].request.reservation == ""


async def test_a_refusal_that_names_no_field_is_shown_whole_and_nothing_is_marked() -> None:
    words = [f"line {number} \x1b[31mof the site" for number in range(20)]
    async with opened(
        ports=FakePorts(launches=FakeLaunches(refusals=[Refused(words)])), size=(80, 24)
    ) as driver:
        await open_plan(driver)
        await driver.press("enter")
        await driver.sees("line 0 ␛[31mof the site")
        text = driver.text()
        assert "more lines" in text
        assert "Esc leaves" in text
        assert "a digit picks" not in text


async def test_a_key_and_a_tick_that_come_before_the_screen_is_composed_do_no_harm() -> None:
    async with opened() as driver:
        screen = PlanScreen(driver.app.context, "launch ddp")
        screen.tick()
        screen.note("too early")
        assert driver.place == "cluster"


class NoDefaultLaunches(FakeLaunches):
    """A cluster without a default partition."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        self.requests.append(request)
        if request.partition not in ("cpu", "gpu"):
            raise UserError("this cluster has no default partition", "--partition: one of cpu, gpu")
        return make_plan(request)


@pytest.mark.parametrize("size", SIZES)
async def test_a_launch_that_cannot_be_planned_is_mended_in_the_field_that_the_refusal_names(
    size: tuple[int, int],
) -> None:
    async with opened(ports=FakePorts(launches=NoDefaultLaunches()), size=size) as driver:
        await driver.press("2")
        await driver.sees("partition: one of cpu, gpu")
        assert "--" not in driver.text()
        await driver.until(lambda: isinstance(driver.app.focused, PlanField), "a field has the focus")
        assert "✖partition" in driver.text()
        await driver.press("enter")
        assert driver.ports.launches.submitted == []
        await driver.press("g", "p", "u")
        await driver.sees("optimizer")  # the recipe's parameters are known with the plan
        field = driver.app.focused
        assert isinstance(field, PlanField)
        assert (field.field.name, field.value) == ("partition", "gpu")
        await submit(driver)
        await driver.until(lambda: driver.ports.launches.submitted, "submitted")
        assert driver.ports.launches.submitted[0].request.partition == "gpu"


class LackingLaunches(FakeLaunches):
    """Coach's Python has no torch; one venv and one interpreter have it."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        self.requests.append(request)
        if request.environment == "venv=/sw/torch" or request.python == "/opt/bin/python":
            return make_plan(request)
        choices = [Choice("venv=/sw/torch (torch 2.9.0)", {"environment": "venv=/sw/torch"})]
        words = ["recipe ddp needs torch, PIL: not found in environment python3"]
        raise Refused(words, "environment", choices, message=words[0])


def focused_name(driver: Driver) -> str | None:
    """The name of the plan's field that has the focus."""
    field = driver.app.focused
    return field.field.name if isinstance(field, PlanField) else None


@pytest.mark.parametrize(
    ("keys", "environment", "python"),
    [("1", "venv=/sw/torch", None), ("/opt/bin/python", "none", "/opt/bin/python")],
)
async def test_a_plan_without_torch_is_not_submitted_and_its_environment_is_picked_or_typed(
    keys: str, environment: str, python: str | None
) -> None:
    async with opened(ports=FakePorts(launches=LackingLaunches()), size=(80, 24)) as driver:
        await driver.press("2")
        await driver.sees("needs torch, PIL: not found")
        await driver.sees("1 venv=/sw/torch (torch 2.9.0)")
        await driver.until(lambda: focused_name(driver) == "environment", "the environment has the focus")
        assert "✖environment" in driver.text()
        await driver.press("enter")
        assert driver.ports.launches.submitted == []
        await driver.press(*("slash" if key == "/" else key for key in keys))
        await driver.sees("optimizer")
        assert focused_name(driver) == "environment"
        await submit(driver)
        await driver.until(lambda: driver.ports.launches.submitted, "submitted")
        request = driver.ports.launches.submitted[0].request
        assert (request.environment, request.python) == (environment, python)


class LockedLaunches(FakeLaunches):
    """The site has locked the partition and the account."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        reasons = {"partition": "one for the course (/etc/coach/site.toml:7)", "account": "paid by us"}
        return replace(make_plan(request), locked=reasons)


async def test_a_locked_field_shows_the_sites_reason_and_cannot_be_edited() -> None:
    async with opened(ports=FakePorts(launches=LockedLaunches(refusals=[ACCOUNT]))) as driver:
        await open_plan(driver)
        text = driver.text()
        assert "▪partition" in text
        await driver.sees("partition is the site's: one for the")
        fields = {field.field.name: field for field in driver.app.screen.query(PlanField)}
        assert [name for name, field in fields.items() if field.disabled] == ["partition", "account"]
        fields["partition"].focus()
        await driver.settle()
        assert driver.app.focused is not fields["partition"]
        await driver.press("enter")
        await driver.sees("You must say who pays")
        assert "1 lab" not in driver.text()
