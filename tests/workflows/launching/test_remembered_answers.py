"""Remembered answers: kept by cluster; they override the user's file, and never the site's."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach import config
from coach.model.errors import UserError
from coach.workflows.launching.refusals import remember


def env(home: Path, **more: str) -> dict[str, str]:
    return {"COACH_HOME": str(home), "HOME": str(home), "SLURM_CLUSTER_NAME": "tiger", **more}


def test_an_answer_counts_at_once_and_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[launch]\naccount = "old"\n')
    settings = remember(config.load(env(tmp_path)), "tiger", "launch.account", 'pi"lab')
    assert settings.launch.account == 'pi"lab'
    again = config.load(env(tmp_path))
    assert again.launch.account == 'pi"lab'
    assert again.origins["launch.account"] == f"{tmp_path}/remembered.toml:4"


def test_an_answer_of_one_cluster_is_not_used_for_another(tmp_path: Path) -> None:
    settings = config.load(env(tmp_path))
    remember(settings, "tiger", "launch.account", "pi")
    remember(settings, "tiger", "launch.reservation", "class")
    remember(settings, "lion 2", "launch.account", "other")
    assert config.load(env(tmp_path)).launch.account == "pi"
    elsewhere = config.load(env(tmp_path, SLURM_CLUSTER_NAME="lion 2")).launch
    assert (elsewhere.account, elsewhere.reservation) == ("other", None)


def test_an_answer_whose_line_is_deleted_is_forgotten_alone(tmp_path: Path) -> None:
    settings = config.load(env(tmp_path))
    for key, value in (("launch.account", "pi"), ("launch.qos", "gpu"), ("launch.cpus_per_gpu", 4)):
        remember(settings, "tiger", key, value)
    memory = tmp_path / "remembered.toml"
    lines = memory.read_text().splitlines(keepends=True)
    memory.write_text("".join(line for line in lines if not line.startswith("account")))
    left = config.load(env(tmp_path)).launch
    assert (left.account, left.qos, left.cpus_per_gpu) == (None, "gpu", 4)


def test_a_key_that_the_site_locked_is_not_remembered(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        '[launch]\naccount = "class"\n[locked]\n"launch.account" = "one account for the course"\n'
    )
    settings = config.load(env(tmp_path, COACH_SITE=str(site)))
    assert remember(settings, "tiger", "launch.account", "pi") is settings
    assert not (tmp_path / "remembered.toml").exists()


def test_a_variable_wins_over_a_remembered_answer(tmp_path: Path) -> None:
    settings = config.load(env(tmp_path, COACH_LAUNCH_ACCOUNT="now"))
    assert remember(settings, "tiger", "launch.account", "later").launch.account == "now"
    assert config.load(env(tmp_path, COACH_LAUNCH_ACCOUNT="now")).launch.account == "now"
    assert config.load(env(tmp_path)).launch.account == "later"


@pytest.mark.parametrize("key", ["launch.setup", "runs_root", "launch.acount"])
def test_only_single_values_of_a_launch_are_remembered(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError, match="cannot be remembered"):
        remember(config.load(env(tmp_path)), "tiger", key, "x")


def test_a_damaged_file_of_answers_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "remembered.toml").write_text('["tiger".launch]\naccount = 3\nqos = "gpu"\n')
    settings = config.load(env(tmp_path))
    assert (settings.launch.account, settings.launch.qos) == (None, "gpu")
    assert settings.notes == (
        f"{tmp_path}/remembered.toml:2: launch.account = 3: expected a string; it is ignored",
    )
    (tmp_path / "remembered.toml").write_text("[")
    assert "not valid TOML" in config.load(env(tmp_path)).notes[0]
    remember(settings, "tiger", "launch.account", "pi")
    assert config.load(env(tmp_path)).launch.account == "pi"
