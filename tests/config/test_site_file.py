"""`coach config --check` names every mistake in a site file with its line and its correction."""

from __future__ import annotations

import pytest

from coach.config.check import check_file, files_in_force
from coach.model.errors import UserError
from tests.config.site import Place

BROKEN = """runs_roots = []
[launch]
acount = "x"
time = "tomorrow"
mem = "lots"
gpu_request = "gpus"
environment = "pytorhc"
nodes = 0
[environments.pytorch]
kind = "modules"
modules = "pytorch/2.6"
[limits]
max_gpu = 4
max_time = 60
[rules]
mute = ["GPU999"]
[rules.NUM001]
consecutve = 3
[advice.MEM01]
text = "ask"
[advice.MEM001]
url = "https://hpc.example"
[switches]
local_backend = "no"
[poll]
min_jobs_interval_s = 0.5
[locked]
"launch.partion" = "typo"
launch.qos = true
"""

EXPECTED = [
    (
        1,
        "runs_roots = []: expected a list of at least one; each: a path from the root: /…, ~/… or "
        "$VARIABLE/…",
        None,
    ),
    (3, "unknown key launch.acount", "did you mean launch.account?"),
    (4, "launch.time = 'tomorrow': not a time limit", "expected for example 30:00, 2:00:00 or 1-12:00:00"),
    (5, "launch.mem = 'lots': not a memory size", "expected for example 500M, 16G or 1T"),
    (6, "launch.gpu_request = 'gpus': expected one of gpus-per-node, gres", None),
    (7, "launch.environment = 'pytorhc': this name is not defined", "did you mean pytorch?"),
    (8, "launch.nodes = 0: expected a whole number, at least 1", None),
    (
        11,
        "environments.pytorch.modules = 'pytorch/2.6': expected a list; each: a module, for example "
        "pytorch/2.6",
        None,
    ),
    (13, "unknown key limits.max_gpu", "did you mean limits.max_gpus?"),
    (14, "limits.max_time = 60: expected a string", None),
    (16, "rules.mute: there is no rule 'GPU999'", None),
    (18, "rules.NUM001.consecutve: NUM001 has no threshold 'consecutve'", "did you mean consecutive?"),
    (19, "advice.MEM01: there is no rule 'MEM01'", "did you mean MEM001?"),
    (21, 'the key advice.MEM001.text is missing: expected text, for example "ask the help desk"', None),
    (24, "switches.local_backend = 'no': expected true or false", None),
    (26, "poll.min_jobs_interval_s = 0.5: at least 2 s, to spare the controller", None),
    (28, "locked: unknown key launch.partion", "did you mean launch.partition?"),
    (29, "locked.launch.qos = true: expected a string", None),
]


def test_every_mistake_in_a_site_file_is_named_with_its_correction(place: Place) -> None:
    report = check_file(place.site(BROKEN), place.environment)
    found = {problem.line: problem for problem in report.problems}
    assert {problem.file for problem in report.problems} == {str(place.site_file)}
    for line, words, hint in EXPECTED:
        assert found[line].words == words
        if hint is not None:
            assert found[line].hint == hint
    assert len(report.problems) == len(EXPECTED)


def test_a_user_sees_only_the_first_mistake_of_a_broken_site_file(place: Place) -> None:
    place.site('[launch]\nacount = "x"\nnodes = 0\n')
    with pytest.raises(UserError) as caught:
        place.load()
    assert caught.value.message == f"{place.site_file}:2: unknown key launch.acount"
    assert (
        caught.value.hint == f"did you mean launch.account?; 1 more: coach config --check {place.site_file}"
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = [", 2, "not valid TOML: "),
        ("a = 1\nb = c\n[d]\n", 2, "not valid TOML: "),
        ("launch = 3\n", 1, "launch = 3: expected a table"),
        ("[rules]\nGPU005 = 3\n", 2, "rules.GPU005 = 3: expected a table"),
        ("[rules.GPU005]\nwarning_share = true\n", 2, "expected a number"),
        ("[launch.sbatch]\nnice = [1]\n", 2, "launch.sbatch.nice = [1]: expected a string"),
        ('[launch]\nsetup = ["a\\nb"]\n', 2, "expected a string without control characters"),
        ('runs_root = "runs"\n', 1, "expected a path from the root"),
        ("wurst = 1\n", 1, "unknown key wurst"),
        ("[switches]\nidle_command = false\n", 2, "the key switches.idle_command was removed"),
        ('[advice.MEM001]\ntext = "x"\nlink = "y"\n', 3, "unknown key advice.MEM001.link"),
        ('[launch]\nenvironment = "vnev=/x"\n', 2, "unknown kind of environment 'vnev'"),
    ],
)
def test_each_mistake_is_reported_with_its_line(place: Place, text: str, line: int, words: str) -> None:
    problem = check_file(place.site(text), place.environment).problems[0]
    assert problem.line == line
    assert words in problem.words


def test_a_valid_site_file_is_confirmed(place: Place) -> None:
    report = check_file(
        place.site('[launch]\nqos = "a"\nenvironment = "none"\n[locked]\n"launch.qos" = "x"\n'),
        place.environment,
    )
    assert (report.problems, report.whose, report.num_keys, report.num_locks) == ((), "site", 2, 1)


def test_a_user_may_choose_an_environment_that_the_site_defines(place: Place) -> None:
    place.site('[environments.pt]\nkind = "none"\n')
    assert check_file(place.user('[launch]\nenvironment = "pt"\n'), place.environment).problems == ()
    wrong = check_file(place.user('[launch]\nenvironment = "tp"\n'), place.environment)
    assert [problem.line for problem in wrong.problems] == [2]


def test_a_key_of_the_site_is_refused_in_a_user_s_file(place: Place) -> None:
    report = check_file(place.user("[limits]\nmax_gpus = 1\n"), place.environment)
    assert (report.whose, report.problems[0].words) == ("user", "limits: only the site's file may set this")


def test_only_existing_config_files_are_in_force(place: Place) -> None:
    assert files_in_force(place.environment) == ()
    site, user = place.site(""), place.user("")
    assert files_in_force(place.environment) == (site, user)
