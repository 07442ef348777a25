"""A trainer is its parent, mostly the baseline, plus one idea: these tests limit the difference, and check
that the idea is in the trainer's own file."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from tests.installed import REPOSITORY

DIFFS = runpy.run_path(str(REPOSITORY / "docs" / "reference_pages" / "diffs.py"))
TRAINERS = REPOSITORY / "trainers"
DERIVED: dict[str, tuple[int, int]] = DIFFS["derived_trainers"]()

BUDGETS = {
    "activation_checkpointing": 6,
    "amp": 16,
    "attention": 69,
    "channels_last": 4,
    "compile": 5,
    "dali": 67,
    "data_parallel": 7,
    "ddp": 40,
    "ddp_amp": 16,
    "deepspeed_zero": 47,
    "fsdp": 49,
    "gpt": 57,
    "gpt_ddp": 37,
    "gpt_fsdp": 65,
    "gpt_tp": 38,
    "gpu_data": 57,
    "horovod_cnn": 70,
    "label_smoothing": 7,
    "mpi_allreduce": 41,
    "profiled": 64,
    "staged": 10,
    "tensor_parallel": 30,
    "tf32": 6,
    "transfer": 15,
}
"""Lines of code added and removed. They only ever sink."""

IDEAS = {
    "activation_checkpointing": ["torch.utils.checkpoint"],
    "amp": ["autocast", "GradScaler"],
    "attention": ["sdpa_kernel"],
    "channels_last": ["channels_last"],
    "comm_bench": ["free_memory", "lstsq"],
    "compile": ["torch.compile"],
    "data_parallel": ["DataParallel"],
    "ddp_buckets": ["register_comm_hook", "register_post_accumulate_grad_hook"],
    "ddp": ["DistributedDataParallel", "DistributedSampler", "set_epoch", "no_sync"],
    "ddp_amp": ["DistributedDataParallel", "autocast", "GradScaler"],
    "deepspeed_zero": ["deepspeed.initialize"],
    "fast": ["autocast", "channels_last", "torch.compile", "fused"],
    "fused_kernel": ["triton.jit", "library.nvrtcCompileProgram"],
    "fsdp": ["fully_shard", "MixedPrecisionPolicy", "to_empty"],
    "gpt": ["torch.compile", "torch.utils.checkpoint"],
    "gpt_ddp": ["DistributedDataParallel", "DistributedSampler", "set_epoch", "no_sync"],
    "gpt_fsdp": ["fully_shard", "MixedPrecisionPolicy", "to_empty"],
    "gpt_tp": ["parallelize_module"],
    "gpu_data": ["cropped_and_mirrored"],
    "label_smoothing": ["label_smoothing"],
    "parallel_3d": ["parallelize_module", "PipelineStage", "init_device_mesh"],
    "pipeline_parallel": ["PipelineStage"],
    "prefetcher": ["wait_stream", "record_stream"],
    "profiled": ["torch.profiler"],
    "ring": ["tensor_split"],
    "tensor_parallel": ["parallelize_module"],
    "tf32": ["fp32_precision"],
    "transfer": ["prepare"],
}
IN_COMMON_TOO = {("set_epoch", "checks.py")}
"""The self-check asks the sampler for the order of the next epoch."""


def names_in(path: Path) -> set[str]:
    """Every name that the code uses, with and without the module or object before it; names in texts and
    comments do not count."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found |= {node.attr, ast.unparse(node)}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.keyword):
            found.add(node.arg or "")
    return found


@pytest.mark.parametrize("name", DERIVED)
def test_a_trainer_is_its_parent_and_one_idea(name: str) -> None:
    lines = sum(DERIVED[name])
    assert name in BUDGETS, f"{name}.py differs from its parent in {lines} lines: give it that budget"
    assert lines <= BUDGETS[name], (
        f"{name}.py differs from its parent in {lines} lines, {BUDGETS[name]} are allowed"
    )


def test_every_budget_belongs_to_a_trainer() -> None:
    assert set(BUDGETS) <= set(DERIVED)


@pytest.mark.parametrize("name", [name for name in IDEAS if (TRAINERS / f"{name}.py").is_file()])
def test_the_idea_stands_in_the_trainer_and_not_in_the_shared_code(name: str) -> None:
    assert set(IDEAS[name]) <= names_in(TRAINERS / f"{name}.py")
    for path in (TRAINERS / "common").glob("*.py"):
        shared = {idea for idea in IDEAS[name] if (idea, path.name) not in IN_COMMON_TOO}
        assert not shared & names_in(path), path.name


def test_layout_comments_and_docstrings_do_not_count(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("def f(x):\n    return x + 1\n")
    other.write_text('"""What."""\n# why\ndef f(\n    x,\n):\n    """How."""\n    return x + 1  # one\n')
    lines = [DIFFS["code_lines"](path) for path in (one, other)]
    assert DIFFS["changed_lines"](*lines) == (0, 0)
    other.write_text("def f(x):\n    y = x + 2\n    return y\n")
    assert DIFFS["changed_lines"](lines[0], DIFFS["code_lines"](other)) == (2, 1)


def test_each_trainer_that_derives_from_another_has_a_page_with_its_diff() -> None:
    pages = DIFFS["diff_pages"]()
    assert pages.keys() == {"README.md", *(f"{name}.md" for name in DERIVED)}
    assert "+++ trainers/gpt_ddp.py" in pages["gpt_ddp.md"]
    assert "[gpt_ddp](gpt_ddp.md)" in pages["README.md"]
