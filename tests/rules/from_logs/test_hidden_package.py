"""A file of the user's that hides a package is named only where the log shows it."""

from __future__ import annotations

import pytest

from tests.rules.examples import diagnose_log

LIBRARY = "/venv/lib/python3.11/site-packages"
HEAD = "Traceback (most recent call last):\n"
TORCH = f"""{HEAD}  File "/home/ada/typo.py", line 1, in <module>
    import torch
  File "{LIBRARY}/torch/cuda/_utils.py", line 9, in <module>
    from cuda.bindings import (
  File "FOLDER/cuda.py", line 2, in <module>
    from model import Net
  File "FOLDER/model.py", line 1, in <module>
    import torch.nn as nn
AttributeError: partially initialized module 'torch' has no attribute 'x' (most likely due to a circular …)
"""
RANDOM = f"""{HEAD}  File "/home/ada/train.py", line 1, in <module>
    import random
  File "/home/ada/random.py", line 3, in <module>
    x = random.randint(0, 3)
"""
OWN = f"""{HEAD}  File "/home/ada/train.py", line 1, in <module>
    import model
  File "/home/ada/model.py", line 1, in <module>
    import layers
  File "/home/ada/layers.py", line 1, in <module>
    model.Net
"""


@pytest.mark.parametrize(
    ("log", "file"),
    [
        (TORCH.replace("FOLDER", "/home/ada"), "/home/ada/cuda.py"),
        (RANDOM + "AttributeError: module 'random' has no attribute 'randint'\n", "/home/ada/random.py"),
        (
            f'{HEAD}  File "/home/ada/train.py", line 4, in <module>\n    random.seed(3)\n'
            "AttributeError: module 'random' has no attribute 'seed' (consider renaming "
            "'/home/ada/random.py' since it has the same name as the standard library module named 'random' "
            "and the import system gives it precedence)\n",
            "/home/ada/random.py",
        ),
    ],
)
def test_a_file_that_hides_a_package_is_to_be_renamed(log: str, file: str) -> None:
    finding = diagnose_log(log).findings[0]
    assert finding.rule == "COD001"
    assert finding.summary.startswith(
        f"{file} hides the package {file.rpartition('/')[2][:-3]}: AttributeError"
    )
    assert finding.fixes[0].title.startswith(f"Rename {file}")


@pytest.mark.parametrize(
    "log",
    [
        TORCH.replace(
            "FOLDER", "/opt/extension"
        ),  # a library from a checkout may be what the other one wants
        OWN
        + "AttributeError: partially initialized module 'model' has no attribute 'Net' (most likely due to a "
        "circular import)\n",
        f'{HEAD}  File "/home/ada/train.py", line 4, in <module>\n    random.sed(3)\n'
        "AttributeError: module 'random' has no attribute 'sed'\n",
    ],
)
def test_no_file_is_accused_without_proof(log: str) -> None:
    finding = diagnose_log(log).findings[0]
    assert "hides" not in finding.summary
    assert "Rename" not in finding.fixes[0].title


def test_an_own_module_that_is_called_like_a_package_is_no_missing_package() -> None:
    log = f"""{HEAD}  File "/home/ada/torch.py", line 1, in <module>
    import torch.nn
ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package
"""
    assert diagnose_log(log).findings[0].fixes[0].title.startswith("Rename /home/ada/torch.py")
