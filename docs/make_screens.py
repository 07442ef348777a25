"""Pictures of the screens: SVG files, and PNG files where cairosvg is installed.

    python docs/make_screens.py DIRECTORY                    # of the recording that comes with coach
    python docs/make_screens.py DIRECTORY --live             # of the cluster or machine that coach finds here
    python docs/make_screens.py DIRECTORY --size 80x24 --size 120x36

    python docs/make_screens.py docs/screens --size 80x24 --only finding     # the picture in README.md

Each picture is of the real app: keys are pressed and the screen is taken as Textual draws it. `--live` opens
coach read-only, so that no key can launch or cancel.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import re
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from textual.pilot import Pilot

from coach.config.load import load
from coach.tui.app import CoachApp
from coach.tui.arrangement import put_keys_first
from coach.tui.mode import Mode
from coach.tui.wiring import Opening, demo_recording_path, open_live, open_recorded

SIZES = ("80x24", "120x36")
SETTLE_S = 3.0
"""After a key: verdicts of jobs are read in threads, and the picture is to show them."""
FIRST_S = 12.0
"""Before the first picture: the queue, the nodes and the verdicts of failed jobs have come."""

KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cluster", ()),
    ("job", ("enter",)),
    ("log", ("l",)),
    ("findings", ("escape", "escape", "f")),
    ("finding", ("enter",)),
    ("history", ("escape", "escape", "H")),
    ("where", ("escape", "W")),
    ("runs", ("escape", "r")),
    ("new-launch", ("escape", "plus")),
    ("recipes", ("escape", "R")),
    ("help", ("escape", "question_mark")),
)
"""The name of a picture, and the keys that lead from the picture before to it."""


def size_of(text: str) -> tuple[int, int]:
    """`120x36` as columns and rows. Raises ArgumentTypeError for another text."""
    match = re.fullmatch(r"(\d{2,3})x(\d{2,3})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write COLUMNSxROWS, as 80x24")
    return int(match[1]), int(match[2])


def opening_of(is_live: bool) -> Opening:
    """What the app is opened with: this place, read-only, or the recording that comes with coach."""
    settings = load(os.environ)
    if is_live:
        return open_live(settings, "auto", True)
    return open_recorded(settings, demo_recording_path(), Mode.DEMO)


def write(app: CoachApp, file: Path) -> Path:
    """Write what is on the screen; the file that was written, PNG where cairosvg is installed."""
    svg = app.export_screenshot(title=file.stem)
    file.with_suffix(".svg").write_text(svg, encoding="utf-8")
    if importlib.util.find_spec("cairosvg") is None:
        return file.with_suffix(".svg")
    # The font that the picture names is on the network; a converter takes the machine's own instead.
    local = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    local = local.replace("Fira Code", "DejaVu Sans Mono")
    import_module("cairosvg").svg2png(bytestring=local.encode(), write_to=str(file.with_suffix(".png")))
    return file.with_suffix(".png")


async def settled(pilot: Pilot[None], seconds: float) -> None:
    """Let the app work for this long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        await pilot.pause(0.1)


async def take(directory: Path, size: tuple[int, int], is_live: bool, names: Sequence[str]) -> None:
    """Open coach in this size, press the keys of `KEYS` and write the pictures of these names."""
    app = CoachApp(opening_of(is_live))
    put_keys_first()
    async with app.run_test(size=size) as pilot:
        await settled(pilot, FIRST_S)
        for name, keys in KEYS:
            await pilot.press(*keys)
            if keys:
                await settled(pilot, SETTLE_S)
            if not names or name in names:
                print(write(app, directory / f"{name}-{size[0]}x{size[1]}"))  # noqa: T201 (its output)
        app.workers.cancel_all()


def main() -> int:
    """Write the pictures and print their names."""
    parser = argparse.ArgumentParser(description="Pictures of the screens.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--live", action="store_true", help="of this cluster or machine, read-only")
    parser.add_argument("--size", type=size_of, action="append", help="COLUMNSxROWS, more than once")
    parser.add_argument("--only", action="append", choices=[name for name, _ in KEYS], default=[])
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    for size in args.size or map(size_of, SIZES):
        asyncio.run(take(args.directory, size, args.live, args.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
