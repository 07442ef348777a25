"""The controller's answer about its configuration, as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.slurm.configuration import RateLimit, parse_config, parse_rate_limit, parse_version

REAL = Path(__file__).parents[2] / "fixtures" / "slurm" / "scontrol-config-22.05.txt"


def test_the_answer_of_a_real_controller_is_read() -> None:
    config = parse_config(REAL.read_text())
    assert config["SLURM_VERSION"] == "22.05.8"
    assert config["ClusterName"] == "lab"
    assert config["AccountingStorageType"] == "accounting_storage/none"
    assert "SlurmctldParameters" not in config  # (null)
    assert parse_rate_limit(config) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("22.05.8", (22, 5)), ("23.11.4-1.2ubuntu5", (23, 11)), ("slurm 19.05.5", (19, 5)), ("unknown", None)],
)
def test_a_version_is_its_release(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("rl_enable", RateLimit(30, 2, 1)),
        (
            "idle_on_node_suspend,rl_enable,rl_bucket_size=40,rl_refill_rate=4,rl_refill_period=60",
            RateLimit(40, 4, 60),
        ),
        ("rl_enable,rl_bucket_size=many,rl_refill_period=0", RateLimit(30, 2, 1)),
        ("rl_bucket_size=40", None),
    ],
)
def test_a_rate_limit_counts_only_when_it_is_enabled(words: str, limit: RateLimit | None) -> None:
    assert parse_rate_limit({"SlurmctldParameters": words}) == limit
