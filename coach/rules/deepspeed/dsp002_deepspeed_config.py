"""DSP002: DeepSpeed refused its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule

_REFUSED = re.compile(
    UNHEEDED + r"(?:.*?(?='DeepSpeed\w*Config' object has no attribute '\w+'"
    r"|(?:DeepSpeedConfigError|ZeRORuntimeException\b(?!\W{1,3}The checkpoint being loaded)|HjsonDecodeError"
    r"|deepspeed\.elasticity\.config\.Elasticity\w+)\b"
    r"|ValueError: Type (?:bf16|fp16) is not supported on your device"
    r"|AssertionError: (?:Check batch related parameters\.|(?:Train|Micro) batch size.{0,200}? has to be "
    r"greater than 0|Gradient accumulation steps: .{0,200}?greater than 0|Either train_batch_size or)"
    r"|Error: (?:Expected a string path to an existing deepspeed config|Please correct the following "
    r"DeepSpeed config values|DeepSpeed Zero-3 is not compatible with)"
    r"|(?:pydantic\S*ValidationError: )?\d+ validation errors? for (?:DeepSpeed|Zero|FP16|BF16)"
    r"|AssertionError: (?:DeepSpeed does not recognize LR scheduler|Partial offloading only supported for "
    r"ZeRO|ZeRO-2 and ZeRO-3 are incompatible with|bfloat16 and fp16 modes cannot be)"
    r"|ValueError: You (?:cannot specify an? (?:optimizer|scheduler) in the config file and in the code"
    r"|cannot create a `Dummy(?:Optim|Scheduler)`)"
    r"|AssertionError: zero stage \d requires an optimizer)"
    r"|.*?[Ee]rror: (?=(?:\S+: )?DeepSpeed does not know )"
    r"|(?>.*?(?=(?:Error|MisconfigurationException): ))(?=.{0,200}?(?:[Dd]eep[Ss]peed|ds_config"
    r"|zero_optimization|ZeRO)\S{0,200} .{0,200}?(?:config|stage|requires|must|not supported|only supported"
    r"|doesn't support|optimizer)))"
    r"(?P<words>.*)"
)


class DeepSpeedConfig(EndingRule):
    """DeepSpeed refused its configuration.

    What it sees
        DeepSpeedConfigError, "Check batch related parameters. train_batch_size is not equal to …", pydantic's
        validation errors of DeepSpeed's sections, "'DeepSpeedConfig' object has no attribute …",
        transformers' "Please correct the following DeepSpeed config values", a key that it does not know,
        where a trainer looks for such, and what Lightning refuses of it.
    Why it matters
        Nothing was trained. The numbers depend on the number of ranks: a file that was right for eight GPUs
        is wrong for four.
    When it stays silent
        On the configuration that DeepSpeed prints at the start, and on notes about deprecated keys.
    What to do
        train_batch_size = micro-batch per GPU × gradient accumulation × number of ranks: give two of the
        first three and let DeepSpeed compute the third; under transformers write "auto". A section or
        attribute that is not known: the file and the installed DeepSpeed are of different versions.
    Sources
        deepspeed/runtime/config.py, config_utils.py; transformers DeepSpeed integration.
    """

    code = "DSP002"
    name = "deepspeed-config"
    cause = "deepspeed_config_error"
    signatures = (
        Signature(
            "DSP002",
            "configuration",
            (
                "' object has no attribute '",
                "DeepSpeedConfigError",
                "ZeRORuntimeException",
                "AssertionError: Check batch",
                "greater than 0",
                "Either train_batch_size",
                "existing deepspeed config",
                "DeepSpeed config values",
                "DeepSpeed",
                "deepspeed",
                "validation error",
                "ds_config",
                "zero_optimization",
                "zero stage ",
                "HjsonDecodeError",
                "is not supported on your device",
                "bfloat16 and fp16 modes cannot be",
                "in the config file and in the code",
                "`DummyOptim`",
                "`DummyScheduler`",
                "ZeRO",
            ),
            _REFUSED,
        ),
    )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return (
            "DeepSpeed refused its configuration: "
            f"{hit.fields['words'].removeprefix('AssertionError: ')[:180]}"
        )

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        words = hit.fields["words"] if hit is not None else ""
        if "does not know" in words:
            yield Fix("Spell the key as DeepSpeed does; DeepSpeed itself would pass over it without a word")
        elif "atch" in words:
            yield Fix(
                "Give the micro-batch and the accumulation, and leave train_batch_size out: it follows "
                "from the ranks"
            )
        else:
            yield Fix(
                "Compare the file with the documentation of the DeepSpeed that is installed: python -m "
                "deepspeed.env_report"
            )
