"""Damaged batch scripts of other users: their requests, their output files, and their changed text."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from coach.analysis.jobs.batch_script import change_script, read_script
from coach.analysis.spelling.slurm import parse_mem_mib, parse_time
from coach.launch import batch_file
from coach.launch.spelling import parse_signal_lead
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.sources.logs.output_path import expand
from coach.sources.logs.script_outputs import named_outputs
from coach.sources.slurm.conf_file import parse_seconds
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import damaged_text, words

PLAIN = """#!/bin/bash
#SBATCH --job-name=train --nodes=2
#SBATCH --gres=gpu:a100:2 -t 1:00:00
#SBATCH --array=0-7%2
#SBATCH --output=logs/%x-%j.out --mem=8G
module load cuda/12.4
export NCCL_DEBUG=INFO
BS=32
srun --output=logs/%t.log torchrun --nproc_per_node=2 train.py --batch-size $BS --lr 1e-4 > out.txt 2>&1
"""
TRAINER = """#!/bin/bash
#SBATCH -N 1 -c 8 --mem-per-cpu=2G
accelerate launch run_clm.py --per_device_train_batch_size 16 --fp16 --learning_rate=5e-5 \\
  --gradient_accumulation_steps 4 | tee train.log
"""
DEEPSPEED = """#!/bin/bash
deepspeed --num_gpus 4 train.py --deepspeed_config ds.json
"""
JSON = '{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "fp16": {"enabled": true}}'
MANY_DIGITS = "9" * 5000
NAMES = {"j": "17", "A": "17", "a": "3", "x": "train", "u": "alice", "N": "n1", "%": "%"}
CHANGES = {
    "batch_size": 8,
    "gradient_accumulation": 4,
    "mem": "16G",
    "precision": "bf16",
    "env": {"A": "b:c"},
    "lr": 0.1,
}


@fuzzed(
    damaged_text(PLAIN, TRAINER, DEEPSPEED),
    damaged_text(JSON),
    cases=(
        (PLAIN.replace("32", MANY_DIGITS), JSON),
        (PLAIN.replace("gpu:a100:2", f"gpu:{MANY_DIGITS}"), JSON),
        (PLAIN.replace("0-7", f"0-{MANY_DIGITS}"), JSON),
        (PLAIN.replace("32", "²"), JSON),
        ("#SBATCH " + "-" * 5000, JSON),
    ),
)
def test_any_script_is_read_and_changed_only_at_its_own_options(script: str, config: str) -> None:
    read = read_script([script, config])
    repr(read)
    texts, unsaid = change_script(read, CHANGES)
    assert len(texts) == 2
    assert set(unsaid) <= set(CHANGES)
    named_outputs(script, NAMES)
    batch_file.asked(script)
    with contextlib.suppress(UserError):
        batch_file.array_of(script)
    repr(batch_file.resources_of(script, LaunchRequest("x", "slurm")))


@fuzzed(damaged_text(PLAIN, TRAINER), cases=("\0", "#!", "#!/bin/bash\r\n#SBATCH -N1\r\n"))
def test_any_batch_file_can_be_launched_or_is_refused(script: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.sh")
        path.write_bytes(script.encode("utf-8", "surrogateescape"))
        with contextlib.suppress(UserError):
            batch_file.has_options(path)
            batch_file.check(path)


@fuzzed(
    words("logs/%x-%j.out", "%A_%a.log", "a\\%j", "%5j%%", "/o/%u/%N"),
    words("1-02:03:04", "90", "8G", "USR1@300", "B:TERM@60", "100 sec"),
    cases=((f"%{MANY_DIGITS}j", MANY_DIGITS), ("%²j", "²"), ("\0", "B:TERM@" + MANY_DIGITS)),
)
def test_any_pattern_and_any_option_is_a_value_or_refused(pattern: str, option: str) -> None:
    expand(pattern, NAMES, Path("/w"))
    for parse in (parse_time, parse_mem_mib, parse_signal_lead):
        with contextlib.suppress(UserError):
            parse(option, "--x")
    parse_seconds(option)


@fuzzed(st.text(max_size=30))
def test_scripts_of_any_text_are_read(script: str) -> None:
    read_script([script])
    named_outputs(script, NAMES)
