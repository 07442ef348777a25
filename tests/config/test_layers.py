"""The user's settings override the site's, and environment variables override both. A locked key keeps the
site's value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from coach import config
from coach.config.layers import shown_value
from coach.config.load import read_site, site_file_candidates
from coach.model.errors import UserError
from coach.model.launching.site import Advice, Limits, Lock, Switch
from tests.config.site import Place


@pytest.mark.parametrize(
    "value",
    [True, 3, 12.0, 0.15, 1234567.5, 1e-05, "gpu", 'say "hi"', "C:\\jobs", "two\nlines", ["a", 'b"c'], []],
    ids=repr,
)
def test_a_value_is_shown_as_the_config_file_takes_it(value: Any) -> None:
    assert tomllib.loads(f"key = {shown_value(value)}")["key"] == value


def test_each_layer_overrides_the_one_before_and_its_origin_is_kept(place: Place) -> None:
    place.site('[launch]\npartition = "site"\naccount = "site"\nqos = "site"\nmem = "1G"\n')
    place.user('[launch]\npartition = "user"\naccount = "user"\nqos = "user"\n')
    memory = place.user_file.parent / "remembered.toml"
    memory.write_text('["tiger".launch]\naccount = "remembered"\nqos = "remembered"\n')
    place.env["COACH_LAUNCH_QOS"] = "variable"
    settings = place.load()
    launch = settings.launch
    assert (launch.mem, launch.partition, launch.account, launch.qos) == (
        "1G",
        "user",
        "remembered",
        "variable",
    )
    assert [
        settings.origins.get(f"launch.{key}") for key in ("mem", "partition", "account", "qos", "time")
    ] == [
        f"{place.site_file}:5",
        f"{place.user_file}:2",
        f"{memory}:2",
        "environment variable COACH_LAUNCH_QOS",
        None,
    ]


def test_sbatch_s_variables_override_the_site_and_the_user_overrides_them(place: Place) -> None:
    place.site('[launch]\npartition = "site"\naccount = "site"\n')
    place.user('[launch]\nqos = "user"\n')
    place.env |= {"SBATCH_ACCOUNT": "lab", "SBATCH_QOS": "long", "SBATCH_PARTITION": "a,b"}
    settings = place.load()
    assert (settings.launch.account, settings.launch.qos) == ("lab", "user")
    assert settings.origins["launch.account"] == "SBATCH_ACCOUNT"
    assert settings.launch.partition == "a,b"
    place.site('[launch]\naccount = "site"\n[locked]\n"launch.account" = "paid by us"\n')
    assert place.load().launch.account == "site"


def test_launch_gpm_is_true_or_false_in_a_file_or_a_variable(place: Place) -> None:
    assert place.load().launch.has_gpm is None
    place.site("[launch]\ngpm = false\n")
    assert place.load().launch.has_gpm is False
    place.env["COACH_LAUNCH_GPM"] = "yes"
    assert place.load().launch.has_gpm is True
    place.user('[launch]\ngpm = "a lot"\n')
    with pytest.raises(UserError, match=r"launch\.gpm = 'a lot': expected true or false"):
        place.load()


def test_tables_of_the_site_and_the_user_are_merged_key_by_key(place: Place) -> None:
    place.site(
        '[launch.sbatch]\ncomment = "site"\nnice = 1\n[rules.GPU005]\nwarning_share = 0.1\n'
        '[environments.a]\nkind = "none"\n[environments.b]\nkind = "none"\n'
    )
    place.user(
        '[launch.sbatch]\ncomment = "user"\n[rules.NUM001]\nconsecutive = 3\n'
        '[environments.b]\nkind = "conda"\npath = "b"\n'
    )
    settings = place.load()
    assert settings.launch.sbatch == {"comment": "user", "nice": "1"}
    assert settings.thresholds == {"GPU005": {"warning_share": 0.1}, "NUM001": {"consecutive": 3}}
    assert {name: one.kind.value for name, one in settings.environments.items()} == {
        "a": "none",
        "b": "conda",
    }


def test_an_empty_list_of_the_user_takes_the_place_of_the_site_s(place: Place) -> None:
    lists = "recipes = [{}]\n[rules]\nfiles = [{}]\nmute = [{}]\n"
    place.site(lists.format('"/site/recipes"', '"/site/rules.toml"', '"GPU005"'))
    place.user(lists.format("", "", ""))
    settings = place.load()
    assert (settings.recipe_paths, settings.rule_files, settings.muted_rules) == ((), (), frozenset())
    assert settings.origins["rules.files"] == f"{place.user_file}:3"


def test_settings_that_only_a_site_may_set_are_read(place: Place) -> None:
    place.site(
        '[limits]\nmax_gpus = 8\nmax_time = "1-00:00:00"\nmax_running = 3\n[switches]\nlocal_backend = '
        "false\n"
        '[advice.MEM001]\ntext = "ask us"\nurl = "https://hpc.example/oom"\n[advice.NUM001]\ntext = "read '
        'this"\n'
    )
    settings = place.load()
    assert settings.limits == Limits(8, 86400, 3)
    assert settings.switched_off == {Switch.LOCAL_BACKEND}
    assert settings.advice["MEM001"] == Advice("ask us", "https://hpc.example/oom")
    assert settings.advice["NUM001"].url is None


@pytest.mark.parametrize(
    "text",
    [
        "[limits]\nmax_gpus = 99\n",
        "[switches]\nlocal_backend = true\n",
        '[locked]\n"launch.qos" = "mine"\n',
        '[advice.MEM001]\ntext = "hm"\n',
        "[poll]\nmin_jobs_interval_s = 60\n",
        'runs_roots = ["/scratch"]\n',
    ],
)
def test_a_user_cannot_set_a_key_that_only_the_site_may_set(place: Place, text: str) -> None:
    place.user(text)
    with pytest.raises(UserError, match=r"config\.toml:[12]: .*only the site's file may set this"):
        place.load()


def test_a_locked_key_keeps_the_site_s_value_and_a_note_names_each_ignored_file_and_variable(
    place: Place,
) -> None:
    place.site(
        'readonly = true\n[launch]\npartition = "gpu"\naccount = "class"\n[rules]\nmute = ["GPU005"]\n'
        '[rules.NUM001]\nconsecutive = 2\n[locked]\n"launch.partition" = "one for all"\nlaunch.account = '
        '"paid by us"\n'
        'readonly = "an exam is on"\n"rules.mute" = "seen by all"\n"rules.NUM001" = "tuned here"\n'
    )
    place.user(
        'readonly = false\n[launch]\npartition = "gpu2"\n[rules]\nmute = []\n[rules.NUM001]\nconsecutive '
        "= 9\n"
    )
    (place.user_file.parent / "remembered.toml").write_text('["tiger".launch]\naccount = "mine"\n')
    place.env["COACH_LAUNCH_PARTITION"] = "gpu3"
    settings = place.load()
    assert (settings.launch.partition, settings.launch.account) == ("gpu", "class")
    assert settings.is_readonly
    assert settings.muted_rules == {"GPU005"}
    assert settings.thresholds["NUM001"]["consecutive"] == 2
    assert settings.locks["launch.partition"] == Lock("one for all", f"{place.site_file}:10")
    assert settings.notes == (
        (
            f"{place.user_file}:1: readonly = false is ignored: locked by the site "
            f"({place.site_file}:12): an exam is on"
        ),
        (
            f'{place.user_file}:3: launch.partition = "gpu2" is ignored: locked by the site '
            f"({place.site_file}:10): one for all"
        ),
        (
            f"{place.user_file}:5: rules.mute = [] is ignored: locked by the site "
            f"({place.site_file}:13): seen by all"
        ),
        (
            f"{place.user_file}:7: rules.NUM001.consecutive = 9 is ignored: locked by the site "
            f"({place.site_file}:14): tuned here"
        ),
        'environment variable COACH_LAUNCH_PARTITION: launch.partition = "gpu3" is ignored:'
        f" locked by the site ({place.site_file}:10): one for all",
    )


def test_a_locked_key_without_a_value_keeps_its_default_for_all_users(place: Place) -> None:
    place.site('[locked]\n"launch.reservation" = "for the workshop alone"\n')
    place.user('[launch]\nreservation = "workshop"\n')
    settings = place.load()
    assert settings.launch.reservation is None
    assert "for the workshop alone" in settings.notes[0]


def test_a_user_who_sets_the_locked_value_gets_no_note(place: Place) -> None:
    place.site('[launch]\nqos = "gpu"\n[locked]\n"launch.qos" = "so"\n')
    place.user('[launch]\nqos = "gpu"\n')
    assert place.load().notes == ()


def test_a_locked_table_locks_its_keys(place: Place) -> None:
    place.site('[locked]\nlaunch = "nobody chooses"\nenvironments = "ours only"\n')
    place.user('[launch]\nqos = "x"\nsbatch = { nice = "1" }\n[environments.mine]\nkind = "none"\n')
    settings = place.load()
    assert settings.launch == config.LaunchDefaults()
    assert settings.environments == {}
    assert settings.locks["launch.account"].reason == "nobody chooses"
    assert len(settings.notes) == 3


def test_a_locked_environment_cannot_be_redefined_or_get_another_python(place: Place) -> None:
    place.site(
        '[launch]\nenvironment = "pt"\n[environments.pt]\nkind = "conda"\npath = "pt"\n'
        '[locked]\n"launch.environment" = "the supported one"\n'
    )
    place.user('[launch]\npython = "/mine/python"\n[environments.pt]\nkind = "venv"\npath = "/mine"\n')
    settings = place.load()
    assert settings.environments["pt"].path == "pt"
    assert settings.launch.python is None
    assert len(settings.notes) == 2


def test_a_user_cannot_poll_more_often_than_the_site_allows(place: Place) -> None:
    place.site("[poll]\nmin_jobs_interval_s = 30\nmin_nodes_interval_s = 90\n")
    place.user("[poll]\njobs_interval_s = 5\nnodes_interval_s = 100\n")
    settings = place.load()
    assert (settings.jobs_interval_s, settings.nodes_interval_s) == (30, 100)
    assert settings.least_jobs_interval_s == 30
    assert settings.notes == (
        (
            f"{place.user_file}:2: poll.jobs_interval_s = 5 is ignored: the site's minimum is 30 "
            f"({place.site_file}:2)"
        ),
    )
    place.user("")
    assert (place.load().jobs_interval_s, place.load().nodes_interval_s, place.load().notes) == (30, 90, ())


def test_coach_home_overrides_the_site_s_directories_and_the_user_s_file_overrides_both(place: Place) -> None:
    place.site('runs_root = "/site/runs"\ncache_dir = "/site/cache"\n')
    assert place.load().runs_root == Path("/site/runs")
    place.env["COACH_HOME"] = str(place.home)
    assert place.load().runs_root == place.home / "runs"
    (place.home / "config.toml").write_text('runs_root = "~/mine"\n')
    settings = place.load()
    assert (settings.runs_root, settings.cache_dir) == (place.home / "mine", place.home / "cache")
    assert settings.runs_root_candidates == ((place.home / "mine", f"{place.home}/config.toml:1"),)


def test_without_any_config_file_all_settings_are_defaults(place: Place) -> None:
    settings = place.load()
    assert (settings.origins, settings.notes, settings.locks) == ({}, (), {})
    assert settings.runs_root == place.home / "coach/runs"
    assert settings.cluster == "tiger"


def test_the_site_file_is_looked_for_beside_the_installation_and_in_etc(place: Place) -> None:
    beside, etc = site_file_candidates({})
    named = Path("/sw/site.toml")
    assert beside.parts[-3:] == ("etc", "coach", "site.toml")
    assert etc == Path("/etc/coach/site.toml")
    shared = site_file_candidates({}, prefix=Path("/shared/apps/coach/1.2/libexec"))
    assert shared[0] == Path("/shared/apps/coach/etc/coach/site.toml")
    assert site_file_candidates({"COACH_SITE": str(named)}) == (named, beside, etc)


def test_a_site_file_named_by_a_variable_cannot_override_the_locks_of_the_installed_one(place: Place) -> None:
    etc = place.root / "etc/coach/site.toml"
    etc.parent.mkdir(parents=True)
    etc.write_text('[launch]\nqos = "etc"\nmem = "1G"\n[locked]\n"launch.qos" = "for good"\n')
    named = place.site('[launch]\nqos = "named"\naccount = "named"\n')
    candidates = site_file_candidates(place.environment, place.root)
    site = read_site(candidates, place.environment)
    assert {key: said.value for key, said in site.values.items()} == {
        "launch.qos": "etc",
        "launch.account": "named",
    }
    assert site.locks["launch.qos"].origin == f"{etc}:5"
    assert site.notes == [
        f'{named}:2: launch.qos = "named" is ignored: locked by the site ({etc}:5): for good'
    ]


def test_a_missing_site_file_that_was_named_is_reported(place: Place) -> None:
    place.env["COACH_SITE"] = "/no/such/site.toml"
    with pytest.raises(UserError, match=r"/no/such/site\.toml: no such file"):
        place.load()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (
            "COACH_LAUNCH_NODES",
            "two",
            "environment variable COACH_LAUNCH_NODES: launch.nodes = 'two': expected a whole",
        ),
        ("COACH_READONLY", "maybe", "expected true or false"),
        (
            "COACH_LAUNCH_ACOUNT",
            "x",
            "environment variable COACH_LAUNCH_ACOUNT: it sets no key of the config",
        ),
        ("COACH_RUNS_ROOT", "runs", "expected a path from the root"),
        (
            "COACH_RUNS_ROOT",
            "~nobody17/runs",
            "COACH_RUNS_ROOT: runs_root = '~nobody17/runs': ~nobody17 is no",
        ),
        ("COACH_SITE", "~nobody17/site.toml", "variable COACH_SITE = '~nobody17/site.toml': ~nobody17 is no"),
        ("COACH_HOME", "~nobody17", "variable COACH_HOME = '~nobody17': ~nobody17 is no"),
        ("COACH_SITE", "/" + "x" * 300, "cannot be read"),
        ("COACH_NOTIFY_COMMAND", "notify-send", "COACH_NOTIFY_COMMAND: no variable sets notify.command"),
        ("COACH_KEYS_6", "fsdp", "environment variable COACH_KEYS_6: no variable sets keys.6"),
        (
            "COACH_RULES_GPU003_WARNING_PCT",
            "9",
            "environment variable COACH_RULES_GPU003_WARNING_PCT: no variable sets a threshold",
        ),
        ("COACH_RULES_GPU03_X", "9", "COACH_RULES_GPU03_X: it sets no key of the config"),
        ("COACH_LAUNCH_SETUP", "x", "environment variable COACH_LAUNCH_SETUP: no variable sets launch.setup"),
        ("COACH_LIMITS_MAX_GPUS", "9", "only the site's file sets limits.max_gpus"),
    ],
)
def test_an_error_names_the_wrong_variable(place: Place, variable: str, value: str, words: str) -> None:
    place.env[variable] = value
    with pytest.raises(UserError) as caught:
        place.load()
    assert words in caught.value.message


def test_a_variable_s_value_is_parsed_by_the_type_of_its_key(place: Place) -> None:
    place.env |= {
        "COACH_LAUNCH_NODES": "2",
        "COACH_READONLY": "yes",
        "COACH_POLL_JOBS_INTERVAL_S": "12.5",
        "COACH_RUNS_ROOT": "$HOME/r",
        "COACH_LAUNCH_QOS": "",
        "COACH_LAUNCH_SETUP": "",
    }
    settings = place.load()
    assert (settings.launch.num_nodes, settings.is_readonly, settings.jobs_interval_s) == (2, True, 12.5)
    assert (settings.runs_root, settings.launch.qos) == (place.home / "r", None)
