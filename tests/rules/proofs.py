"""The proofs of each rule, by code: a source in which it fires, one in which it is silent, five healthy ones
that look similar, and its words.

    python -m tests.rules.proofs CODE …

writes the proofs of these codes in `proofs.toml` again, from the recordings and from the logs in the tests
of the rules. Without codes it writes those of all rules, which takes minutes. A rule without a proof is
listed in `unproven.toml` with the reason; that list may only shrink.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.rules.base import Rule
from coach.rules.blindness import Sight
from coach.rules.causes import REGISTER, Status
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.rules.wordings.rows import shipped
from tests.rules import (
    test_ends,
    test_environment,
    test_errors,
    test_gpu_wordings,
    test_library_wordings,
    test_rank_wordings,
    test_resource_wordings,
    test_wordings,
)
from tests.rules.examples import scan
from tests.rules.made import MADE
from tests.rules.recorded import RECORDINGS, read

PROOFS = Path(__file__).with_name("proofs.toml")
UNPROVEN = Path(__file__).with_name("unproven.toml")
NUM_LOOK_ALIKES = 5
_WELL = ("framed/", "caught/", "silent/", "healthy", "HEALTHY", "HARMLESS")
_MODULES = (
    test_ends,
    test_environment,
    test_errors,
    test_gpu_wordings,
    test_library_wordings,
    test_rank_wordings,
    test_resource_wordings,
    test_wordings,
)


FRAMES = {
    "a help text": (
        "usage: train.py [-h]\n  --retry N    try again on '{line}'\n  --lr LR      the rate\n{went_on}"
    ),
    "a shown command": "+ grep -c '{line}' old.log\n0\n{went_on}",
    "a comment": "# Known trouble: {line}\n# see the wiki\n{went_on}",
    "a warning": "2026-11-21 04:00:00,101 WARNING trial 3 was given up: {line}\n{went_on}",
    "a note of a logger": "2026-11-21 04:00:00,101 INFO   last week: {line}\n{went_on}",
}
"""What a healthy program prints around the words of an error."""
_WENT_ON = "\n".join(f"epoch {epoch} loss {2 / epoch:.3f}" for epoch in range(1, 6)) + "\ntraining done"


@dataclass(frozen=True, slots=True)
class Proof:
    """The sources that prove one rule, and its words in the source where it fires."""

    fires: str | None
    silent: str | None
    look_alikes: tuple[str, ...]
    says: tuple[str, ...]


@cache
def texts() -> Mapping[str, str]:
    """Name → log, of all tables of the rules' tests."""
    found = {}
    for module in _MODULES:
        for table in ("DEADLY", "WORDINGS", "HEALTHY", "HARMLESS"):
            for place, text in _entries(getattr(module, table, {})):
                found[f"{module.__name__.rsplit('.', 1)[-1]}/{table}/{place}"] = text
    return found


def _entries(table: Mapping[str, Any] | Iterable[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(table, Mapping):
        table = {"": list(table)}
    for name, values in table.items():
        if isinstance(values, str):
            yield name, dedent(values).strip("\n")
            continue
        for number, value in enumerate(values):
            yield f"{name}/{number}".lstrip("/"), value


@cache
def recordings() -> tuple[str, ...]:
    """The names of all recordings."""
    found = []
    for path in sorted(RECORDINGS.rglob("*")):
        is_run = path.is_dir() and any(
            (path / name).exists() for name in ("run.json", "metrics", "telemetry")
        )
        is_log = path.suffix == ".log" and not (path.parent / "run.json").exists()
        is_series = path.suffix == ".csv" and "foreign" in path.parts
        if is_run or is_log or is_series:
            found.append(str(path.relative_to(RECORDINGS)))
    return tuple(found)


def framed(code: str, name: str) -> Iterator[str]:
    """The names of healthy logs around the line by which a rule fires in a source."""
    if any(hit.rule == code for hit in source(name)[0].log_hits):
        yield from (f"framed/{code}/{frame}/{name}" for frame in FRAMES)


def _text_of(name: str) -> str | None:
    """A log that is no recording."""
    if not name.startswith("framed/"):
        return texts().get(name)
    _, code, frame, inner = name.split("/", 3)
    line = next(hit.text for hit in source(inner)[0].log_hits if hit.rule == code)
    return FRAMES[frame].format(line=line.strip(), went_on=_WENT_ON)


@cache
def source(name: str) -> tuple[TargetSnapshot, History]:
    """The content of a recording or of a log in a table."""
    if name in MADE:
        return MADE[name]()
    known = _text_of(name)
    if known is None:
        return read(name)
    text = known + "\n"
    lines = tuple(text.splitlines())
    tail = LogTail("train.log", 1, lines, len(text), len(lines))
    return TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail,)), History()


@cache
def found_in(name: str) -> tuple[Finding, ...]:
    """All findings in a source."""
    return Engine(build()).diagnose(*source(name)).findings


def finding_of(code: str, name: str) -> Finding | None:
    """The findings of a rule in a source."""
    return next((finding for finding in found_in(name) if finding.rule == code), None)


def fires(rule: type[Rule], name: str) -> bool:
    """True if a rule finds as much as it can at least: a warning, or info where it never says more."""
    finding = finding_of(rule.code, name)
    is_unproven = REGISTER.of(rule.code).status is Status.UNPROVEN
    least = Severity.INFO if is_unproven else min(Severity.WARNING, rule.severity)
    return finding is not None and finding.severity >= least


def fires_alone(rule: type[Rule], name: str) -> bool:
    """True if nothing else is found there."""
    return fires(rule, name) and [
        each.rule for each in found_in(name) if each.severity >= Severity.WARNING
    ] in (
        [rule.code],
        [],
    )


def is_silent(rule: type[Rule], name: str) -> bool:
    """True if a rule could judge a source, and finds nothing worse than info there."""
    snapshot, history = source(name)
    finding = finding_of(rule.code, name)
    is_quiet = not fires(rule, name) and (finding is None or rule.severity >= Severity.WARNING)
    return is_quiet and Sight.of(snapshot, history).can_judge(rule())


def looks_alike(rule: type[Rule], name: str) -> bool:
    """True if a healthy source holds words of a rule, or numbers as it needs them, and the rule is silent."""
    if not any(word in name for word in _WELL) or not is_silent(rule, name):
        return False
    wanted = (*rule.signatures, *shipped().get(rule.code, ()))
    if not wanted:
        return True
    path = RECORDINGS / name
    known = _text_of(name)
    if known is None:
        known = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    text = known.casefold()
    return any(literal.casefold() in text for each in wanted for literal in each.literals)


def words_of(finding: Finding) -> tuple[str, ...]:
    """The words of a finding: its summary, its fixes and their changes."""
    return (finding.summary, *(_fix(fix) for fix in finding.fixes))


def _fix(fix: Fix) -> str:
    changes = f" {json.dumps(dict(fix.changes), sort_keys=True)}" if fix.changes else ""
    command = f" $ {fix.command}" if fix.command else ""
    learning = " (changes the training result)" if fix.changes_learning else ""
    return f"{fix.title}{changes}{command}{learning}"


def hits_of(rule: Rule, name: str) -> list[Hit]:
    """The hits of a rule in a source."""
    return list(rule.check(*source(name)))


def read_proofs() -> dict[str, Proof]:
    """Code → proof, as `proofs.toml` has them."""
    rows = tomllib.loads(PROOFS.read_text(encoding="utf-8"))
    return {
        code: Proof(
            row.get("fires"), row.get("silent"), tuple(row["look_alikes"]), tuple(row.get("says", ()))
        )
        for code, row in rows.items()
    }


def read_unproven() -> dict[str, dict[str, str]]:
    """Kind of missing proof → code → reason, from `unproven.toml`."""
    groups = tomllib.loads(UNPROVEN.read_text(encoding="utf-8"))
    return {
        what: {code: group["reason"] for group in listed for code in group["codes"]}
        for what, listed in groups.items()
    }


def choose(rule: type[Rule], old: Proof | None) -> Proof:
    """Proofs of a rule: those that it has, as long as they hold, else the first that are found."""
    names = (*recordings(), *texts(), *MADE)
    known = old.fires if old and old.fires and fires(rule, old.fires) else None
    firing = known or next(
        (
            name
            for among in (recordings(), (*texts(), *MADE))
            for holds in (fires_alone, fires)
            for name in among
            if holds(rule, name)
        ),
        None,
    )
    twin = firing.replace("ended/", "caught/") if firing else None
    frames = framed(rule.code, firing) if firing else ()
    alike = [name for name in (*names, *frames) if looks_alike(rule, name)]
    silent = [old.silent if old else None, twin if twin in alike else None, *alike, *recordings()]
    shown = finding_of(rule.code, firing) if firing else None
    return Proof(
        firing,
        _first(silent, lambda name: name in recordings() and is_silent(rule, name)),
        tuple(alike[:NUM_LOOK_ALIKES]),
        words_of(shown) if shown else (),
    )


def _first(names: Iterable[str | None], holds: Any) -> str | None:
    return next((name for name in names if name is not None and holds(name)), None)


def as_toml(proofs: Mapping[str, Proof]) -> str:
    """The file `proofs.toml`."""
    lines = ["# Written by `python -m tests.rules.proofs CODE`: read the difference before you commit it."]
    for code, proof in sorted(proofs.items()):
        lines += ["", f"[{code}]"]
        lines += [
            f"{key} = {_toml(value)}"
            for key, value in (("fires", proof.fires), ("silent", proof.silent))
            if value
        ]
        for key, values in (("look_alikes", proof.look_alikes), ("says", proof.says)):
            lines += [f"{key} = [", *(f"  {_toml(value)}," for value in values), "]"]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def main(codes: Sequence[str]) -> None:
    """Choose the proofs of these codes, of all rules without codes, and say of each what was chosen."""
    old = read_proofs()
    rules = {rule.code: type(rule) for rule in build()}
    unknown = [code for code in codes if code not in rules]
    if unknown:
        raise SystemExit(f"proofs: {unknown[0]}: no rule has this code")
    wanted = list(codes or rules)
    kept = {code: proof for code, proof in old.items() if code in rules}
    for number, code in enumerate(wanted, 1):
        kept[code] = choose(rules[code], old.get(code))
        fires_in = kept[code].fires or "nothing"
        sys.stdout.write(f"{number}/{len(wanted)} {code}: fires in {fires_in}\n")
        sys.stdout.flush()
    PROOFS.write_text(as_toml(kept), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
