"""Programs of other packages that really failed: launchers of MPI, an offline hub, parsers of arguments."""

from __future__ import annotations

import pytest

from tests.rules.recorded import diagnose

ARGUMENTS = ("COD001", "bad_arguments", "Correct the arguments that the job's script gives the program")
EXECUTABLE = (
    "DAT011",
    "file_not_found",
    "See if the program that the line `Executable:` names is on the nodes",
)
SLOTS = ("JOB011", "mpi_launch", "Start at most as many ranks as the job has slots, or ask for 64")
CODE = ("COD001", "code_error", "Correct the program at the line that is shown")
KILLED = ("MEM008", "host_oom", "Measure how much memory it uses")
CRASHED = ("COD002", "segfault", "Let Python print where it crashes")
OFFLINE = ("ENV021", "no_network", "Fetch it on the login node")
HYDRA = ("COD001", "code_error", "Correct the configuration, or what the command line overrides in it")
ENDED = {
    "openmpi-no-slots": SLOTS,
    "openmpi-4-no-slots": SLOTS,
    "openmpi-no-program": EXECUTABLE,
    "openmpi-4-no-program": EXECUTABLE,
    "openmpi-no-command": EXECUTABLE,
    "openmpi-4-no-command": EXECUTABLE,
    "mpich-no-program": ("DAT011", "file_not_found", "See if ./train_model is on the nodes"),
    "mpich-no-command": ("DAT011", "file_not_found", "See if train_model is on the nodes"),
    "openmpi-rank-raises": CODE,
    "openmpi-4-rank-raises": CODE,
    "mpich-rank-raises": CODE,
    "openmpi-rank-killed": KILLED,
    "openmpi-4-rank-killed": KILLED,
    "mpich-rank-killed": KILLED,
    "openmpi-rank-crashed": CRASHED,
    "openmpi-4-rank-crashed": CRASHED,
    "mpich-rank-crashed": CRASHED,
    "hub-offline": OFFLINE,
    "hub-local-files-only": OFFLINE,
    "hub-unreachable": OFFLINE,
    "hub-snapshot-offline": ("ENV021", "no_network", "Fetch org/model on the login node"),
    "hub-data-offline": ("ENV021", "no_network", "Fetch org/corpus on the login node"),
    "hub-gated": ("ENV011", "hub_access", "Ask for access on the model's page"),
    "hub-no-such-model": ("DAT011", "file_not_found", "See if the hub has it under this name"),
    "argparse-missing": ARGUMENTS,
    "argparse-bad-value": ARGUMENTS,
    "click-no-such-option": ARGUMENTS,
    "click-no-such-command": ARGUMENTS,
    "click-bad-value": ARGUMENTS,
    "fire-no-value": ARGUMENTS,
    "fire-unknown-argument": ARGUMENTS,
    "jsonargparse-unknown-option": ARGUMENTS,
    "jsonargparse-bad-value": ARGUMENTS,
    "hydra-override": HYDRA,
    "hydra-no-config": HYDRA,
    "training-interrupted": ("JOB014", "user_interrupt", "If it was not you, find who interrupted it"),
}
"""Recording → rule, cause and the beginning of the first fix."""


@pytest.mark.parametrize(("name", "code", "cause", "fix"), [(name, *found) for name, found in ENDED.items()])
def test_a_program_of_another_package_gets_its_cause_and_a_fix_that_fits(
    name: str, code: str, cause: str, fix: str
) -> None:
    primary = next(finding for finding in diagnose(f"ended/{name}.log").findings if finding.is_primary)
    assert (primary.rule, primary.cause) == (code, cause)
    assert primary.fixes[0].title.startswith(fix)
