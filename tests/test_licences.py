"""The page of licences names each package of pyproject.toml, and the extra that needs it."""

from __future__ import annotations

import re
import runpy
import tomllib

from tests.installed import REPOSITORY

PAGE = (REPOSITORY / "docs" / "licences.md").read_text()
ROW = re.compile(r"^\| ([\w.-]+) \| ([\w, ]+) \| (\S+) \| (.+) \|$", re.MULTILINE)


def test_the_page_names_every_dependency_of_pyproject_with_the_extras_that_ask_for_it() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    rows = {package: extras.split(", ") for package, extras, _, _ in ROW.findall(PAGE)}
    for extra, lines in {"core": project["dependencies"], **project["optional-dependencies"]}.items():
        for line in lines:
            name = re.split(r"[^\w.-]", line)[0]
            assert extra in rows.get(name, ()), f"{name} of {extra}: run `python docs/make_licences.py`"


def test_every_package_of_the_core_tells_its_licence() -> None:
    core = {package: said for package, extras, _, said in ROW.findall(PAGE) if extras.startswith("core")}
    assert {"textual", "rich"} <= core.keys()
    assert [package for package, said in core.items() if "not read" in said or "names none" in said] == []


def test_the_licences_of_installed_packages_are_those_of_the_page() -> None:
    made = runpy.run_path(str(REPOSITORY / "docs" / "make_licences.py"))
    version, licence = made["licence_of"]("psutil")
    assert f"| psutil | core | {version} | {licence} |" in made["page"]()
    assert made["licence_of"]("no-such-package")[0] == "–"
