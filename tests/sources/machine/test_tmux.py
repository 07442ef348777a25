"""tmux's paste buffer and its message line."""

from __future__ import annotations

import stat
from pathlib import Path

from coach.sources.machine.tmux import load_tmux_buffer, show_tmux_message


def a_tmux(folder: Path, status: int) -> dict[str, str]:
    """The environment of a terminal in a fake tmux that records its input."""
    program = folder / "tmux"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/arguments\ncat > {folder}/text\nexit {status}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:/usr/bin:/bin", "TMUX": "/tmp/tmux-1000/default,1,0"}


def test_text_goes_into_the_buffer_and_the_clipboard_as_it_is(tmp_path: Path) -> None:
    env = a_tmux(tmp_path, 0)
    assert load_tmux_buffer("## job 17\n$(oops) \u00e9\n", env)
    assert (tmp_path / "arguments").read_text().split() == ["load-buffer", "-w", "-"]
    assert (tmp_path / "text").read_text(encoding="utf-8") == "## job 17\n$(oops) \u00e9\n"


def test_outside_of_tmux_and_where_it_refuses_nothing_is_copied(tmp_path: Path) -> None:
    env = a_tmux(tmp_path, 1)
    assert not load_tmux_buffer("17", env)
    assert not load_tmux_buffer("17", {**env, "TMUX": ""})
    assert not load_tmux_buffer("17", {"PATH": "/nonexistent", "TMUX": "x"})


def test_a_message_of_tmux_is_taken_literally(tmp_path: Path) -> None:
    env = a_tmux(tmp_path, 0)
    assert show_tmux_message("17: #(touch x) 50%H", env)
    assert (tmp_path / "arguments").read_text() == "display-message -- 17: ##(touch x) 50%%H\n"
    assert not show_tmux_message("17", {**env, "TMUX": ""})
