"""The app: opens the home screen, feeds it snapshots, keeps the terminal clean whatever happens."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from textual import events
from textual._time import get_time
from textual.app import SystemCommand
from textual.binding import Binding
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

from coach.analysis.judging.ranking import ranked_findings
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.snapshot import Snapshot, Watch
from coach.tui import messages
from coach.tui.arrangement import put_keys_first
from coach.tui.at_once import done_at_once
from coach.tui.attention import UserAttention
from coach.tui.bases.screen import CoachScreen
from coach.tui.controllers.drills import DrillingApp
from coach.tui.exit_signals import FINISH_AT_SIGNAL_S, leave_at_signals, terminal_modes
from coach.tui.follow_list import FollowList
from coach.tui.mode import Mode
from coach.tui.palette import Commands, commands_of
from coach.tui.screen_specs import HOME, Follows, by_name
from coach.tui.screens.cluster import ClusterScreen
from coach.tui.terminal_input import PatientDriver
from coach.tui.theme import NIGHT
from coach.tui.wiring import Opening, demo_recording_path, open_live, open_recorded
from coach.tui.worker import FINISH_TIMEOUT_S

_AT_WORK = (events.Key, events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)


def open_screens(
    settings: Settings, *, backend: str, is_readonly: bool, replay: str | None, is_demo: bool
) -> int:
    """Open the screens and stay until the user leaves. Raises UserError when they cannot be opened, or stopped by themselves."""
    if is_demo:
        opening = open_recorded(settings, demo_recording_path(), Mode.DEMO)
    elif replay is not None:
        opening = open_recorded(settings, Path(replay), Mode.REPLAY)
    else:
        opening = open_live(settings, backend, is_readonly)
    app = CoachApp(opening)
    put_keys_first()
    app.run()
    if app.crash is not None:
        raise UserError(*_keep_crash(app.crash, settings.cache_dir), exit_status=1)
    return app.return_code or 0


def _keep_crash(crash: BaseException, directory: Path) -> tuple[str, str | None]:
    """One line for the user, the traceback in a file."""
    said = f"the screens stopped: {type(crash).__name__}: {crash}".splitlines()[0]
    file = directory / "crash.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(traceback.format_exception(crash)), encoding="utf-8", errors="replace")
    except OSError:
        return said, None
    return said, f"nothing that was launched is affected; details are in {file}"


class CoachApp(DrillingApp):
    """Lives as long as the user looks."""

    CSS_PATH = "styles/coach.tcss"
    TITLE = "coach"
    COMMANDS = {Commands}  # noqa: RUF012 (Textual's own spelling)
    BINDINGS = [Binding(str(n), f"launch('{n}')", f"Launch recipe {n}", show=False) for n in range(1, 10)]  # noqa: RUF012 (Textual's own spelling)

    def __init__(self, opening: Opening, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(opening, clock)
        # What was recorded costs nobody anything.
        self.context.are_all_shown = opening.mode in (Mode.DEMO, Mode.REPLAY)
        self.crash: BaseException | None = None
        self.animation_level = "none"
        self.register_theme(NIGHT)
        self.theme = NIGHT.name
        self._watch: Watch | None = None
        self._following = FollowList(self.context)
        self._looking = UserAttention(opening.session, clock)
        self._terminal_modes = terminal_modes()

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        return PatientDriver if found is LinuxDriver else found

    def on_mount(self) -> None:
        if not self.is_headless:
            leave_at_signals(self, self._terminal_modes)
        self.push_screen(ClusterScreen(self.context))
        session = self.context.session
        self._follow()
        session.start(self._post_snapshot)
        self.set_interval(1.0, self._tick)
        self.call_after_refresh(self.load_recipes)

    def on_unmount(self) -> None:
        self.context.session.stop()
        self.desk.finish(FINISH_AT_SIGNAL_S if self.return_code else FINISH_TIMEOUT_S)

    def _post_snapshot(self, snapshot: Snapshot) -> None:
        if not self.is_away:  # an hour's worth would wait for the screens to come back
            self.post_message(messages.Updated(snapshot))

    def on_updated(self, message: messages.Updated) -> None:
        context = self.context
        context.snapshot, context.snapshot_time_s = message.snapshot, context.clock()
        context.diagnoses.update(message.snapshot.diagnoses)
        context.found.update(ranked_findings(message.snapshot, context.ended_jobs))
        context.forget_jobs_of_runs()
        self.note_standing()
        self._follow()
        if self.top is not None:
            self.top.refresh_all()

    def _tick(self) -> None:
        self._looking.tick()
        self._note_sleep()
        if self.top is not None and self.context.clock() - self.context.snapshot_time_s >= 1.0:
            self.top.tick()

    def _note_sleep(self) -> None:
        context, was_awake = self.context, self.context.asleep_s is None
        context.asleep_s = self._looking.asleep_s
        if self.top is not None and (context.asleep_s is None) != was_awake:
            self.top.refresh_all()

    def on_app_focus(self) -> None:
        self._looking.focus(True)

    def on_app_blur(self) -> None:
        self._looking.focus(False)

    def _follow(self) -> None:
        """Follow what the screen on top declares."""
        top, before = self.top, self._watch.targets if self._watch is not None else ()
        named = top.targets if top is not None else ()
        self._looking.follow(bool(named))
        follows = top.spec.follows if top is not None else Follows.BEFORE
        targets = self._following.targets(follows, named, before)
        watch = Watch(all_jobs=self.context.are_all_shown, targets=targets)
        if watch != self._watch:
            self._watch = watch
            self.context.session.watch(watch)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, _AT_WORK) and not event.is_forwarded and self._looking.key():
            self._note_sleep()
            return
        if isinstance(event, events.Key) and not event.is_forwarded:
            # A key counts from when it arrived, not from when its turn came.
            self.context.key_time_s = self.context.clock() - max(0.0, get_time() - event.time)
            if self.top is not None:
                self.top.note("")
        if await done_at_once(self, event):
            return
        await super().on_event(event)

    def on_screen_shown(self) -> None:
        self._follow()

    def action_open_screen(self, name: str) -> None:
        """Open a screen about everything."""
        self.push_screen(by_name()[name].load()(self.context))

    def action_open_help(self) -> None:
        from coach.tui.screens.help import HelpScreen

        top = self.top
        if top is not None:
            self.push_screen(HelpScreen(self.context, top.spec, top.crumbs))

    def action_refresh_data(self) -> None:
        top = self.top
        if top is None or top.ask_again():
            return
        self.context.session.refresh_soon()
        top.note("reading everything again")

    def action_go_back(self) -> None:
        top = self.top
        if top is None:
            return
        if top.maximized is not None:
            top.minimize()
            return
        if top.go_back():
            return
        if top.spec is not HOME:
            self.pop_screen()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette offers. `screen` is the one below it."""
        if isinstance(screen, CoachScreen):
            yield from commands_of(screen, self.recipes, self._act_on, self.launch)

    async def _act_on(self, screen: CoachScreen, action: str) -> None:
        if screen is self.screen:
            screen.note("")
            await self.run_action(action, screen)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(NIGHT.variables)

    def _handle_exception(self, error: Exception) -> None:
        """One clean line after the terminal is restored, instead of a traceback across it."""
        if self.crash is None:
            self.crash = error
        if self.is_headless:
            super()._handle_exception(error)
            return
        self._return_code = 1
        self._close_messages_no_wait()
