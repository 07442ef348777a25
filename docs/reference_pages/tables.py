"""Pages of the two files that a person writes to launch: a recipe, and the coach.toml of a project."""

from __future__ import annotations

from pathlib import Path

from coach.launch.drill_table import DRILL_KEYS, OPTIONS, TWIN_KEYS
from coach.launch.parameter_table import PARAMETER_KEYS
from coach.launch.project_file import FILES, TRAINING_KEYS
from coach.launch.recipe import data_dir
from coach.launch.recipe_file import MEMORY_KEYS, RECIPE_KEYS, REMEDY_KEYS, SWEEP_KEYS
from coach.model.toml_schema import Schema
from coach.workflows.launching.ladders import LADDER_KEYS, RUNG_KEYS
from reference_pages.markdown import block, code, page, table, text

_RECIPE = """\
A recipe says what to launch and why: one TOML, found in coach's `recipes/`, in the places that
`recipes` of [config.md](config.md) names, or by its path. `coach recipes eject NAME DIR` copies one to
change. A mistake is refused with file, line and key, what is wrong and what would be right."""
_PARAMETERS = """\
What `coach launch RECIPE --set NAME=VALUE` may change. A value beyond a limit is refused, one outside
the usual range is one line of warning in the plan."""
_DRILL = "Only a drill has it. `coach drill` never shows it before an answer."
_PROJECT = f"""\
`coach.toml` names the trainings of a project: a table `[training.NAME]` for each. In `pyproject.toml`
the tables are called `[tool.coach.training.NAME]`. Of {" and ".join(f"`{name}`" for name in FILES)} the
first is taken that has one, in the working directory and above it; a file of another user is not looked
at. `coach init` proposes one, `coach launch NAME` launches a training. What the command line says wins."""
_PROJECT_EXAMPLE = """\
[training.pretrain]
command = "torchrun --standalone --nproc-per-node=4 train.py --config gpt.yaml"
key = "6"
gpus = 4
time = "12:00:00"
watch = ["GPU005"]

[training.finetune]
script = "finetune.py"
arguments = "--lr 1e-4"
gpus = 1
"""


def recipe_page() -> str:
    """docs/reference/recipe.md."""
    example = Path(data_dir() / "recipes" / "sweep_batch.toml").read_text(encoding="utf-8")
    options = [(code(name), text(kind.takes)) for name, (_, kind) in OPTIONS.items()]
    return page(
        "A recipe",
        _RECIPE,
        block(example, "toml"),
        "## At the top of the file",
        _keys(RECIPE_KEYS),
        "## [parameters.NAME]",
        _PARAMETERS,
        _keys(PARAMETER_KEYS),
        "## [sweep]",
        _keys(SWEEP_KEYS),
        "## [memory]",
        "Resident memory, from which a plan computes `--mem`; `benchmarks/host_memory.py` measures it.",
        _keys(MEMORY_KEYS),
        "## [remedies]",
        "A change is another recipe alone, or values of parameters.",
        _keys(REMEDY_KEYS),
        "## [drill]",
        _DRILL,
        _keys(DRILL_KEYS),
        "### [drill.twin]",
        _keys(TWIN_KEYS),
        "### Options of a drill and of its twin",
        table(("key", "value"), options),
        "## A ladder",
        "A TOML of its own, in the folder `ladders` beside the recipes: [how to](../how-to/ladder.md).",
        _keys(LADDER_KEYS),
        "### [rungs.NAME]",
        _keys(RUNG_KEYS),
    )


def project_page() -> str:
    """docs/reference/coach-toml.md."""
    return page(
        "coach.toml",
        _PROJECT,
        block(_PROJECT_EXAMPLE, "toml"),
        "## [training.NAME]",
        _keys(TRAINING_KEYS),
    )


def project_example() -> str:
    """The file that the page shows."""
    return _PROJECT_EXAMPLE


def _keys(keys: Schema) -> str:
    rows = [
        (code(name), text(key.takes), text(key.says) + (" **Needed.**" if key.is_needed else ""))
        for name, key in keys.items()
    ]
    return table(("key", "value", "means"), rows)
