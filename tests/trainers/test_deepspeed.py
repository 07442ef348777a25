from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in
from tests.trainers.test_equivalence import alone

CHECKED = """
import json, sys, tempfile
import torch
from common.deepspeed_start import checked_config, import_deepspeed
from common.distributed import TrainerError
import_deepspeed(torch.device("cpu"))
generated = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}},
    "gradient_clipping": 0.0,
}
said = []
for text in json.load(open(sys.argv[1])):
    file = sys.argv[1] + ".case"
    open(file, "w").write(text)
    try:
        said.append(["taken", checked_config(generated, file)])
    except TrainerError as error:
        said.append(["refused", str(error).removeprefix(file + ": ")])
assert checked_config(generated, None) == generated
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def check(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Any]]:
    """A DeepSpeed configuration as text → the accepted configuration, or the reason of the refusal. One
    process checks all of them."""
    texts = [text for text, _ in REFUSED] + TAKEN
    path = tmp_path_factory.mktemp("deepspeed") / "cases.json"
    path.write_text(json.dumps(texts))
    done = trainer.python(CHECKED, path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return {text: (verdict, value) for text, (verdict, value) in zip(texts, said, strict=True)}


REFUSED = [
    ('{"zero": {"stage": 2}}', "DeepSpeed does not know zero"),
    (
        '{"gradient_cliping": 1.0}',
        "DeepSpeed does not know gradient_cliping (did you mean gradient_clipping?)",
    ),
    ('{"zero_optimization": {"stage": 2, "reduce_bucket_siz": 1}}', "reduce_bucket_siz Extra inputs are not"),
    (
        '{"zero_optimization": {"stage": 2, "offload_optimizer": {"devise": "cpu"}}}',
        "offload_optimizer.devise",
    ),
    ('{"zero_optimization": {"stage": 4}}', "stage Input should be 0, 1, 2, 3"),
    ('{"bf16": {"enable": true}}', "enable Extra inputs are not permitted"),
    (
        '{"data_types": {"grad_acum_dtype": "fp32"}}',
        "data_types.grad_acum_dtype (did you mean grad_accum_dtype?)",
    ),
    (
        '{"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
        "offloading needs stage 1, 2 or 3",
    ),
    ('{"train_micro_batch_size_per_gpu": 8}', "does not agree with --batch_size"),
    ('{"gradient_accumulation_steps": 4}', "does not agree with --gradient_accumulation"),
    ('{"optimizer": {"type": "Adam", "params": {"lr": 1e-3}}}', "does not agree with --optimizer and --lr"),
    ('{"train_batch_size": 100}', "train_batch_size"),
    ("[1]", "expected a JSON object, not a list"),
    ('{"zero_optimization"', "not a readable JSON file"),
]
TAKEN = [
    '{"zero_optimization": {"stage": 3, "overlap_comm": true, "stage3_param_persistence_threshold": 1000}}',
    '{"gradient_clipping": 1.0, "train_micro_batch_size_per_gpu": 16, "steps_per_print": 10}',
    '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    '{"torch_autocast": {"enabled": true, "dtype": "bfloat16"}}',
    (
        '{"flops_profiler": {"enabled": true, "profile_step": 3, "detailed": true}, "wall_clock_breakdown": '
        "true}"
    ),
    '{"activation_checkpointing": {"partition_activations": false, "number_checkpoints": 4}}',
    '{"data_types": {"grad_accum_dtype": "fp32"}, "comms_logger": {"enabled": true, "verbose": false}}',
    (
        '{"tensorboard": {"enabled": false}, "aio": {"block_size": 1048576}, "checkpoint": '
        '{"tag_validation": "WARN"}}'
    ),
]


@pytest.mark.train
@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_keys_that_deepspeed_would_ignore_are_an_error(
    check: dict[str, tuple[str, Any]], text: str, reason: str
) -> None:
    verdict, said = check[text]
    assert verdict == "refused"
    assert reason in said
    assert "\n" not in said


@pytest.mark.train
@pytest.mark.parametrize("text", TAKEN)
def test_keys_that_deepspeed_knows_are_passed_on_unchanged(
    check: dict[str, tuple[str, Any]], text: str
) -> None:
    verdict, config = check[text]
    assert verdict == "taken", config
    assert {key: config[key] for key in json.loads(text)} == json.loads(text)


@pytest.mark.train
def test_a_config_file_replaces_the_flags_and_its_mistakes_end_the_training_at_once(
    trainer: Trainer, tmp_path: Path
) -> None:
    file = tmp_path / "zero.json"
    file.write_text(
        '{"zero_optimization": {"stage": 1}, "torch_autocast": {"enabled": true, "dtype": "bfloat16"}}'
    )
    flags = {"deepspeed_config": file, "max_steps": 3, "eval_at_end": "true"}
    done = alone(trainer).run("deepspeed_zero.py", tmp_path / "run", **flags)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "run")
    assert len(steps_in(records)) == 3
    assert event_in(records, "start")["num_parameters"] == 39_626
    assert event_in(records, "eval")["loss"] < 3
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000003"]

    file.write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    done = alone(trainer).run("deepspeed_zero.py", tmp_path / "bf16", **flags)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "bf16")
    assert [step["loss"] < 3 for step in steps_in(records)] == [True] * 3
    assert event_in(records, "eval")["loss"] < 3

    file.write_text('{"zero": {"stage": 3}}')
    done = alone(trainer).run("deepspeed_zero.py", tmp_path / "wrong", **flags)
    assert done.returncode == 2
    assert f"error: {file}: DeepSpeed does not know zero" in done.stderr
    assert not steps_in(read_records(tmp_path / "wrong"))
