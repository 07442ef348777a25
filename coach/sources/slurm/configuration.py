"""Parse Slurm's own configuration: its version, its rate limit, its records.

`scontrol show config` is one cheap request that every user may make. It is separate from the sources of the
queue and the nodes, because a live screen needs only the rate limit from it, once. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from coach.model.reading import Reading
from coach.sources.io import Io, Query
from coach.sources.slurm.conf_file import parse_seconds
from coach.sources.slurm.text import optional, parse_whole

CONFIG_QUERY = Query("config", ("scontrol", "show", "config"))
PING_QUERY = Query("ping", ("scontrol", "ping"))
ACCOUNTING_QUERY = Query("accounting", ("sacct", "-n", "-X", "-P", "-S", "now-1minute", "-o", "jobid"))
"""Own jobs of the last minute: the smallest request that needs the database."""

_RETRY_S = 120.0

_PAIR = re.compile(r"^(\w[\w\[\]]*)\s+= ?(.*)$")
_VERSION = re.compile(r"(?<!\d)(\d{1,4})\.(\d{1,4})")

_DEFAULT_BUCKET, _DEFAULT_REFILL, _DEFAULT_PERIOD_S = 30, 2, 1
"""slurm.conf(5): rl_bucket_size, rl_refill_rate, rl_refill_period."""
_DENIED = "Access/permission denied"
"""ESLURM_ACCESS_DENIED, in the wording of all versions from 16.05 to 25.05."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The rate limit of one user: a token bucket that refills."""

    bucket: int
    refill: int
    period_s: int

    @property
    def per_s(self) -> float:
        return self.refill / self.period_s


def parse_config(text: str) -> dict[str, str]:
    """Key → value, without keys that are not set, and without the plugins' own tables behind the
    configuration."""
    values: dict[str, str] = {}
    for line in text.split("\n"):
        match = _PAIR.match(line)
        if match is not None and match[1] not in values and optional(match[2]) is not None:
            values[match[1]] = match[2].strip()
    return values


def parse_version(text: str) -> tuple[int, int] | None:
    """`22.05.8` → (22, 5); `23.11.4-1.2ubuntu5` → (23, 11)."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def parse_rate_limit(config: Mapping[str, str]) -> RateLimit | None:
    """The limit of SlurmctldParameters=rl_enable; None if the site has none."""
    words = [word.strip() for word in config.get("SlurmctldParameters", "").split(",")]
    if "rl_enable" not in words:
        return None
    said = dict(word.split("=", 1) for word in words if "=" in word)
    return RateLimit(
        _count(said.get("rl_bucket_size"), _DEFAULT_BUCKET),
        _count(said.get("rl_refill_rate"), _DEFAULT_REFILL),
        _count(said.get("rl_refill_period"), _DEFAULT_PERIOD_S),
    )


def _count(text: str | None, default: int) -> int:
    return parse_whole(text or "") or default


class RateLimitSource:
    """Reads once the site's rate limit and calls `on_limit` with the refills per second; None: no limit.

    `on_message_timeout` is called with the seconds that Slurm's clients wait for an answer, from the same
    reply.
    """

    name = "limits"

    def __init__(
        self,
        io: Io,
        on_limit: Callable[[float | None], object],
        on_message_timeout: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.interval_s = _RETRY_S
        self._on_message_timeout = on_message_timeout
        self._is_known = False
        self._io = io
        self._on_limit = on_limit

    def poll(self) -> Iterator[Reading]:
        """Emits nothing: if the controller does not answer, the queue's source reports it."""
        result = None if self._is_known else self._io.run(CONFIG_QUERY)
        if result is not None and result.returncode == 0:
            self._is_known = True
            config = parse_config(result.text)
            limit = parse_rate_limit(config)
            self._on_limit(None if limit is None else limit.per_s)
            message_timeout_s = parse_seconds(config.get("MessageTimeout", ""))
            if message_timeout_s is not None:
                self._on_message_timeout(message_timeout_s)
        yield from ()


def is_denied(error: str | None) -> bool:
    """True if the controller answered that this user has no permission."""
    return error is not None and _DENIED in error


def private_kinds(config: Mapping[str, str]) -> frozenset[str]:
    """The words of PrivateData: `jobs`, `nodes`, `reservations` …; empty if nothing is hidden."""
    words = (word.strip() for word in config.get("PrivateData", "").split(","))
    return frozenset(word for word in words if word)
