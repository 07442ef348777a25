"""The Log screen: any part of a job's log of any size, or both streams merged by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from textual.widget import Widget

from coach.model.errors import UserError
from coach.model.training.log import LogFile, LogTail
from coach.model.training.log_window import LogLook, LogWindow, folds_case
from coach.render.text import KeyLabel, clip, crumb, line, muted, printable
from coach.trusted import UNKNOWN_USER
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import LogWanted, PagerRequested
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_pager import LogPager

_WORDS = "words to find; case counts if you type a capital"
_WRAPPED = "wrapped: not found below, so this is the first from the beginning"


class LogScreen(CoachScreen, screen="log"):
    """The pager of one job's log. It follows the growing file."""

    def __init__(self, context: Context, target: str, place: tuple[str, int] | None = None) -> None:
        """`place` is the file and line number to open at."""
        super().__init__(context, ("cluster", crumb(context.run(target) is not None, target), "log"))
        self.targets = (target,)
        self._target = target
        self._place = place
        self._index = 0
        """The shown file: 0 is standard output, 1 standard error; a job that coach did not launch may have
        more."""
        self._are_both_shown = False
        self._shown: tuple[str, ...] = ()
        """The files in the pager."""
        self._words: str | None = None
        """The search words; None: search for errors."""
        self._look: LogLook | None = None
        """The request for the window that is being read."""
        self._following: LogLook | None = None
        """The last request that followed the growing end."""
        self._progress = ""
        self._sizes: dict[str, int] = {}
        """The sizes of the files in bytes, when they were last requested."""

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        yield LogPager(id="log")
        yield FilterLine()

    def on_mount(self) -> None:
        self._pager.focus()

    @property
    def _pager(self) -> LogPager:
        return self.query_one("#log", LogPager)

    @property
    def _is_recorded(self) -> bool:
        """True if the files themselves are missing: a recording holds only their ends."""
        return self.context.mode.is_recorded

    # Display

    def show(self) -> None:
        files, tails = self._told()
        where = " · ".join(printable(each.path) for each in files) or "looking for its log…"
        heading = line(f" {self.crumbs[1]}  ", muted(where))
        self.pane("#heading").set_lines([clip(heading, self.app.size.width)])
        if self._place is not None and files:
            paths = [each.path for each in files]
            self._index = paths.index(self._place[0]) if self._place[0] in paths else 0
        self._follow(files, tails)
        self._show_title()
        status = self.context.snapshot.sources.get(f"log:{self._target}")
        if not files and status is not None and status.error is not None:
            self.note(f"its log: {status.error}")

    def _told(self) -> tuple[Sequence[LogFile], Sequence[LogTail]]:
        """The files of the streams, standard output first, and their ends."""
        target = self.context.snapshot.targets.get(self._target)
        return ((), ()) if target is None else (target.log_files, target.log_tails)

    def _file(self) -> LogFile | None:
        files, _ = self._told()
        return files[min(self._index, len(files) - 1)] if files else None

    def _tail(self, path: str) -> LogTail | None:
        return next((tail for tail in self._told()[1] if tail.file == path), None)

    def _follow(self, files: Sequence[LogFile], tails: Sequence[LogTail]) -> None:
        """Request the log if the user wants another one, or if its end is in sight and it has grown."""
        file = self._file()
        if file is None:
            return
        tail = self._tail(file.path)
        wanted = tuple(each.path for each in files[:2]) if self._are_both_shown else (file.path,)
        if self._is_recorded:
            self._show_end(tail)
        elif self._look is not None or not (file.is_found and file.problem is None):
            return
        elif wanted != self._shown:
            at_line = self._place[1] if self._place is not None and self._place[0] == file.path else None
            self._place = None
            self._ask(LogLook(wanted, line=at_line))
        elif self._has_grown(tails) and self._pager.follows:
            self._following = LogLook(wanted)
            self._ask(self._following)

    def _show_end(self, tail: LogTail | None) -> None:
        window = None if tail is None else window_of(tail)
        if window is not None and window != self._pager.window:
            self._shown = (window.file,)
            self._pager.set_window(window)

    def _has_grown(self, tails: Sequence[LogTail]) -> bool:
        return any(self._sizes.get(tail.file) != tail.size_bytes for tail in tails)

    def _ask(self, look: LogLook) -> None:
        self._look, self._progress = look, ""
        self._sizes = {tail.file: tail.size_bytes for tail in self._told()[1]}
        counted = {
            tail.file: (tail.size_bytes, tail.num_lines)
            for tail in self._told()[1]
            if tail.is_counted and not tail.is_binary
        }
        file = self._file()
        owner = file.owner if file is not None else UNKNOWN_USER
        self.post_message(LogWanted(look, owner, counted, lambda: self._look is look, self.set_progress))

    def set_progress(self, look: LogLook, done_bytes: int, total_bytes: int) -> None:
        if look is self._look and total_bytes:
            doing = "searching" if look.is_search else "counting lines"
            self._progress = f"{doing}: {100 * done_bytes // total_bytes} %, Esc stops"
            self._show_title()

    def set_window(self, look: LogLook, window: LogWindow) -> None:
        """Show the window that was read, unless the user wants another one by now."""
        if look is not self._look:
            return
        if look is self._following and not self._pager.follows:
            self._look, self._sizes = None, {}  # the user has left the end meanwhile, and may come back to it
            return
        self._look, self._shown = None, look.files
        is_focused = look.is_search or look.line is not None
        if look.is_search and window.focus is None:
            if not self._wrap(look):
                self.note(_not_found(look, self.context.label))
        else:
            if look.is_wrapped:
                self.note(_WRAPPED)
            self._pager.set_window(window, top=None if is_focused else look.offset, is_focused=is_focused)
        self._show_title()

    def refuse(self, look: LogLook, error: UserError) -> None:
        if look is self._look:
            self._look, self._are_both_shown = None, False
            if self._shown != look.files or self._pager.follows:
                self._shown = look.files
                self._show_end(self._tail(look.files[0]))  # the file is gone: show its last end in memory
            self.note(error.message)
            self._show_title()

    def _show_title(self) -> None:
        file, window, name = self._file(), self._pager.window, self._stream_name()
        if file is not None and (file.problem is not None or not file.is_found):
            name += f" · {printable(file.path)}: {printable(file.problem or 'no such file, or not yet')}"
        if self._are_both_shown:
            name = "stdout (o) and stderr (e) by time"
        if window is None or not self._shown:
            self._pager.set_title(f"{name} · {self._progress or 'no line yet'}")
        elif window.is_binary:
            self._pager.set_title(f"{name} · {window.size_bytes:,} bytes that are not text")
        else:
            place = self._progress if self._look is not None and self._progress else self._place_words(window)
            self._pager.set_title(f"{name} · {place}")

    def _stream_name(self) -> str:
        file, num_files = self._file(), len(self._told()[0])
        if num_files == 1:
            return "stdout and stderr"
        if file is not None and num_files > 2:
            return printable(file.path.rpartition("/")[2])
        return "stderr" if self._index else "stdout"

    def _place_words(self, window: LogWindow) -> str:
        """The lines in sight, in words."""
        if not window.lines:
            return "no line yet"
        first, last = self._pager.in_sight
        words = []
        if window.first_line is not None:
            words.append(f"lines {window.first_line + first:,}-{window.first_line + last:,}")
        if self._pager.follows:
            words.append("its end")
        else:
            words.append(f"{100 * window.offsets[last + 1] // max(1, window.size_bytes)} %")
        tail = self._tail(window.file)
        is_counted = tail is not None and tail.is_counted and not window.streams
        if tail is not None and is_counted and window.first_line is not None:
            words[0] += f" of {max(tail.num_lines, window.first_line + last):,}"
        return " · ".join(words)

    # Keys

    def on_log_pager_moved(self) -> None:
        self._show_title()

    def on_log_pager_wanted(self, message: LogPager.Wanted) -> None:
        if self._look is None and not self._is_recorded and len(self._shown) == 1:
            self._ask(LogLook(self._shown, offset=message.offset))

    def action_find(self) -> None:
        """Ask for the words to search for."""
        self.query_one(FilterLine).ask(self._pager, self._words or "", self._search, _WORDS)

    def _search(self, words: str) -> None:
        self._words = words or None
        self._pager.words = words.lower() if folds_case(words) else words
        self._pager.focus_offset = None
        self._pager.redraw()
        if words:
            self._find(words, is_backwards=False)

    def action_next(self) -> None:
        self._find_again(is_backwards=False)

    def action_previous(self) -> None:
        self._find_again(is_backwards=True)

    def _find_again(self, *, is_backwards: bool) -> None:
        if self._words is None:
            find, after, before = map(self.context.label, ("find", "next_error", "previous_error"))
            self.note(f"{find} asks for the words to find; {after} and {before} go from error to error")
        else:
            self._find(self._words, is_backwards=is_backwards)

    def action_next_error(self) -> None:
        self._find(None, is_backwards=False)

    def action_previous_error(self) -> None:
        self._find(None, is_backwards=True)

    def _find(self, words: str | None, *, is_backwards: bool) -> None:
        """Go to the next line with these words, or with an error if there are no words: in the window, else
        in the rest of the file."""
        window = self._pager.window
        if window is None or not window.lines:
            self.note("there is no line yet")
            return
        index = self._next_in(window, words, is_backwards)
        has_all = window.has_start if is_backwards else window.has_end
        if index is not None:
            self._pager.show_line(index)
        elif has_all or self._is_recorded or window.streams:
            look = LogLook(self._shown, None, None, words, words is None, is_backwards)
            if not self._wrap(look):
                self.note(_not_found(look, self.context.label))
        else:
            offset = window.start if is_backwards else window.end
            self._ask(LogLook(self._shown, offset, None, words, words is None, is_backwards))

    def _wrap(self, look: LogLook) -> bool:
        """Search for the words from the log's beginning: there are none below. Returns False if that cannot
        find them either."""
        window = self._pager.window
        if look.words is None or look.is_backwards or look.is_wrapped or window is None:
            return False
        if window.has_start or self._is_recorded or window.streams:
            index = self._first_with(window, look.words, range(len(window.lines)))
            if index is not None:
                self._pager.show_line(index)
                self.note(_WRAPPED)
                return True
            if window.has_end or self._is_recorded or window.streams:
                return False
        self._ask(replace(look, offset=0, is_wrapped=True))
        return True

    def _next_in(self, window: LogWindow, words: str | None, is_backwards: bool) -> int | None:
        """Index of the next match in the window; None if there is none."""
        first, last = self._pager.in_sight
        offset = self._pager.focus_offset
        at = window.offsets.index(offset) if offset in window.offsets[:-1] else None
        if at is not None and first <= at <= last:
            places = range(at - 1, -1, -1) if is_backwards else range(at + 1, len(window.lines))
        else:
            places = range(last, -1, -1) if is_backwards else range(first, len(window.lines))
        if words is None:
            return next((index for index in places if index in window.errors), None)
        return self._first_with(window, words, places)

    @staticmethod
    def _first_with(window: LogWindow, words: str, places: Iterable[int]) -> int | None:
        """Index of the first of these lines that has the words."""
        is_folded = folds_case(words)
        return next(
            (
                index
                for index in places
                if words in (window.lines[index].lower() if is_folded else window.lines[index])
            ),
            None,
        )

    def action_wrap(self) -> None:
        self._pager.is_wrapped = not self._pager.is_wrapped
        self._pager.redraw()

    def action_numbers(self) -> None:
        pager = self._pager
        if pager.window is not None and pager.window.first_line is None:
            self.note("the lines before these are not counted yet")
            return
        pager.is_numbered = not (
            pager.is_numbered if pager.is_numbered is not None else self.app.size.width >= 100
        )
        pager.redraw()

    def action_both(self) -> None:
        """Merge both streams by time, or show one of them again."""
        num_files = len(self._told()[0])
        if num_files == 1:
            self.note("both streams go to this file")
        elif num_files > 2:
            self.note(f"this job has {num_files} logs: coach merges two, the streams of one job")
        elif self._is_recorded:
            self.note("this is a recording: it holds the end of each file alone")
        else:
            self._are_both_shown, self._look = not self._are_both_shown, None
            self.refresh_all()

    def action_pager(self) -> None:
        file = self._file()
        if file is None:
            self.note("its log is not found yet")
        elif self._is_recorded:
            self.note("this is a recording: the file is not here")
        elif file.problem is not None:
            self.note(file.problem)
        else:
            self.post_message(PagerRequested(file.path))

    def action_log(self, name: str) -> None:
        self._index, self._are_both_shown, self._look = int(name.startswith("stderr")), False, None
        if len(self._told()[0]) == 1:
            self.note("both streams go to this file")
        self.refresh_all()

    def go_back(self) -> bool:
        filter_line = self.query_one(FilterLine)
        if filter_line.display:
            filter_line.close()
        elif self._look is not None and self._progress:
            self._look = None
            self.note("stopped")
            self._show_title()
        elif self._words is not None:
            self._words, self._pager.words, self._pager.focus_offset = None, "", None
            self._pager.redraw()
        else:
            return False
        return True


def _not_found(look: LogLook, label: KeyLabel) -> str:
    what = "no error" if look.words is None else "not found"
    ways = ("previous_error", "next_error") if look.words is None else ("previous", "next")
    if look.is_wrapped or (look.words is not None and not look.is_backwards):
        return f"not found in this log: {look.words}"
    where, way = ("above", "downwards") if look.is_backwards else ("below", "upwards")
    return f"{what} {where} here; {label(ways[look.is_backwards])} looks {way}"


def window_of(tail: LogTail) -> LogWindow:
    """The end of a log as a window, for a log of which only the end is available."""
    count = len(tail.lines)
    return LogWindow(
        tail.file,
        tail.lines,
        tuple(range(count + 1)),
        count,
        tail.first_line if tail.is_counted else None,
        is_binary=tail.is_binary,
    )
