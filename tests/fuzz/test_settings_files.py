"""Files that people write by hand: the config, coach.toml, recipes, drills, wordings, a workshop's plan, the
config files of their programs. Each is read, or refused with an error that names the file."""

from __future__ import annotations

import contextlib
import json
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from coach.config.check import check_file
from coach.config.file import FileKind, read_file
from coach.config.load import load
from coach.config.remembered import read_remembered
from coach.launch.own_arguments import read_options
from coach.launch.own_config import SUFFIXES, read_values
from coach.launch.project_file import read_project
from coach.launch.python_source import imports_of, parse_source
from coach.launch.recipe_file import read_recipe_file
from coach.model.errors import UserError
from coach.model.toml_text import parse_toml
from coach.rules.wordings.rows import parse_file, shipped_files
from coach.workflows.judging import rule_files
from coach.workflows.teaching.workshop_plan import read_workshop_plan
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import all_of, damaged_text, damaged_value, read
from tests.fuzz.toml_text import as_toml

ROOT = Path(__file__).parents[2]
RECIPES = all_of("recipes/*.toml", ROOT) + all_of("recipes/drills/*.toml", ROOT)
WORDINGS = min((file.read_bytes() for file in shipped_files()), key=len)
ENV = {"HOME": "/home/x", "SCRATCH": "/scratch/x"}
MANY_DIGITS = "9" * 5000
HOSTILE = (
    f"a = {MANY_DIGITS}",
    "a = " + "[" * 3000,
    "a = 1979-05-27T00:00:00Z",
    "\ud800",
    "[a]\na = nan\n[a.b]",
    "=",
    "a = 0x" + "f" * 5000,
    f"minutes = 1{'0' * 400}\n[poll]\njobs_interval_s = 1{'0' * 400}",
    f"[thresholds.GPU003]\nusual_pct = 1{'0' * 400}",
    "a." * 3000 + "a = 1",
)
CONFIG = """
runs_root = "/scratch/runs"
[launch]
account = "abc123"
partition = "gpu"
time = "1:00:00"
environment = "pytorch"
setup = ["module load cuda"]
[launch.sbatch]
mail-type = "END"
[rules]
mute = ["GPU005"]
files = ["/x/rules.toml"]
[rules.GPU003]
usual_pct = 30
[environments.pytorch]
kind = "modules"
modules = ["cuda/12.4", "pytorch/2.6"]
torch = "2.6.0"
variables = { A = "b" }
[poll]
jobs_interval_s = 10
[slurm]
timeout_s = 12
[limits]
max_gpus = 8
max_time = "1-00:00:00"
[advice.MEM001]
text = "ask"
url = "https://x"
[locked]
"launch.partition" = "the workshop has this one"
[keys]
quit = "q"
"""
PROJECT = """
[training.pretrain]
command = "torchrun train.py --lr 1e-4 --steps 10"
description = "x"
nodes = 2
gpus = 4
time = "1:00:00"
env = { A = "b" }
sbatch = { mail-type = "END" }
[training.pretrain.parameters]
lr = "lr"
[training.eval]
command = ["python", "eval.py"]
"""
PLAN = """
schema = 1
learners = 40
minutes = 90
max_steps = 20
[launch]
partition = "gpu"
time = "0:10:00"
[recipes.baseline]
minutes = 10
[recipes.ddp]
set = { lr = 0.1 }
nodes = 1
"""


def refused_or_read(read_it: Callable[[Path], object], text: str, name: str) -> None:
    """A file with this text is read, or a UserError names it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            repr(read_it(path))
        except UserError as error:
            assert folder in str(error)  # noqa: PT017 (most are read)


def of(*seeds: str | bytes) -> st.SearchStrategy[str]:
    """Seeds with their characters damaged, or with their values."""
    parsed = [tomllib.loads(seed if isinstance(seed, str) else seed.decode()) for seed in seeds]
    return st.one_of(damaged_text(*seeds), damaged_value(*map(_plain, parsed)).map(as_toml))


def _plain(table: Any) -> Any:
    return json.loads(json.dumps(table, default=str))


@fuzzed(of(CONFIG), cases=HOSTILE)
def test_any_toml_is_tables_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        repr(parse_toml(text))


@fuzzed(of(CONFIG), cases=HOSTILE)
def test_any_config_is_read_or_every_mistake_in_it_is_named(text: str) -> None:
    for kind in FileKind:
        found = read_file(Path("config.toml"), text, kind, ENV)
        repr((found.values, found.locks))
        assert all(str(problem) for problem in found.problems)
    refused_or_read(lambda path: check_file(path, ENV), text, "site.toml")
    refused_or_read(read_remembered, text, "remembered.toml")


@fuzzed(of(CONFIG), cases=HOSTILE)
def test_settings_come_of_any_config_or_a_line_that_says_why_not(text: str) -> None:
    def load_it(path: Path) -> object:
        home = {"COACH_HOME": str(path.parent), "COACH_SITE": str(path), "HOME": str(path.parent)}
        return load(home, lambda root: None)

    refused_or_read(load_it, text, "config.toml")


@fuzzed(of(PROJECT), cases=HOSTILE)
def test_any_project_file_is_read_or_refused(text: str) -> None:
    refused_or_read(read_project, text, "coach.toml")


@fuzzed(of(*RECIPES), cases=HOSTILE)
def test_any_recipe_or_drill_is_read_or_refused(text: str) -> None:
    refused_or_read(lambda path: read_recipe_file(path, ROOT / "trainers"), text, "own.toml")


@fuzzed(of(WORDINGS), cases=HOSTILE)
def test_any_file_of_wordings_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UserError):
        parse_file(text, "rules.toml")
    refused_or_read(rule_files.read_file, text, "rules.toml")


@fuzzed(of(PLAN), cases=HOSTILE)
def test_any_plan_of_a_workshop_is_read_or_refused(text: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        settings = load({"COACH_HOME": home, "HOME": home}, lambda root: None)
        refused_or_read(lambda path: read_workshop_plan(path, "local", settings), text, "day.toml")


YAML = (
    "optim:\n  lr: 1e-4  # rate\n  betas: [0.9]\ndata: &d {batch_size: 32}\nalso: *d\nname: 'x'\nflag: yes\n"
)
TOML = '[optim]\nlr = 1e-4\nname = "x"\n[data]\nbatch_size = 32\n'
JSON = '{"optim": {"lr": 1e-4, "betas": [0.9]}, "batch_size": 32, "name": "x\\u00e9", "flag": true}'


@fuzzed(
    damaged_text(YAML, TOML, JSON),
    st.sampled_from(SUFFIXES),
    cases=(
        *(
            (text, suffix)
            for text in (MANY_DIGITS, f"a: {MANY_DIGITS}", f"a = {MANY_DIGITS}")
            for suffix in SUFFIXES
        ),
        ("a: &a [*a]", ".yaml"),
        ("{" * 300, ".yaml"),
        ("[" * 3000, ".json"),
        ("? ", ".yaml"),
        ("a: !!int x", ".yaml"),
        ("a: 2001-99-99", ".yaml"),
        (": :\n- -", ".yml"),
    ),
)
def test_values_of_any_config_file_are_found_or_it_is_no_config_file(text: str, suffix: str) -> None:
    with contextlib.suppress(ValueError):
        for each in read_values(Path(f"a{suffix}"), text):
            assert 1 <= each.line <= text.count("\n") + 1
            assert each.name


PROGRAM = (ROOT / "tests" / "own_programs" / "programs").glob("*.py")
PROGRAMS = tuple(path.read_bytes() for path in sorted(PROGRAM)) or (read("flight/make_dumps.py"),)
DECLARED = b"""import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3, help="rate")
parser.add_argument("--steps", "-s", type=int, default=10, choices=[10, 20])
parser.add_argument("--amp", action="store_true")
parser.add_argument("data", nargs="*")
"""


@fuzzed(
    damaged_text(DECLARED, *PROGRAMS),
    st.lists(st.text(max_size=12), max_size=4),
    cases=(
        (f"p.add_argument('--a', type=int, default={MANY_DIGITS})", ["train.py", "--a", MANY_DIGITS]),
        ("(" * 3000, ["train.py"]),
        ("\0", ["train.py"]),
        ("p.add_argument('--a', default=" + "-" * 3000 + "1)", ["train.py"]),
        ("p.add_argument('--a', type=float, default=1" + "0" * 400 + ")", ["train.py", "--b=" + "1" * 400]),
    ),
)
def test_options_of_any_program_are_found_or_none_are(source: str, said: list[str]) -> None:
    for option in read_options(("python", "train.py", *said, "--lr", "0.1"), source):
        repr(option)


@fuzzed(
    damaged_text(b"import torch.nn as nn\nfrom data import load\nfrom . import near\n", *PROGRAMS),
    cases=("\0", "(" * 3000, "import a." + "b." * 3000 + "c", "from ...... import a"),
)
def test_the_imports_of_any_program_are_names_or_it_has_a_syntax_error(source: str) -> None:
    with contextlib.suppress(SyntaxError):
        assert all(name.isidentifier() for name in imports_of(parse_source(source).body))
