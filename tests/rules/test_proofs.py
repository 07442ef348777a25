"""Each rule of the register has its proofs: a source where it fires, a source where it is silent, and its
words."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.rules.causes import REGISTER, Status
from coach.rules.registry import rule_classes
from tests.rules import proofs
from tests.rules.proofs import (
    NUM_LOOK_ALIKES,
    finding_of,
    fires,
    is_silent,
    looks_alike,
    main,
    read_proofs,
    read_unproven,
    recordings,
    words_of,
)

CODES = [code for code, row in REGISTER.codes.items() if row.status is not Status.RETIRED]
RULES = {rule.code: rule for rule in rule_classes()}
PROOFS = read_proofs()
UNPROVEN = read_unproven()
ANEW = "run `python -m tests.rules.proofs CODE` and read what changed"


def is_excused(what: str, code: str, is_proven: bool) -> bool:
    """True for a code that lacks a proof with a reason; a reason for a proof that is there fails."""
    excuse = UNPROVEN.get(what, {}).get(code)
    assert not (excuse and is_proven), f"{code} is proven now: strike it from [[{what}]] in unproven.toml"
    assert excuse or is_proven, f"{code} lacks a proof: {what}"
    return not is_proven


def test_the_proofs_of_one_code_are_written_anew_and_a_misspelt_code_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "proofs.toml"
    copy.write_text(proofs.PROOFS.read_text(encoding="utf-8").replace("nfs-server-silent", "gone"))
    before = proofs.PROOFS.read_text(encoding="utf-8")
    monkeypatch.setattr(proofs, "PROOFS", copy)
    with pytest.raises(SystemExit, match="ENV999: no rule has this code"):
        main(["TOR005", "ENV999"])
    assert "gone.log" in copy.read_text(encoding="utf-8")
    monkeypatch.setattr(proofs, "choose", lambda rule, old: PROOFS[rule.code])
    main(["ENV024"])
    assert copy.read_text(encoding="utf-8") == before
    assert capsys.readouterr().out == f"1/1 ENV024: fires in {PROOFS['ENV024'].fires}\n"


def test_all_codes_that_are_excused_exist_and_have_a_reason() -> None:
    assert set(UNPROVEN) <= {"recording", "silent", "look_alikes"}
    for reasons in UNPROVEN.values():
        assert set(reasons) <= set(CODES)
        assert all(len(reason) > 20 for reason in reasons.values())


@pytest.mark.parametrize("code", CODES)
def test_a_rule_fires_on_its_proof_with_the_same_words_as_before(code: str) -> None:
    assert code in PROOFS, f"{code} has no proof: `python -m tests.rules.proofs {code}` writes it"
    proof = PROOFS[code]
    assert proof.fires is not None
    is_excused("recording", code, proof.fires in recordings())
    assert fires(RULES[code], proof.fires)
    finding = finding_of(code, proof.fires)
    assert finding is not None
    assert words_of(finding) == proof.says, ANEW


@pytest.mark.parametrize("code", CODES)
def test_a_rule_that_can_judge_its_counterexample_is_silent_there(code: str) -> None:
    silent = PROOFS[code].silent
    if not is_excused("silent", code, silent is not None):
        assert silent is not None
        assert is_silent(RULES[code], silent)


@pytest.mark.parametrize("code", CODES)
def test_a_rule_is_silent_on_the_healthy_logs_that_sound_like_it(code: str) -> None:
    names = PROOFS[code].look_alikes
    assert len(set(names)) == len(names)
    is_excused("look_alikes", code, len(names) >= NUM_LOOK_ALIKES)
    assert all(looks_alike(RULES[code], name) for name in names)
