"""Pictures of the screens, as SVG files, and the page that lists them.

    python docs/make_screens.py docs/screens                 # those of the recording, as they lie there
    python docs/make_screens.py docs/screens --slurm         # the plan and the fix, on a real Slurm
    python docs/make_screens.py DIRECTORY --size 80x24 --only log --only compare
    python docs/make_screens.py DIRECTORY --live             # of the cluster or machine that coach finds here
    python docs/make_screens.py DIRECTORY --png              # PNG files beside them, by cairosvg

Each picture shows the real app, which plays the recording that comes with coach: the program presses keys and
draws the app's output. `--live` opens coach read-only, so no key can launch or cancel. The home and coach's
directories are empty and temporary, so no picture shows the name of its maker.

A recording can change nothing, so it has no plan and no fix. `--slurm` boots the tests' own cluster, trains a
run whose loss becomes NaN, and shows these screens. It needs root, Slurm and PyTorch, and takes a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from pathlib import Path

from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.pilot import Pilot

from coach.config.load import load
from coach.tui.app import CoachApp
from coach.tui.arrangement import put_keys_first
from coach.tui.mode import Mode
from coach.tui.wiring import Opening, demo_recording_path, open_live, open_recorded
from coach.workflows.watching.recording import header_of, open_replay
from coach.workflows.watching.story import Story

SIZE = "120x36"
CELL_W, CELL_H, FONT = 7.2, 15, 12
"""Of one character, in the units of the picture."""
STILL_S, LONGEST_S = 1.0, 15.0
"""A picture is taken when the screen has not changed for this long, and at the latest after that long."""
LAST_S = 20.0
"""How far the recording goes on after its last caption has begun."""
FIRST_S = 6.0
"""After a step of the story: what it tells of has been read, measured and judged."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture, and the keys that lead to it from the first screen."""

    name: str
    shows: str
    keys: tuple[str, ...] = ()
    """Textual's names."""
    chapter: int = 6
    """The caption of the demo that is told; the shots stand in this order."""


SHOTS: tuple[Shot, ...] = (
    Shot("first-screen", "the first screen: a cluster at work", chapter=1),
    Shot("pending", "a waiting job, and why it waits", ("G", "enter"), 1),
    Shot("gpus", "the devices of a run (`D`)", ("D",), 3),
    Shot("job-input-bound", "a run that waits for its data, with the cause", ("enter",), 3),
    Shot("finding", "a finding with its proof", ("enter", "enter"), 4),
    Shot("log", "a log (`l`)", ("l",), 4),
    Shot("compare", "two runs: what the fix did (`c`)", ("r", "c")),
    Shot("recipes", "the recipes, with their lessons (`R`)", ("R",)),
)
"""Each begins on the first screen, with the cursor on what the caption is about."""
OF_SLURM: tuple[Shot, ...] = (
    Shot("plan", "the plan of a launch, before it is submitted (`2`)", ("2",)),
    Shot("fix", "what a fix changes, before it is launched (`F`)", ("F",)),
)
"""Screens that no recording can show. No key here confirms."""
SLURM_DIR = Path("/tmp/coach-screens")
"""Where the cluster of `--slurm` lies; its name is in the pictures."""
FAILING = (
    *("--gpus", "0", "--partition", "cpu", "--time", "10:00", "--wait"),
    *("--set", "lr=1e20", "--set", "max_steps=30", "--set", "batch_size=16"),
)
"""The options of the training that has a fix."""


def size_of(text: str) -> tuple[int, int]:
    """`120x36` as columns and rows. Raises ArgumentTypeError for another text."""
    match = re.fullmatch(r"(\d{2,3})x(\d{2,3})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write COLUMNSxROWS, as 80x24")
    return int(match[1]), int(match[2])


class HeldClock:
    """The recording's time: it goes on only when told, so that a slow machine makes the same pictures."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def skip_to(self, seconds: float) -> None:
        self.now_s = max(self.now_s, seconds)


def opening_of(args: argparse.Namespace, clock: HeldClock) -> Opening:
    """The app's source: a cluster of its own; this machine or cluster, read-only; or the recording that comes
    with coach."""
    settings = load(os.environ)
    if args.slurm:
        return replace(open_live(settings, "slurm", False), first_start=None)
    if args.live:
        return open_live(settings, "auto", True)
    recording = demo_recording_path()
    session = open_replay(recording, settings, clock=clock)
    story = Story(header_of(recording).chapters, clock, clock.skip_to)
    return replace(open_recorded(settings, recording, Mode.DEMO), session=session, story=story)


def tell(app: CoachApp, clock: HeldClock) -> None:
    """Let the recording run to the end of the current caption."""
    story = app.context.story
    if story is not None:
        ends = [each.at_s for each in story.chapters][story.index + 1 :]
        clock.skip_to(ends[0] - 1 if ends else story.chapters[-1].at_s + LAST_S)
        app.context.session.refresh_soon()


# The picture


class Drawing:
    """An SVG of a terminal's rows: one element per stretch of a colour, the colours named once."""

    def __init__(self, background: str) -> None:
        self._background = background
        self._classes: dict[str, str] = {}

    def of(self, rows: Sequence[Sequence[Segment]], columns: int) -> str:
        width, height = columns * CELL_W + 2 * FONT, len(rows) * CELL_H + 2 * FONT
        drawn = [part for y, row in enumerate(rows) for part in self._row(row, y)]
        styles = "".join(f".{name}{{{css}}}" for css, name in self._classes.items())
        font = f"text{{font:{FONT}px Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}"
        return "\n".join(
            [
                '<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve"'
                f' viewBox="0 0 {width:g} {height:g}">',
                f"<style>{font}{styles}</style>",
                f'<rect width="100%" height="100%" rx="6" fill="{self._background}"/>',
                f'<g transform="translate({FONT} {FONT})">',
                *drawn,
                "</g></svg>\n",
            ]
        )

    def _row(self, row: Sequence[Segment], y: int) -> Iterator[str]:
        x = 0
        for text, style in joined(row):
            width = Segment(text).cell_length
            colour, background = colours(style, self._background)
            left, wide = f"{x * CELL_W:g}", f"{width * CELL_W:g}"
            if background != self._background:
                fill = self._class(f"fill:{background}")
                yield f'<path class="{fill}" d="M{left} {y * CELL_H}h{wide}v{CELL_H}h-{wide}z"/>'
            if text.strip():
                lead = len(text) - len(text.lstrip())
                inner = text.strip()
                at = f"{(x + lead) * CELL_W:g}"
                length = f"{Segment(inner).cell_length * CELL_W:g}"
                css = f"fill:{colour}" + (";font-weight:bold" if style.bold else "")
                css += ";text-decoration:underline" if style.underline else ""
                name, low = self._class(css), y * CELL_H + FONT - 1
                yield f'<text class="{name}" x="{at}" y="{low}" textLength="{length}">{escape(inner)}</text>'
            x += width

    def _class(self, css: str) -> str:
        return self._classes.setdefault(css, f"c{len(self._classes)}")


def joined(row: Sequence[Segment]) -> Iterator[tuple[str, Style]]:
    """The texts of a row; neighbours of the same style are joined."""
    text, before = "", Style()
    for segment in row:
        style = segment.style or Style()
        if text and _look(style) != _look(before):
            yield text, before
            text = ""
        text, before = text + segment.text, style
    yield text, before


def _look(style: Style) -> tuple[object, ...]:
    return style.color, style.bgcolor, style.bold, style.underline, style.reverse, style.dim


def colours(style: Style, background: str) -> tuple[str, str]:
    """Of the text and behind it."""
    theme = DEFAULT_TERMINAL_THEME
    front = style.color.get_truecolor(theme).hex if style.color else "#c5c8c6"
    back = style.bgcolor.get_truecolor(theme, False).hex if style.bgcolor else background
    return (back, front) if style.reverse else (front, back)


def write(app: CoachApp, file: Path, is_png: bool) -> Path:
    """Write the screen to an SVG file. Returns its path."""
    rows = [list(strip) for strip in app.screen._compositor.render_strips()]
    background = app.screen.background_colors[1].hex
    svg = Drawing(background).of(rows, app.size.width)
    file.with_suffix(".svg").write_text(svg, encoding="utf-8")
    if is_png:
        import_module("cairosvg").svg2png(bytestring=svg.encode(), write_to=str(file.with_suffix(".png")))
    return file.with_suffix(".svg")


# The way to it


def text_of(app: CoachApp) -> str:
    """The text of the screen, without parts that change by themselves."""
    text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
    return re.sub(r"\d", "", text)


async def settled(pilot: Pilot[None], least_s: float = 0.0) -> None:
    """Let the app work until the screen has not changed for a while."""
    start_s = still_s = time.monotonic()
    shown = ""
    while (now_s := time.monotonic()) - start_s < LONGEST_S + least_s:
        await pilot.pause(0.1)
        if (text := text_of(pilot.app)) != shown:  # type: ignore[arg-type]  # it is a CoachApp
            shown, still_s = text, now_s
        if now_s - still_s >= STILL_S and now_s - start_s >= least_s:
            return


async def go_home(pilot: Pilot[None], app: CoachApp) -> None:
    """Back to the first screen, without leaving the demo's story."""
    while len(app.screen_stack) > 2:
        await pilot.press("escape")
        await pilot.pause(0.5)


async def take(directory: Path, size: tuple[int, int], args: argparse.Namespace) -> None:
    """Open coach in this size, go through `SHOTS` and write the pictures that are wanted."""
    clock = HeldClock()
    app = CoachApp(opening_of(args, clock))
    put_keys_first()
    async with app.run_test(size=size) as pilot:
        tell(app, clock)
        await settled(pilot, FIRST_S)
        chapter = 1
        for shot in OF_SLURM if args.slurm else SHOTS:
            while chapter < shot.chapter and not (args.live or args.slurm):
                await pilot.press("full_stop")
                tell(app, clock)
                await settled(pilot, FIRST_S)
                chapter += 1
            if args.only and shot.name not in args.only:
                continue
            for key in shot.keys:
                await pilot.press(key)
                await settled(pilot)
            file = directory / f"{shot.name}-{size[0]}x{size[1]}"
            print(write(app, file, args.png), flush=True)  # noqa: T201 (its output)
            await go_home(pilot, app)
        app.workers.cancel_all()


@contextmanager
def slurm_with_a_failed_run() -> Iterator[None]:
    """A cluster of its own on which a run was trained until its loss was NaN. Its names are those of this
    process afterwards."""
    repository = Path(__file__).parents[1]
    sys.path.insert(0, str(repository))
    slurm = import_module("tests.cluster.slurm")
    cluster = slurm.SlurmCluster(SLURM_DIR)
    SLURM_DIR.mkdir(mode=0o755)
    try:
        cluster.start()
        (SLURM_DIR / "venv").symlink_to(Path(sys.prefix))
        home, path = SLURM_DIR / "ada", f"{SLURM_DIR}/venv/bin:{os.environ['PATH']}"
        home.mkdir()
        os.environ |= {**cluster.env, "HOME": str(home), "COACH_HOME": f"{home}/coach", "PATH": path}
        os.environ["COACH_AS_ROOT"] = "1"
        sys.executable = f"{SLURM_DIR}/venv/bin/python"  # the doctor names it
        os.chdir(home)
        subprocess.run([sys.executable, "-m", "coach", "launch", "baseline", *FAILING], check=False)
        yield
    finally:
        cluster.stop()
        os.chdir(repository)
        shutil.rmtree(SLURM_DIR)


def page(directory: Path) -> str:
    """The page that shows the pictures that lie in the directory."""
    lines = [
        "# Ten screens",
        "",
        "Made by `python docs/make_screens.py docs/screens` from the recording of the demo",
        "(`coach --demo`), whose devices are stand-ins, and with `--slurm` on a Slurm of its own.",
        "`--help` shows other sizes, PNG, and pictures of your cluster, read-only.",
        "",
    ]
    for shot in (*SHOTS, *OF_SLURM):
        name = f"{shot.name}-{SIZE}.svg"
        if (directory / name).exists():
            lines += [f"## {shot.name}: {shot.shows}", "", f"![{shot.name}]({name})", ""]
    return "\n".join(lines)


def main() -> int:
    """Write the pictures and the page, and print the names of the files."""
    parser = argparse.ArgumentParser(description="Pictures of the screens.")
    parser.add_argument("directory", type=Path, help="where they go; README.md there lists them")
    parser.add_argument("--live", action="store_true", help="of this cluster or machine, read-only")
    parser.add_argument("--slurm", action="store_true", help="the plan and the fix, on a Slurm of its own")
    parser.add_argument("--size", type=size_of, action="append", help="COLUMNSxROWS, more than once")
    parser.add_argument(
        "--only", action="append", choices=[shot.name for shot in (*SHOTS, *OF_SLURM)], default=[]
    )
    parser.add_argument("--png", action="store_true", help="also as PNG; needs cairosvg")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    args.directory = args.directory.resolve()
    with tempfile.TemporaryDirectory() as home, slurm_with_a_failed_run() if args.slurm else nullcontext():
        if not args.slurm:
            os.environ |= {"HOME": home, "COACH_HOME": f"{home}/coach"}
        for size in args.size or [size_of(SIZE)]:
            asyncio.run(take(args.directory, size, args))
    (args.directory / "README.md").write_text(page(args.directory), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
