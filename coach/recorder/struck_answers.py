"""Replaces names in answers of Slurm's clients, and keeps the answers' exact form.

A recording is anonymized by the names found in it. A capture is sent to people who know nobody at the site,
so it works the other way round: only fields with a known meaning are kept, and only the shape of all other
text. A name becomes the same word throughout a capture; the key that derives the words is thrown away. All
functions are pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

_UNSET = frozenset({"", "N/A", "n/a", "(null)", "None", "none", "None assigned", "Unknown", "ALL", "NONE"})
_PLAIN_NAMES = frozenset({"root", "normal", "default", "slurm", "nobody"})
_PLAIN_PARTS = frozenset(
    [
        "cpu",
        "cpus",
        "gpu",
        "gpus",
        "debug",
        "batch",
        "normal",
        "default",
        "short",
        "long",
        "main",
        "interactive",
        "test",
        "high",
        "low",
        "all",
    ]
)
"""Words in partition names that reveal nothing about a site."""
_LETTERS = "abcdefghijklmnop"
_STEM = re.compile(r"[A-Za-z][A-Za-z_.-]*")
_CAMEL = re.compile(r"^[A-Za-z_]*$")
_REASON_NODES = re.compile(r"^(\w+, UnavailableNodes:)(.*)$", re.DOTALL)
_FREE_TEXT = re.compile(r" (Reason|Comment|Extra|InstanceId|InstanceType)=")
_STAMP = re.compile(r"\[([^\s\[\]@]{1,64}+)@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\](?=\s|$)")
_ALNUM = re.compile(r"[^\W\d_]|\d")

_USERS = frozenset({"username", "User", "Users", "Owner"})
_ACCOUNTS = frozenset(
    {"account", "qos", "Account", "QOS", "Accounts", "AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos"}
    | {"AllowGroups", "QoS", "reservation", "Reservation", "ReservationName"}
)
_HOSTS = frozenset({"nodelist", "schednodes", "NodeList", "NodeName", "Nodes", "NodeHostName", "AllocNodes"})
_PARTITIONS = frozenset({"partition", "Partition", "PartitionName", "Partitions"})
_PATHS = frozenset({"workdir", "command", "stdout", "stderr", "WorkDir"})
_JOBS = frozenset({"name", "JobName"})
_KEPT = frozenset(
    [
        "jobarrayid",
        "jobid",
        "state",
        "numnodes",
        "numcpus",
        "numtasks",
        "tres-alloc",
        "tres-per-job",
        "tres-per-node",
        "tres-per-task",
        "tres-per-socket",
        "sockets",
        "timeused",
        "timeleft",
        "timelimit",
        "submittime",
        "starttime",
        "endtime",
        "exit_code",
        "dependency",
        "prioritylong",
        "restartcnt",
        "JobID",
        "JobIDRaw",
        "NNodes",
        "NCPUS",
        "NTasks",
        "AllocTRES",
        "ReqTRES",
        "ReqMem",
        "ElapsedRaw",
        "TimelimitRaw",
        "Submit",
        "Start",
        "End",
        "ExitCode",
        "TotalCPU",
        "MaxRSS",
        "TRESUsageInTot",
        "Arch",
        "CoresPerSocket",
        "CPUAlloc",
        "CPUEfctv",
        "CPUTot",
        "CPULoad",
        "Gres",
        "GresDrain",
        "GresUsed",
        "Version",
        "RealMemory",
        "AllocMem",
        "FreeMem",
        "Sockets",
        "Boards",
        "State",
        "ThreadsPerCore",
        "TmpDisk",
        "Weight",
        "BootTime",
        "SlurmdStartTime",
        "LastBusyTime",
        "ResumeAfterTime",
        "CfgTRES",
        "CurrentWatts",
        "AveWatts",
        "Default",
        "DefaultTime",
        "DisableRootJobs",
        "ExclusiveUser",
        "ExclusiveTopo",
        "GraceTime",
        "Hidden",
        "MaxNodes",
        "MaxTime",
        "MinNodes",
        "LLN",
        "MaxCPUsPerNode",
        "MaxCPUsPerSocket",
        "PriorityJobFactor",
        "PriorityTier",
        "RootOnly",
        "ReqResv",
        "OverSubscribe",
        "OverTimeLimit",
        "PreemptMode",
        "TotalCPUs",
        "TotalNodes",
        "SelectTypeParameters",
        "DefMemPerCPU",
        "DefMemPerNode",
        "MaxMemPerNode",
        "MaxMemPerCPU",
        "TRES",
        "TRESBillingWeights",
        "StartTime",
        "EndTime",
        "Duration",
        "NodeCnt",
        "CoreCnt",
        "Flags",
        "SLURM_VERSION",
        "PrivateData",
        "JobRequeue",
        "MinJobAge",
        "MessageTimeout",
        "SlurmctldParameters",
        "GresTypes",
        "AccountingStorageType",
        "AccountingStorageTRES",
        "AccountingStorageEnforce",
        "PriorityType",
        "SchedulerType",
        "SelectType",
        "EnforcePartLimits",
        "JobSubmitPlugins",
        "PreemptType",
        "ProctrackType",
        "TaskPlugin",
        "MaxArraySize",
        "JobAcctGatherType",
        "JobAcctGatherFrequency",
    ]
)
"""Fields with numbers, times, states and Slurm's own words. A user's number after a state is cut."""
_STATE_BY = re.compile(r"^([A-Z_+]+) by \d+$")
_ODD = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Strikes:
    """Derives the replacement words of one capture."""

    key: bytes

    def word(self, kind: str, name: str) -> str:
        """The word for a name; equal names get equal words."""
        digest = hmac.digest(self.key, f"{kind}\0{name}".encode("utf-8", "surrogateescape"), hashlib.sha256)
        return kind + "".join(_LETTERS[byte & 15] for byte in digest[:6])

    def field(self, name: str, value: str) -> str:
        """A field's value without names."""
        if value.strip() in _UNSET:
            return value
        if name in _KEPT and not _ODD.search(value):
            found = _STATE_BY.match(value)
            return f"{found[1]} by 0" if found else value
        strike = self._by_field.get(name)
        return shape(value) if strike is None else strike(self, value)

    @property
    def _by_field(self) -> Mapping[str, Callable[[Strikes, str], str]]:
        return _STRIKES

    def names(self, kind: str, value: str) -> str:
        """A list of names, some followed by a number: `alice(1000),bob`."""
        return ",".join(self._name(kind, part) for part in value.split(","))

    def _name(self, kind: str, part: str) -> str:
        name = re.sub(r"\(\d+\)$", "", part)
        return part if name in _PLAIN_NAMES or name in _UNSET else self.word(kind, name)

    def hosts(self, value: str) -> str:
        """A node set expression; numbers stay."""
        return _STEM.sub(lambda found: self.word("host", found[0]), value)

    def partitions(self, value: str) -> str:
        """Names of partitions; names made of common words stay."""
        return ",".join(
            name
            if _PLAIN_PARTS.issuperset(re.split(r"[^a-z]+", name.lower().strip())) or name in _UNSET
            else self.word("part", name)
            for name in value.split(",")
        )

    def path(self, value: str) -> str:
        """A path, with a word for each of its parts."""
        return "/".join(self.word("p", part) if part else "" for part in value.split("/"))

    def reason(self, value: str) -> str:
        """The reason why a job waits: Slurm's words, and the nodes after them."""
        found = _REASON_NODES.match(value)
        if found:
            return found[1] + self.hosts(found[2])
        return value if _CAMEL.match(value) else shape(value)


def shape(text: str) -> str:
    """Letters as `x` and digits as `9`: the result shows a value's form, but not its content."""
    return _ALNUM.sub(lambda found: "9" if found[0].isdigit() else "x", text)


_STRIKES: Mapping[str, Callable[[Strikes, str], str]] = MappingProxyType(
    {
        **{name: lambda own, value: own.names("user", value) for name in _USERS},
        **{name: lambda own, value: own.names("account", value) for name in _ACCOUNTS},
        **dict.fromkeys(_HOSTS, Strikes.hosts),
        **dict.fromkeys(_PARTITIONS, Strikes.partitions),
        **dict.fromkeys(_PATHS, Strikes.path),
        **{name: lambda own, value: own.word("job", value) for name in _JOBS},
        "reason": Strikes.reason,
    }
)


def strike_records(
    text: str, fields: Sequence[str], separator: str, record_end: str, strikes: Strikes
) -> str:
    """An answer of squeue or sacct, field by field. Of a record with another number of fields only the shape
    stays."""
    if not record_end:
        return _strike_endless(text, fields, separator, strikes)
    records = text.split(record_end)
    return record_end.join(
        _strike_record(record, fields, separator, strikes) if index < len(records) - 1 else shape(record)
        for index, record in enumerate(records)
    )


def _strike_record(record: str, fields: Sequence[str], separator: str, strikes: Strikes) -> str:
    values = record.split(separator)
    if len(values) != len(fields):
        return separator.join(map(shape, values))
    return separator.join(map(partial(_field_with_break, strikes), fields, values))


def _strike_endless(text: str, fields: Sequence[str], separator: str, strikes: Strikes) -> str:
    """An answer of sacct: each field ends with the separator, and a record is a fixed number of fields."""
    *values, rest = text.split(separator)
    struck = [
        _field_with_break(strikes, fields[index % len(fields)], value) for index, value in enumerate(values)
    ]
    return separator.join([*struck, shape(rest)])


def _field_with_break(strikes: Strikes, name: str, value: str) -> str:
    """A field of sacct. A record ends with a newline, which thus stands before the next record's first
    field."""
    plain = value.lstrip("\n")
    return "\n" * (len(value) - len(plain)) + strikes.field(name, plain)


def strike_pairs(text: str, strikes: Strikes) -> str:
    """An answer of `scontrol -o show`: `key=value` on each line, then free text."""
    return "\n".join(_strike_line(line, strikes) for line in text.split("\n"))


def _strike_line(line: str, strikes: Strikes) -> str:
    if "=" not in line:
        return line if line.startswith("No ") else shape(line)
    free = _FREE_TEXT.search(line)
    end = len(line) if free is None else free.start()
    words: list[str] = []
    for word in line[:end].split(" "):
        key, equals, value = word.partition("=")
        words.append(f"{key}={strikes.field(key, value)}" if equals else shape(word))
    told = " ".join(words)
    return told if free is None else f"{told} {free[1]}={_free(line[free.end() :], strikes)}"


def _free(text: str, strikes: Strikes) -> str:
    """The shape of text that people wrote; the stamp of author and time stays a stamp."""
    parts: list[str] = []
    start = 0
    for stamp in _STAMP.finditer(text):
        who = strikes.names("user", stamp[1])
        parts += [shape(text[start : stamp.start()]), f"[{who}@{stamp[2]}]"]
        start = stamp.end()
    return "".join([*parts, shape(text[start:])])


def strike_config(text: str, strikes: Strikes) -> str:
    """An answer of `scontrol show config`: all keys, and the values of those keys that coach reads."""
    lines: list[str] = []
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        is_pair = bool(equals) and re.fullmatch(r"\w[\w\[\]]*", key.strip())
        lines.append(f"{key}={_config_value(key.strip(), value, strikes)}" if is_pair else shape(line))
    return "\n".join(lines)


def _config_value(key: str, value: str, strikes: Strikes) -> str:
    plain = value.removeprefix(" ")
    return value[: len(value) - len(plain)] + strikes.field(key, plain)
