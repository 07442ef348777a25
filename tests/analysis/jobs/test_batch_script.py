"""Another user's batch script: its options are read and changed in the words of its framework, and its other
lines stay unchanged."""

from __future__ import annotations

from difflib import ndiff
from typing import Any

import pytest

from coach.analysis.jobs.batch_script import change_script, read_script

HALVED = {"batch_size": 16, "gradient_accumulation": 2}
HUGGING_FACE = """#!/bin/bash
#SBATCH --mem=4G -t 10:00
# python run_clm.py --per_device_train_batch_size 1
srun python run_clm.py --per_device_train_batch_size 32 \\
    --fp16 --dataloader_num_workers=2
"""
LIGHTNING_CLI = """#!/bin/bash
srun python main.py fit --trainer.precision=16-mixed --data.batch_size=32
"""
IN_CODE = """#!/bin/bash
BATCH=32
module load lightning
srun python train.py --batch-size "$BATCH"
"""
DEEPSPEED = """#!/bin/bash
deepspeed --num_gpus 2 train.py --deepspeed_config ds.json
"""
CONFIG = '{"train_micro_batch_size_per_gpu": 32,\n "gradient_accumulation_steps": 1}\n'


def changed(texts: tuple[str, ...], changes: dict[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    after, unsaid = change_script(read_script(texts), changes)
    lines = [ndiff(old.splitlines(), new.splitlines()) for old, new in zip(texts, after, strict=True)]
    return [line for part in lines for line in part if line[0] in "+-"], unsaid


@pytest.mark.parametrize(
    ("texts", "framework", "lines", "unsaid"),
    [
        (
            (HUGGING_FACE,),
            "Hugging Face Trainer",
            [
                "- srun python run_clm.py --per_device_train_batch_size 32 \\",
                (
                    "+ srun python run_clm.py --per_device_train_batch_size 16 --gradient_accumulation_steps "
                    "2 \\"
                ),
            ],
            (),
        ),
        (
            (LIGHTNING_CLI,),
            "Lightning",
            [
                "- srun python main.py fit --trainer.precision=16-mixed --data.batch_size=32",
                "+ srun python main.py fit --trainer.precision=16-mixed --data.batch_size=16"
                " --trainer.accumulate_grad_batches=2",
            ],
            (),
        ),
        ((IN_CODE,), "Lightning", ["- BATCH=32", "+ BATCH=16"], ("gradient_accumulation",)),
        (
            (DEEPSPEED, CONFIG),
            "DeepSpeed",
            [
                '- {"train_micro_batch_size_per_gpu": 32,',
                '+ {"train_micro_batch_size_per_gpu": 16,',
                '-  "gradient_accumulation_steps": 1}',
                '+  "gradient_accumulation_steps": 2}',
            ],
            (),
        ),
    ],
)
def test_the_micro_batch_is_halved_in_the_words_of_the_framework(
    texts: tuple[str, ...], framework: str, lines: list[str], unsaid: tuple[str, ...]
) -> None:
    script = read_script(texts)
    assert script.framework.name == framework
    assert (script.parameters["batch_size"], script.parameters["gradient_accumulation"]) == (32, 1)
    found, left = changed(texts, HALVED)
    assert (sorted(found), left) == (sorted(lines), unsaid)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"mem": "6G"}, ["- #SBATCH --mem=4G -t 10:00", "+ #SBATCH --mem=6G -t 10:00"]),
        ({"time": "00:20:00"}, ["- #SBATCH --mem=4G -t 10:00", "+ #SBATCH --mem=4G -t 00:20:00"]),
        ({"exclude": "node[3-4]"}, ["+ #SBATCH --exclude=node[3-4]"]),
        (
            {"signal": "USR1@300", "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
            ["+ #SBATCH --signal=USR1@300", "+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
        ),
        (
            {"num_workers": 4},
            ["-     --fp16 --dataloader_num_workers=2", "+     --fp16 --dataloader_num_workers=4"],
        ),
        (
            {"precision": "bf16"},
            ["-     --fp16 --dataloader_num_workers=2", "+     --bf16 --dataloader_num_workers=2"],
        ),
    ],
)
def test_options_of_slurm_and_of_the_program_are_changed_in_place_or_added(
    changes: dict[str, Any], lines: list[str]
) -> None:
    found, unsaid = changed((HUGGING_FACE,), changes)
    assert (found, unsaid) == (lines, ())


def test_memory_per_cpu_gives_way_because_slurm_takes_only_one_of_them() -> None:
    found, _ = changed(("#!/bin/bash\n#SBATCH --mem-per-cpu=2G\ntrue\n",), {"mem": "6G"})
    assert found == ["- #SBATCH --mem-per-cpu=2G", "+ #SBATCH --mem=6G"]


@pytest.mark.parametrize(
    ("script", "new"),
    [
        ("#SBATCH -n 4 --mem-per-gpu=4G -t 10\nx\n", "#SBATCH -n 4 --mem=12G -t 10\nx\n"),
        (
            "#SBATCH -n 4\nx\n#SBATCH --mem-per-cpu=4G\n",
            "#SBATCH -n 4\n#SBATCH --mem=12G\nx\n#SBATCH --mem-per-cpu=4G\n",
        ),
    ],
    ids=["beside other options", "below the first command, where Slurm reads none"],
)
def test_memory_per_cpu_is_found_wherever_slurm_reads_it_and_nowhere_else(script: str, new: str) -> None:
    (text,), unsaid = change_script(read_script((script,)), {"mem": "12G"})
    assert (text, unsaid) == (new, ())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mem": "12G"}, "#SBATCH --mem=12G\n"),
        ({"exclude": "node3"}, "#SBATCH --exclude=node3\n"),
    ],
)
def test_an_option_in_the_remark_of_a_line_is_no_option(changes: dict[str, str], line: str) -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=1  # was --mem=16G or --mem-per-cpu=4G, and -x node1\ntrue\n"
    read = read_script([script])
    assert dict(read.asked) == {}
    (text,), _ = change_script(read, changes)
    assert text == script.replace("true\n", f"{line}true\n")


def test_the_precision_of_an_evaluation_is_not_that_of_the_training() -> None:
    script = "srun python run_clm.py --per_device_train_batch_size 8 --fp16-full-eval True\n"
    assert read_script([script]).parameters["precision"] == "fp32"


def test_a_setting_of_the_allocator_stands_beside_those_that_are_there() -> None:
    script = "#!/bin/bash\nexport PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\npython train.py\n"
    after, _ = change_script(
        read_script([script]), {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
    )
    assert "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True\n" in after[0]


def test_a_variable_with_a_remark_behind_it_is_changed_at_its_place() -> None:
    script = "#!/bin/bash\nexport OMP_NUM_THREADS=1  # as the site advises\npython train.py\n"
    (text,), unsaid = change_script(read_script([script]), {"env": {"OMP_NUM_THREADS": "4"}})
    assert (text, unsaid) == (script.replace("=1", "=4"), ())


@pytest.mark.parametrize(
    "line",
    [
        "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\npython train.py\n",
        "OMP_NUM_THREADS=1 srun python train.py\n",
        "export A=1 OMP_NUM_THREADS=1\npython train.py\n",
        "OMP_NUM_THREADS=1\nsrun env OMP_NUM_THREADS=2 python train.py\n",
    ],
)
def test_a_variable_that_the_script_sets_later_has_no_place(line: str) -> None:
    script = f"#!/bin/bash\n{line}"
    changes = {"env": {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "INFO"}}
    assert change_script(read_script([script]), changes) == ((script,), ("env",))


def test_a_word_about_a_variable_is_no_place_that_sets_it() -> None:
    script = "#!/bin/bash\n# OMP_NUM_THREADS=1\necho OMP_NUM_THREADS=$OMP_NUM_THREADS\npython train.py\n"
    (text,), unsaid = change_script(read_script([script]), {"env": {"OMP_NUM_THREADS": "4"}})
    assert unsaid == ()
    assert "\nexport OMP_NUM_THREADS=4\n" in text


@pytest.mark.parametrize(
    "script",
    [
        "python a.py --batch_size 32\npython b.py --batch_size 64\n",
        "BS=32\nBS=64\npython a.py --batch_size $BS\n",
        "BS=32\nBS=64\npython a.py --batch_size $BS\npython b.py --batch_size 32\n",
        "python a.py --batch_size ${1:-16}\npython b.py --batch_size 32\n",
        "python a.py --batch_size ${1:-32}\n",
        "python a.py --batch_size $(cat size)\n",
        "# python a.py --batch_size 32\npython a.py  # --batch_size 32\n",
        "python a.py --batch_sizes 32 --my.batch_size 3 --eval--batch_size 3\n",
    ],
)
def test_an_ambiguous_option_is_neither_read_nor_changed(script: str) -> None:
    read = read_script([script])
    assert "batch_size" not in read.parameters
    assert change_script(read, {"batch_size": 1}) == ((script,), ("batch_size",))


def test_an_option_of_the_header_is_not_looked_for_behind_the_first_command() -> None:
    script = "#!/bin/bash\necho\n#SBATCH --mem=1G\n"
    assert read_script([script]).asked == {}
    assert change_script(read_script([script]), {"mem": "2G"})[0] == (
        "#!/bin/bash\n#SBATCH --mem=2G\necho\n#SBATCH --mem=1G\n",
    )
