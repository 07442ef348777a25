"""Check a config file together with all that it names: files of rules, recipes, folders, sbatch options.

`coach.config` reads the file alone. A wrong name in it would stop a user later, at another place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coach.config import Settings
from coach.config.check import FileReport, check_file, files_in_force
from coach.config.file import ConfigFile, Setting
from coach.launch.plan_checks import check_sbatch_option
from coach.launch.recipe import find_recipes, get_recipe
from coach.launch.spelling import format_time, parse_time
from coach.model.errors import UserError
from coach.model.judging.doctor_report import WRONG, Check
from coach.sources.runs.cohort_directory import expected_names
from coach.workflows.doctor.course import course_probes
from coach.workflows.doctor.probes import Probe
from coach.workflows.judging import rule_files

ROOTS = "roots"
_SBATCH = "launch.sbatch."


def check_whole(path: Path, env: Mapping[str, str]) -> FileReport:
    """Check one file, and what it names. Raises UserError if it does not exist."""
    return check_file(path, env, wrong_names)


def config_probes(settings: Settings, env: Mapping[str, str] | None) -> dict[tuple[str, str], Probe]:
    """The probes of what the config files in force name. `env` None: a file is broken, which is reported
    elsewhere."""
    probes = course_probes(settings, ROOTS)
    if env is not None:
        probes["config", "names"] = lambda: check_in_force(env)
    return probes


def check_in_force(env: Mapping[str, str]) -> list[Check]:
    """A check for each config file in force in which a name is wrong. The file itself can be read."""
    checks = []
    for path in files_in_force(env):
        problems = check_whole(path, env).problems
        if problems:
            first, num_more = problems[0], len(problems) - 1
            place = f"{first.file}:{first.line}: " if first.line is not None else ""
            more = f"; {num_more} more" if num_more else ""
            because, todo = f"{place}{first.words}{more}", f"coach config --check {path}"
            value = "what a file names is wrong"
            checks.append(Check("config", "names", WRONG, value, because, todo))
    return checks


def wrong_names(file: ConfigFile) -> Iterator[UserError]:
    """One error for each wrong name, and for each default of a launch that the file's own limits refuse."""
    for key, setting in file.values.items():
        try:
            _check(key, setting.value, file)
            if key == "rules.files":
                for words in rule_files.wrong_rows(setting.value):
                    yield _placed(UserError(words, "correct the row, or its example"), key, setting)
        except UserError as error:
            yield _placed(error, key, setting)
    yield from _beyond_limits(file)


def _placed(error: UserError, key: str, setting: Setting) -> UserError:
    if error.message.startswith(f"{setting.origin}:"):
        return error
    return UserError(f"{setting.origin}: {key}: {error.message}", error.hint)


def _check(key: str, value: Any, file: ConfigFile) -> None:
    """Raise UserError if what the value names is wrong."""
    if key == "recipes":
        _check_folders(value)
    elif key.removeprefix("keys.").isdecimal():
        _check_recipe(value, file)
    elif key.startswith(_SBATCH):
        check_sbatch_option(key.removeprefix(_SBATCH), str(value))
    elif key == "cohort.roster":
        expected_names(value, None)
    elif key == "cohort.group":
        expected_names(None, value)


def _check_folders(paths: Iterable[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")


def _check_recipe(name: str, file: ConfigFile) -> None:
    folders = file.values.get("recipes")
    if folders is not None and name in {recipe.name for recipe in find_recipes(more=folders.value)[0]}:
        return
    try:
        get_recipe(name)
    except UserError as error:
        is_near = (error.hint or "").startswith("did you mean")
        raise UserError(error.message, error.hint if is_near else "`coach recipes` lists them") from None


def _beyond_limits(file: ConfigFile) -> Iterator[UserError]:
    limit, setting = file.values.get("limits.max_time"), file.values.get("launch.time")
    if limit is not None and setting is not None and parse_time(setting.value, "launch.time") > limit.value:
        yield UserError(
            f"{setting.origin}: launch.time: {setting.value} is longer than limits.max_time, "
            f"{format_time(limit.value)} ({limit.origin})",
            "no launch without its own --time would be allowed",
        )
    most, gpus = file.values.get("limits.max_gpus"), file.values.get("launch.gpus")
    if most is not None and gpus is not None and gpus.value > most.value:
        yield UserError(
            f"{gpus.origin}: launch.gpus: {gpus.value} is more than limits.max_gpus, {most.value} "
            f"({most.origin})",
            "no launch without its own --gpus would be allowed",
        )
