"""The config file: each mistake is named with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach import config
from coach.model.errors import UserError
from coach.sources.slurm.conf_file import keep_message_timeout


def load(tmp_path: Path, text: str) -> config.Settings:
    (tmp_path / "config.toml").write_text(text)
    return config.load({"COACH_HOME": str(tmp_path)})


def test_without_a_file_everything_lies_under_coach_home(tmp_path: Path) -> None:
    settings = config.load({"COACH_HOME": str(tmp_path)})
    assert settings.runs_root == tmp_path / "runs"
    assert settings.cache_dir == tmp_path / "cache"
    assert settings.launch.backend == "auto"


def test_launch_defaults_are_read_by_their_command_line_names(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        '[launch]\nnodes = 2\ngpus = 0\ntime = "10:00"\npython = "/opt/env/bin/python"\n'
        'setup = ["module load cuda/12.4"]\nsbatch = {comment = "hi"}\n[rules]\nmute = '
        '["GPU003"]\n[rules.GPU005]\nwarning_share = 0.2\n',
    )
    assert (settings.launch.num_nodes, settings.launch.gpus_per_node) == (2, 0)
    assert settings.launch.setup == ("module load cuda/12.4",)
    assert settings.launch.sbatch == {"comment": "hi"}
    assert settings.muted_rules == {"GPU003"}
    assert settings.thresholds["GPU005"]["warning_share"] == 0.2
    assert settings.origins["launch.time"].endswith("config.toml:4")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("runs_root = 3", 1, "runs_root = 3: expected a path from the root"),
        ("[launch]\n\nnodes = 'two'", 3, "launch.nodes = 'two': expected a whole number"),
        ("[launch]\nnodes = true", 2, "expected a whole number"),
        ("[launch]\nacount = 'x'", 2, "unknown key launch.acount"),
        ("[telemetry]\nssh = true", 1, "the key telemetry was removed"),
        ("[idle_gpus]\ncommand = 'x'", 1, "the key idle_gpus was removed"),
        ("[launch]\nbackend = 'pbs'", 2, "expected one of auto, slurm, local"),
        ("[poll]\njobs_interval_s = 0.1", 2, "at least 2"),
        ("[poll]\njobs_interval_s = nan", 2, "at least 2"),
        ("[poll]\nnodes_interval_s = inf", 2, "at least 5"),
        ("[poll]\nidle_minutes = 0", 2, "from 1 to 10080"),
        ("[slurm]\ntimeout_s = 0", 2, "expected seconds, from 1 to 600"),
        ("[slurm]\nsbatch_timeout_s = '1 min'", 2, "expected seconds, from 1 to 600"),
        ("readonly = 'yes'", 1, "expected true or false"),
        ('[notify]\ncommand = "tell \'me"', 2, "not a command: no closing quotation"),
        ("[notify]\ncommand = ' '", 2, "expected a program and its arguments"),
        ("[launch]\nsetup = 'module load x'", 2, "expected a list"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert f"config.toml:{line}: " in caught.value.message
    assert words in caught.value.message


def test_the_command_for_notices_is_taken_apart_without_a_shell(tmp_path: Path) -> None:
    settings = load(tmp_path, "[notify]\ncommand = \"mail -s 'GPUs idle' $USER; rm x\"\n")
    assert settings.notices.command == ("mail", "-s", "GPUs idle", "$USER;", "rm", "x")
    assert load(tmp_path, "").notices.command == ()
    site = tmp_path / "site.toml"
    site.write_text('[locked]\n"notify.command" = "ask us first"\n')
    (tmp_path / "config.toml").write_text("[notify]\ncommand = 'scancel'\n")
    held = config.load({"COACH_HOME": str(tmp_path), "COACH_SITE": str(site)})
    assert held.notices.command == ()
    assert "ask us first" in held.notes[0]


def test_an_unknown_key_comes_with_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, "[launch]\nacount = 'x'")
    assert caught.value.hint == "did you mean launch.account?"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[Launch]\npartition = 'gpu'", "did you mean launch?"),
        ("[notify]\ninterval_s = 1", "known keys: notify.ways, notify.command"),
        ("[keys]\nfinds = 'x'", "did you mean keys.find?"),
    ],
)
def test_the_table_s_name_alone_makes_no_key_the_nearest(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert caught.value.hint == hint


def test_an_empty_text_is_not_called_no_string(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a string that is not empty"):
        load(tmp_path, "[launch]\npartition = ''")


def test_malformed_toml_and_binary_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.toml:1: not valid TOML: "):
        load(tmp_path, "launch = [")
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8 text"):
        config.load({"COACH_HOME": str(tmp_path)})


def test_recipes_of_the_user_s_own_and_the_keys_that_launch_them(tmp_path: Path) -> None:
    settings = load(
        tmp_path, 'recipes = ["/home/ada/my-ddp"]\n[keys]\n6 = "compile"\n9 = "/home/ada/my-ddp"\n'
    )
    assert settings.recipe_paths == (Path("/home/ada/my-ddp"),)
    assert settings.recipe_keys == {"6": "compile", "9": "/home/ada/my-ddp"}
    assert settings.origins["keys.6"].endswith("config.toml:3")
    with pytest.raises(UserError, match=r"config.toml:2: unknown key keys.1"):
        load(tmp_path, '[keys]\n1 = "ddp"\n')


@pytest.fixture
def no_slurm_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coach.sources.slurm.conf_file._FILES", ())


@pytest.mark.usefixtures("no_slurm_conf")
def test_slurm_has_as_long_to_answer_as_slurm_conf_lets_its_clients_wait(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=tiger\nMessageTimeout=100\n")
    env = {"COACH_HOME": str(tmp_path), "SLURM_CONF": str(conf)}
    settings = config.load(env)
    assert (settings.slurm_timeout_s, settings.sbatch_timeout_s) == (102.0, 204.0)
    assert settings.origins["slurm.timeout_s"] == f"{conf}: MessageTimeout"
    (tmp_path / "config.toml").write_text("[slurm]\ntimeout_s = 30\nsbatch_timeout_s = 45\n")
    settings = config.load(env)
    assert (settings.slurm_timeout_s, settings.sbatch_timeout_s) == (30.0, 45.0)
    settings = config.load({**env, "COACH_SLURM_TIMEOUT_S": "20"})
    assert settings.slurm_timeout_s == 20.0


@pytest.mark.usefixtures("no_slurm_conf")
def test_without_slurm_conf_slurm_has_as_long_as_the_controller_said_last_else_12_s(tmp_path: Path) -> None:
    env = {"COACH_HOME": str(tmp_path), "SLURM_CLUSTER_NAME": "tiger"}
    assert (config.load(env).slurm_timeout_s, config.load(env).sbatch_timeout_s) == (12.0, 60.0)
    keep_message_timeout(tmp_path / "cache", "lion", 50.0)
    assert config.load(env).slurm_timeout_s == 12.0
    keep_message_timeout(tmp_path / "cache", "tiger", 20.0)
    assert config.load(env).slurm_timeout_s == 22.0
    assert config.load({**env, "SLURM_CLUSTER_NAME": "lion"}).slurm_timeout_s == 52.0
