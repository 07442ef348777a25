"""DSP002: DeepSpeed refused its configuration."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of


class DeepSpeedConfig(EndingRule):
    """DeepSpeed refused its configuration.

    What it sees
        DeepSpeedConfigError, "Check batch related parameters. train_batch_size is not equal to …", pydantic's
        validation errors of DeepSpeed's sections, "'DeepSpeedConfig' object has no attribute …",
        transformers' "Please correct the following DeepSpeed config values", an unknown key, if the trainer
        checks for such keys, and settings that Lightning refuses.
    Why it matters
        Nothing was trained. The numbers depend on the number of ranks: a file that was right for eight GPUs
        is wrong for four.
    When it stays silent
        On the configuration that DeepSpeed prints at the start, and on notes about deprecated keys.
    What to do
        train_batch_size = micro-batch per GPU × gradient accumulation × number of ranks: give two of the
        first three and let DeepSpeed compute the third; under transformers write "auto". An unknown section
        or attribute means that the file was written for another version of DeepSpeed.
    Sources
        deepspeed/runtime/config.py, config_utils.py; transformers DeepSpeed integration.
    """

    code = "DSP002"
    name = "deepspeed-config"
    cause = "deepspeed_config_error"
    details = ("sum",)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        words = hit.fields["words"].removeprefix("AssertionError: ")[:180]
        sums = [f" … {found.fields['sum']}" for found in hits_of(snapshot, self.code, "sum")]
        return f"DeepSpeed refused its configuration: {words}{'' if ' != ' in words else ''.join(sums[:1])}"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        words = hit.fields["words"]
        if "atch" in words:
            yield Fix(
                "Set the micro-batch and the accumulation, and leave train_batch_size out: DeepSpeed "
                "computes it"
            )
        else:
            yield Fix(
                "Compare the file with the documentation of the DeepSpeed that is installed: python -m "
                "deepspeed.env_report"
            )
