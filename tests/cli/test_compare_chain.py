"""The table of a chain of fixes, and the comparison of trainings that coach did not launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coach.analysis.comparing.fix_chain import Link
from coach.cli import compare
from coach.config import Settings
from coach.model.errors import UserError
from coach.sources.io import SystemIo


def test_each_link_names_the_code_of_its_finding_and_a_pending_one_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    links = [
        Link("good", "lr 0.05", "COMPLETED", None, True, None),
        Link("bad", None, "FAILED", None, False, None, found="MEM001"),
        Link("waits", None, "PENDING", None, False, None),
    ]
    compare._print_chain(links)
    good, bad, waits = capsys.readouterr().out.splitlines()[1:]
    assert "no warning" in good
    assert "MEM001" in bad
    assert waits.split() == ["waits", "PENDING", "–", "–", "–"]


def test_two_logs_of_trainings_that_coach_did_not_launch_are_compared_by_their_losses(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    for name, loss in (("high", 4.0), ("low", 2.0)):
        lines = (f"step {step} loss {loss + 0.01 * (step % 7):.3f}\n" for step in range(200))
        (tmp_path / f"{name}.log").write_text("".join(lines))
    (tmp_path / "empty.log").write_text("hello\n")

    def compared(*names: str) -> compare.Comparison:
        high, low = (str(tmp_path / name) for name in names)
        return compare._compare(high, low, settings, SystemIo({}), "local", "ada")

    (loss,) = (row for row in compared("high.log", "low.log").rows if row.quantity == "loss")
    assert (loss.verdict, loss.before, loss.after) == (
        "better",
        pytest.approx(4, abs=0.1),
        pytest.approx(2, abs=0.1),
    )
    with pytest.raises(UserError, match="no loss and no step was found in its logs and metric files"):
        compared("high.log", "empty.log")


def test_two_trainings_are_compared_by_their_findings_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    for name, last in (("broken", "nan"), ("mended", "1.990")):
        lines = [f"step {step} loss {2 - 0.0001 * step:.4f}\n" for step in range(100)]
        lines += [f"step {step} loss {last}\n" for step in range(100, 120)]
        (tmp_path / f"{name}.log").write_text("".join(lines))

    def printed(*names: str) -> tuple[compare.Comparison, str]:
        before, after = (str(tmp_path / f"{name}.log") for name in names)
        made = compare._compare(before, after, settings, SystemIo({}), "local", "ada")
        compare.print_comparison(made)
        return made, capsys.readouterr().out

    made, text = printed("broken", "mended")
    assert compare.comparison_object(made)["findings"] == [
        {"rule": "NUM001", "name": "loss-not-finite", "where": "before"}
    ]
    assert "found before only: NUM001 loss-not-finite" in text
    assert "found after only: NUM001 loss-not-finite" in printed("mended", "broken")[1]
    assert "found in both: NUM001 loss-not-finite" in printed("broken", "broken")[1]
    assert "found in neither run: a warning or worse" in printed("mended", "mended")[1]


def test_a_divergence_that_is_gone_is_better_although_its_noise_is_as_large_as_the_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    losses = {"exploded": [2.3 * 10 ** (n * 0.5) for n in range(200)]}
    losses["mended"] = [0.0029 + 2.3 * 0.9**n for n in range(200)]
    for name, values in losses.items():
        lines = (f"step {step} loss {value:.6g}\n" for step, value in enumerate(values))
        (tmp_path / f"{name}.log").write_text("".join(lines))

    def printed(*names: str) -> tuple[dict[str, object], str]:
        before, after = (str(tmp_path / f"{name}.log") for name in names)
        made = compare._compare(before, after, settings, SystemIo({}), "local", "ada")
        compare.print_comparison(made)
        (loss,) = (each for each in compare.comparison_object(made)["rows"] if each["quantity"] == "loss")
        return dict(loss), capsys.readouterr().out

    loss, text = printed("exploded", "mended")
    assert (loss["verdict"], loss["because"]) == ("better", "NUM006 loss-divergence → no divergence")
    assert "better: NUM006 loss-divergence → no divergence" in text
    assert max(map(len, text.splitlines()[1:])) < 160, "a ratio of a hundred digits"
    loss, text = printed("mended", "exploded")
    assert (loss["verdict"], loss["because"]) == ("worse", "no divergence → NUM006 loss-divergence")
    assert max(map(len, text.splitlines()[1:])) < 160


def test_the_log_of_an_open_drill_reveals_its_fault_to_no_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    run_dir = settings.runs_root / "20261121-142233-typo-4f2a"
    run_dir.mkdir(parents=True)
    steps = "".join(f"step {step} loss nan\n" for step in range(50))
    (run_dir / "stdout.log").write_text(steps)
    record = {
        "run_id": run_dir.name,
        "backend": "local",
        "recipe": "typo",
        "drill": "typo",
        "state": "FAILED",
    }
    (run_dir / "run.json").write_text(json.dumps({"schema": 1, "created_time_s": 1.0, **record}))
    (tmp_path / "other.log").write_text(steps)
    for named in (run_dir, run_dir / "stdout.log"):
        made = compare._compare(
            str(named), str(tmp_path / "other.log"), settings, SystemIo({}), "local", "ada"
        )
        compare.print_comparison(made)
        assert made.findings is None
        assert "found " not in capsys.readouterr().out
