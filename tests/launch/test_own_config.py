"""An own program with its values in a config file: its parameters, the changed copy, and the cases without a
copy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from coach.launch.own_config import diff_of
from coach.launch.own_program import config_of, own_request, read_own_program
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import recipe_of
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnProgram, Plan
from tests.launch.examples import CLUSTER, PATHS, RUN_ID

CONFIG = """# ours
optim: {lr: 1e-4}
train:
  batch_size: 32   # per GPU
  gradient_accumulation_steps: 2
eval:
  batch_size: 64
data: /data/corpus
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("parser.add_argument('--amp', action='store_true')\n")
    (tmp_path / "conf.yaml").write_text(CONFIG)
    return tmp_path


def own(home: Path, *behind: str, what: str | None = "train.py", **said: str) -> OwnProgram:
    program = read_own_program(what, behind, home)
    return OwnProgram(program.kind, program.words, program.directory, parameters=said)


def planned(program: OwnProgram, site: Site = CLUSTER, **values: object) -> Plan:
    asked = own_request(program, LaunchRequest("", set=values))  # type: ignore[arg-type]
    return make_plan(asked, recipe_of(asked), site, Facts(PATHS, "anna", 1795271000.0, "0.1.0", None), RUN_ID)


def parameters(program: OwnProgram) -> dict[str, object]:
    return {name: each.default for name, each in recipe_of(LaunchRequest("", own=program)).parameters.items()}


def told(plan: Plan) -> str:
    return "\n".join((*plan.notes, *plan.warnings))


def test_a_config_s_values_have_the_names_that_rules_know(home: Path) -> None:
    assert parameters(own(home, "--config", "conf.yaml")) == {
        "config": "conf.yaml",
        "lr": 0.0001,
        "batch_size": 32,
        "gradient_accumulation": 2,
        "eval.batch_size": 64,
        "data": "/data/corpus",
        "amp": False,
    }


@pytest.mark.parametrize(
    "words",
    [
        ("--config", "conf.yaml"),
        ("--config=conf.yaml",),
        ("-c", "conf.yaml"),
        ("--job.config_file", "conf.yaml", "--debug"),
        ("--debug", "--config-file=conf.yaml"),
        ("conf.yaml",),
        ("fit", "conf.yaml", "--seed", "3"),
        ("cfg=conf.yaml",),
        ("--amp", "conf.yaml"),
    ],
)
def test_only_the_word_that_named_the_file_is_replaced(home: Path, words: tuple[str, ...]) -> None:
    assert planned(own(home, *words)).command == ("train.py", *words)
    changed = planned(own(home, *words), batch_size=16)
    copy = f"{changed.run_dir}/config/conf.yaml"
    assert changed.command == ("train.py", *(word.replace("conf.yaml", copy) for word in words))
    assert changed.copies[0].text == CONFIG.replace("batch_size: 32", "batch_size: 16")
    assert (home / "conf.yaml").read_text() == CONFIG


def test_a_file_that_the_program_s_own_default_names_is_read_too(home: Path) -> None:
    (home / "train.py").write_text("parser.add_argument('--config', default='conf.yaml')\n")
    changed = planned(own(home), batch_size=16)
    assert changed.command == ("train.py", "--config", f"{changed.run_dir}/config/conf.yaml")


def test_another_config_can_be_asked_for_and_is_then_the_one_that_is_read(home: Path) -> None:
    (home / "other.json").write_text('{"batch_size": 8}')
    program = own(home, "--config", "conf.yaml")
    assert planned(program, config="other.json").command == ("train.py", "--config", "other.json")
    changed = planned(program, config="other.json", batch_size=4)
    assert (changed.parameters["batch_size"], changed.copies[0].text) == (4, '{"batch_size": 4}')
    assert changed.command[-1] == f"{changed.run_dir}/config/other.json"


def test_a_launcher_s_config_counts_as_well(home: Path) -> None:
    (home / "acc.yaml").write_text("mixed_precision: 'no'\nnum_processes: 4\n")
    words = ("accelerate", "launch", "--config_file", "acc.yaml", "train.py", "--lr", "0.1")
    changed = planned(own(home, *words, what=None), precision="bf16")
    assert changed.parameters["lr"] == 0.1
    assert changed.copies[0].text == "mixed_precision: 'bf16'\nnum_processes: 4\n"


def test_the_plan_the_script_and_run_json_show_the_changes_of_a_config(home: Path) -> None:
    plan = planned(own(home, "--config", "conf.yaml"), batch_size=16)
    assert "conf.yaml: the run gets a copy with train.batch_size = 16 (it says 32)" in plan.notes
    assert plan.run_json["configs"] == [
        {
            "file": str(home / "conf.yaml"),
            "copy": "config/conf.yaml",
            "changes": {"train.batch_size": {"from": 32, "to": 16}},
        }
    ]
    assert "  batch_size: 16   # per GPU" in plan.script.splitlines()


@pytest.mark.parametrize("text", ["lr: 1", "lr: 1\r\nnote: $HOME `id` $(id) 'x' \\n\r\n\r\n"])
def test_the_script_writes_the_copy_byte_for_byte(home: Path, text: str) -> None:
    (home / "conf.yaml").write_bytes(text.encode())
    plan = planned(own(home, "conf.yaml"), lr=0.5)
    lines = plan.script.split("\n")
    start = next(index for index, line in enumerate(lines) if line == 'mkdir -p "$RUN_DIR"/config')
    part = "\n".join(lines[start : lines.index("fi", start) + 1])
    subprocess.run(
        ["bash", "-euc", part], env={"RUN_DIR": str(home / "run"), "PATH": "/usr/bin:/bin"}, check=True
    )
    written = (home / "run" / "config" / "conf.yaml").read_bytes()
    assert written == text.replace("lr: 1", "lr: 0.5").encode()


def test_with_two_candidates_neither_is_taken_until_the_person_names_one(home: Path) -> None:
    (home / "conf.yaml").write_text("encoder: {lr: 0.1}\ndecoder: {lr: 0.2}\n")
    assert "lr" not in parameters(own(home, "conf.yaml"))
    plan = planned(own(home, "conf.yaml"))
    assert "lr is not guessed: conf.yaml: encoder.lr and conf.yaml: decoder.lr could be it" in told(plan)
    said = planned(own(home, "conf.yaml", lr="decoder.lr"), lr=0.3)
    assert said.copies[0].text == "encoder: {lr: 0.1}\ndecoder: {lr: 0.3}\n"
    by_path = planned(own(home, "conf.yaml"), **{"encoder.lr": 0.3})
    assert by_path.copies[0].text == "encoder: {lr: 0.3}\ndecoder: {lr: 0.2}\n"


def test_a_value_for_a_name_that_two_keys_could_mean_is_refused_with_the_keys(home: Path) -> None:
    (home / "conf.yaml").write_text("optim: {lr: 0.1}\nsched: {lr: 0.2}\n")
    with pytest.raises(UserError, match="lr is not guessed") as refused:
        planned(own(home, "conf.yaml"), lr=0.3)
    assert refused.value.message == (
        "--set lr: lr is not guessed: conf.yaml: optim.lr and conf.yaml: sched.lr could be it"
    )
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("name one of them, as in --set optim.lr=0.3; or write `parameters =")


def test_an_own_program_is_not_called_a_recipe(home: Path) -> None:
    with pytest.raises(UserError, match="--set width: your program has no parameter 'width'"):
        planned(own(home, "conf.yaml"), width=3)


def test_the_command_line_wins_and_unclear_options_are_not_guessed(home: Path) -> None:
    said = planned(own(home, "--config", "conf.yaml", "--lr", "0.5"), lr=0.25)
    assert (said.command[-1], said.copies) == ("0.25", ())
    (home / "train.py").write_text("parser.add_argument('--lr', type=float, default=0.1)\n")
    assert "lr" not in parameters(own(home, "--config", "conf.yaml"))
    assert "lr is not guessed: conf.yaml: optim.lr and --lr could be it" in told(
        planned(own(home, "--config", "conf.yaml"))
    )
    assert planned(own(home, "--config", "conf.yaml", lr="--lr"), lr=0.2).command[-2:] == ("--lr", "0.2")


def test_an_option_named_like_a_key_is_changed_in_the_file(home: Path) -> None:
    option = "parser.add_argument('--optim.lr', type=float, default=0.1)\n"
    (home / "train.py").write_text(option + "parser.add_argument('--seed', type=int, default=0)\n")
    (home / "conf.yaml").write_text("optim: {lr: 0.01}\nseed: 3\n")
    program = own(home, "--config", "conf.yaml")
    assert parameters(program) == {"config": "conf.yaml", "lr": 0.01, "seed": 3}
    changed = planned(program, lr=0.02, seed=4)
    assert changed.copies[0].text == "optim: {lr: 0.02}\nseed: 4\n"
    assert changed.command[3:] == ()
    said = planned(own(home, "--config", "conf.yaml", "--seed", "5"), seed=6)
    assert (said.command[-1], said.copies) == ("6", ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("batch_size: 32\n_base_: base.py\n", "_base_ names base.py, which counts from its directory"),
        ("batch_size: 32\nvocab: words.txt\n", "vocab names words.txt, which counts from its directory"),
        ("batch_size: 32\nhub_token: hf_abcdefghijklmnopqrstuv\n", "it holds a secret"),
        ("batch_size: 32\ndefaults: [small]\n", "defaults.0 names small, which counts from its directory"),
        ("batch_size: 32\n# \u202etxt\n", "it holds control characters"),
        ("batch_size: 32\nmodel: !include model.yaml\n", "it includes another file"),
    ],
)
def test_a_config_file_that_cannot_be_copied_is_refused_with_the_changed_text(
    home: Path, text: str, why: str
) -> None:
    (home / "configs").mkdir()
    (home / "configs" / "words.txt").write_text("")
    (home / "configs" / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=why) as refused:
        planned(own(home, "--config", "configs/a.yaml"), batch_size=16)
    assert {"-batch_size: 32", "+batch_size: 16"} < set(refused.value.diff)
    assert "hf_abc" not in "\n".join((refused.value.message, *refused.value.diff))


def test_a_relative_path_in_a_copied_file_is_a_warning(home: Path) -> None:
    (home / "conf.yaml").write_text("lr: 0.1\nout: ./results\n")
    assert "conf.yaml: out = ./results: a program that lets them count from its config file" in told(
        planned(own(home, "conf.yaml"), lr=0.2)
    )


def test_a_secret_of_a_config_is_no_parameter(home: Path) -> None:
    (home / "conf.yaml").write_text("lr: 0.1\nwandb: {api_key: 0123456789abcdef}\n")
    assert set(parameters(own(home, "conf.yaml"))) == {"amp", "lr"}


def test_a_pipe_is_not_waited_for_and_a_bare_name_is_no_path(home: Path) -> None:
    os.mkfifo(home / "pipe.yaml")
    assert set(parameters(own(home, "pipe.yaml"))) == {"amp"}
    (home / "configs" / "small").mkdir(parents=True)
    (home / "configs" / "a.yaml").write_text("lr: 0.1\nmodel: small\n")
    assert planned(own(home, "configs/a.yaml"), lr=0.2).copies[0].text == "lr: 0.2\nmodel: small\n"


@pytest.mark.parametrize("words", [("--train_file", "conf.yaml"), ("--out=conf.yaml",), ("gone.yaml",)])
def test_data_and_files_that_are_not_there_are_no_config(home: Path, words: tuple[str, ...]) -> None:
    assert "batch_size" not in parameters(own(home, *words))


HYDRA = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg): ...
"""


def test_a_value_of_hydra_s_own_file_is_changed_by_a_word_on_the_command_line(home: Path) -> None:
    (home / "train.py").write_text(HYDRA)
    (home / "conf").mkdir()
    (home / "conf" / "config.yaml").write_text("defaults: [model: small]\n" + CONFIG)
    program = own(home)
    assert parameters(program).items() >= {"lr": 1e-4, "batch_size": 32, "gradient_accumulation": 2}.items()
    plan = planned(program, lr=0.5, batch_size=8)
    assert plan.command == ("train.py", "optim.lr=0.5", "train.batch_size=8")
    assert plan.copies == ()
    assert parameters(own(home, "optim.lr=0.2"))["lr"] == 0.2


@pytest.mark.parametrize(
    "words",
    [
        ("--config-name", "big"),
        ("--config-name=big.yaml",),
        ("-cn", "big"),
        ("--config-path", "other", "-cn=config"),
    ],
)
def test_the_config_that_the_command_line_names_for_hydra_is_the_one_that_is_read(
    home: Path, words: tuple[str, ...]
) -> None:
    (home / "train.py").write_text(HYDRA)
    for folder, name, lr in (("conf", "config", 0.1), ("conf", "big", 0.5), ("other", "config", 0.5)):
        (home / folder).mkdir(exist_ok=True)
        (home / folder / f"{name}.yaml").write_text(f"optim:\n  lr: {lr}\n")
    plan = planned(own(home, *words))
    assert plan.parameters["lr"] == 0.5
    assert plan.command == ("train.py", *words)


def test_a_hydra_application_without_a_file_that_can_be_read_has_no_more_parameters(home: Path) -> None:
    (home / "train.py").write_text(HYDRA)
    assert "lr" not in parameters(own(home))


def test_a_diff_of_a_config_shows_no_line_that_may_hold_a_secret(home: Path) -> None:
    in_a_value = ("wandb: {api_key: 0123456789abcdef}", "password: hunter22")
    for secret in (*in_a_value, "# hf_abcdefghijklmnopqrstuvwxyz012345"):
        file = home / "conf.yaml"
        file.write_text(f"{secret}\nlr: 0.1\n# the end\n")
        config = config_of(own(home, "--config", "conf.yaml"), {})
        lines = diff_of(config.files[0], file.read_text().replace("0.1", "0.2"))
        assert [line for line in lines if line[:1] in "+-"][2:] == ["-lr: 0.1", "+lr: 0.2"]
        assert not [line for line in lines if secret in line]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"lr": 0.1, "best": Infinity, "clip": NaN, "far": 1e999}'),
        ("a.toml", "lr = 0.1\nbest = inf\nclip = nan\n"),
        ("a.yaml", "lr: 0.1\nbest: .inf\nfar: 1e999\n"),
    ],
)
def test_a_config_with_numbers_that_are_not_finite_is_launched(home: Path, name: str, text: str) -> None:
    (home / name).write_text(text)
    (home / "train.py").write_text('parser.add_argument("--patience", type=float, default=1e999)\n')
    plan = planned(own(home, "--config", name, "--limit", "1e999"), lr=0.5)
    assert plan.parameters == {"config": name, "limit": "1e999", "lr": 0.5}
    assert plan.copies[0].text == text.replace("0.1", "0.5")
