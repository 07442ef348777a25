"""An own program with its values in a config file: its parameters, their change on the command line, and the
lines that a person has to change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coach.launch.own_config import read_values
from coach.launch.own_program import own_request, read_own_program
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import recipe_of
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnProgram, Plan, Scalar
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


def to_change(program: OwnProgram, **values: object) -> list[str]:
    """The lines that a person has to change for a launch with these values."""
    with pytest.raises(UserError) as refused:
        planned(program, **values)
    return [line.removeprefix(f"{program.directory}/") for line in refused.value.diff]


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
def test_a_value_of_a_file_that_a_word_names_is_changed_by_its_owner(
    home: Path, words: tuple[str, ...]
) -> None:
    plan = planned(own(home, *words))
    assert (plan.command, plan.parameters["batch_size"]) == (("train.py", *words), 32)
    assert to_change(own(home, *words), batch_size=16) == ["conf.yaml:4: train.batch_size: 32 → 16"]


def test_a_file_that_the_program_s_own_default_names_is_read_too(home: Path) -> None:
    (home / "train.py").write_text("parser.add_argument('--config', default='conf.yaml')\n")
    assert to_change(own(home), batch_size=16) == ["conf.yaml:4: train.batch_size: 32 → 16"]


def test_another_config_can_be_asked_for_and_is_then_the_one_that_is_read(home: Path) -> None:
    (home / "other.json").write_text('{"batch_size": 8}')
    program = own(home, "--config", "conf.yaml")
    assert planned(program, config="other.json").command == ("train.py", "--config", "other.json")
    assert to_change(program, config="other.json", batch_size=4) == ["other.json:1: batch_size: 8 → 4"]


def test_a_launcher_s_config_counts_as_well(home: Path) -> None:
    (home / "acc.yaml").write_text("mixed_precision: 'no'\nnum_processes: 4\n")
    words = ("accelerate", "launch", "--config_file", "acc.yaml", "train.py", "--lr", "0.1")
    assert planned(own(home, *words, what=None)).parameters["lr"] == 0.1
    lines = to_change(own(home, *words, what=None), precision="bf16")
    assert lines == ["acc.yaml:1: mixed_precision: no → bf16"]


def test_the_refusal_names_every_line_and_the_rest_of_the_launch(home: Path) -> None:
    program = own(home, "--config", "conf.yaml")
    with pytest.raises(UserError) as refused:
        planned(program, batch_size=16, gradient_accumulation=4, amp=True, lr=5e-05)
    assert refused.value.message == (
        "lr, batch_size, gradient_accumulation: set in a config file of your program, which coach does not "
        "write"
    )
    assert refused.value.hint == "change it there, and launch it again with --set amp=true"
    assert refused.value.diff == (
        f"{home}/conf.yaml:2: optim.lr: 0.0001 → 5.0e-05",
        f"{home}/conf.yaml:4: train.batch_size: 32 → 16",
        f"{home}/conf.yaml:5: train.gradient_accumulation_steps: 2 → 4",
    )
    assert (home / "conf.yaml").read_text() == CONFIG


def test_with_two_candidates_neither_is_taken_until_the_person_names_one(home: Path) -> None:
    (home / "conf.yaml").write_text("encoder: {lr: 0.1}\ndecoder: {lr: 0.2}\n")
    assert "lr" not in parameters(own(home, "conf.yaml"))
    plan = planned(own(home, "conf.yaml"))
    assert "lr is not guessed: conf.yaml: encoder.lr and conf.yaml: decoder.lr could be it" in told(plan)
    decided = to_change(own(home, "conf.yaml", lr="decoder.lr"), lr=0.3)
    assert decided == ["conf.yaml:2: decoder.lr: 0.2 → 0.3"]
    by_path = to_change(own(home, "conf.yaml"), **{"encoder.lr": 0.3})
    assert by_path == ["conf.yaml:1: encoder.lr: 0.1 → 0.3"]


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
    assert said.command[-1] == "0.25"
    (home / "train.py").write_text("parser.add_argument('--lr', type=float, default=0.1)\n")
    assert "lr" not in parameters(own(home, "--config", "conf.yaml"))
    assert "lr is not guessed: conf.yaml: optim.lr and --lr could be it" in told(
        planned(own(home, "--config", "conf.yaml"))
    )
    assert planned(own(home, "--config", "conf.yaml", lr="--lr"), lr=0.2).command[-2:] == ("--lr", "0.2")


@pytest.mark.parametrize(
    "declared",
    [
        "p.add_argument('--optim.lr', type=float, default=0.1)\np.add_argument('--seed', type=int)\n",
        "@click.option('--optim.lr', default=0.1)\n@click.option('--seed')\ndef main(seed): ...\n",
    ],
)
def test_an_option_named_like_a_key_is_changed_on_the_command_line(home: Path, declared: str) -> None:
    (home / "train.py").write_text(declared)
    (home / "conf.yaml").write_text("optim: {lr: 0.01}\nseed: 3\n")
    program = own(home, "--config", "conf.yaml")
    assert parameters(program) == {"config": "conf.yaml", "lr": 0.01, "seed": 3}
    assert planned(program, lr=0.02).command[3:] == ("--optim.lr", "0.02")
    assert planned(program, seed=4).command[3:] == ("--seed", "4")
    said = planned(own(home, "--config", "conf.yaml", "--seed", "5"), seed=6)
    assert said.command == ("train.py", "--config", "conf.yaml", "--seed", "6")


def test_a_flag_named_like_a_key_turns_it_on_and_a_line_of_the_file_turns_it_off(home: Path) -> None:
    (home / "conf.yaml").write_text("amp: false\n")
    assert planned(own(home, "--config", "conf.yaml"), amp=True).command[3:] == ("--amp",)
    (home / "conf.yaml").write_text("amp: true\n")
    assert to_change(own(home, "--config", "conf.yaml"), amp=False) == ["conf.yaml:1: amp: true → false"]


def test_an_option_that_takes_several_values_changes_no_key(home: Path) -> None:
    (home / "train.py").write_text("parser.add_argument('--seed', type=int, nargs='+')\n")
    (home / "conf.yaml").write_text("seed: 3\n")
    assert to_change(own(home, "--config", "conf.yaml"), seed=4) == ["conf.yaml:1: seed: 3 → 4"]


def test_a_secret_of_a_config_is_no_parameter(home: Path) -> None:
    (home / "conf.yaml").write_text("lr: 0.1\nwandb: {api_key: 0123456789abcdef}\n")
    assert set(parameters(own(home, "conf.yaml"))) == {"amp", "lr"}


def test_a_pipe_is_not_waited_for(home: Path) -> None:
    os.mkfifo(home / "pipe.yaml")
    assert set(parameters(own(home, "pipe.yaml"))) == {"amp"}


@pytest.mark.parametrize("words", [("--train_file", "conf.yaml"), ("--out=conf.yaml",), ("gone.yaml",)])
def test_data_and_files_that_are_not_there_are_no_config(home: Path, words: tuple[str, ...]) -> None:
    assert "batch_size" not in parameters(own(home, *words))


def test_a_batch_file_s_own_options_are_changed_in_it_and_its_config_by_its_owner(home: Path) -> None:
    (home / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --time=5\n# not other.yaml\n"
        "python train.py --num_workers 2 \\\n  --config conf.yaml\n"
    )
    (home / "other.yaml").write_text("lr: 9\n")
    program = own(home, what="job.sh")
    known = {"num_workers": 2, "lr": 1e-4, "batch_size": 32, "gradient_accumulation": 2}
    assert parameters(program).items() >= known.items()
    assert "--num_workers 4" in planned(program, num_workers=4).script
    assert to_change(program, batch_size=16) == ["conf.yaml:4: train.batch_size: 32 → 16"]


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
    said = parameters(own(home, "optim.lr=0.2"))
    assert (said["lr"], "optim.lr" in said) == (0.2, False)


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


def test_a_precision_of_hydra_s_file_keeps_its_spelling(home: Path) -> None:
    (home / "train.py").write_text(HYDRA)
    (home / "conf").mkdir()
    (home / "conf" / "config.yaml").write_text("trainer: {precision: 16-mixed}\n")
    assert planned(own(home), precision="bf16").command == ("train.py", "trainer.precision=bf16-mixed")


def test_a_hydra_application_without_a_file_that_can_be_read_has_no_more_parameters(home: Path) -> None:
    (home / "train.py").write_text(HYDRA)
    assert "lr" not in parameters(own(home))


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
    plan = planned(own(home, "--config", name, "--limit", "1e999"))
    assert plan.parameters.items() >= {"config": name, "limit": "1e999", "lr": 0.1}.items()
    assert "Infinity" not in json.dumps([each for each in plan.parameters.values() if type(each) is float])


YAML = """# tuned by hand
optim: {name: adamw, lr: 1e-4}   # do not raise
train:
  batch_size: 32 # per GPU
  precision: '16-mixed'
  resume: ~
  amp: yes
shared: &base
  width: 64
model:
  <<: *base
  layers: [1, 2]
"""
JSON = r"""{
TAB"optim": {"lr": 0.1, "betas": [0.9,0.95]},
TAB"batch_size" : 32,
TAB"amp":true, "name": "a\/b"
}
""".replace("TAB", "\t")
TOML = """title = "a b"  # kept
[optim]
lr = 1e-3 # kept
betas = [0.9, 0.95]
[[data]]
batch_size = 8
[training]
batch_size = 32
steps.max = 10
inner = {width = 4}
"""


def values(text: str, suffix: str) -> dict[str, tuple[Scalar, int]]:
    return {each.name: (each.value, each.line) for each in read_values(Path(f"a{suffix}"), text)}


def test_values_are_read_from_yaml_with_their_lines() -> None:
    assert values(YAML, ".yaml") == {
        "optim.name": ("adamw", 2),
        "optim.lr": (0.0001, 2),
        "train.batch_size": (32, 4),
        "train.precision": ("16-mixed", 5),
        "train.amp": (True, 7),
        "shared.width": (64, 9),
        "model.layers.0": (1, 12),
        "model.layers.1": (2, 12),
    }


def test_values_are_read_from_json_with_tabs() -> None:
    assert values(JSON, ".json") == {
        "optim.lr": (0.1, 2),
        "optim.betas.0": (0.9, 2),
        "optim.betas.1": (0.95, 2),
        "batch_size": (32, 3),
        "amp": (True, 4),
        "name": ("a/b", 4),
    }


def test_values_are_read_from_toml_tables() -> None:
    assert values(TOML, ".toml") == {
        "title": ("a b", 1),
        "optim.lr": (0.001, 3),
        "training.batch_size": (32, 8),
        "training.steps.max": (10, 9),
        "training.inner.width": (4, 10),
    }


def test_of_a_key_that_occurs_twice_the_last_value_counts_as_for_its_readers() -> None:
    assert values("lr: 0.1\nlr: 0.2\n", ".yaml") == {"lr": (0.2, 2)}


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".toml"])
@pytest.mark.parametrize("text", ["[1, 2]", "{", "a: 1\n---\nb: 2\n", "&a [*a]", "[" * 5000])
def test_text_that_is_no_config_is_refused(text: str, suffix: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of two parsers
        read_values(Path(f"a{suffix}"), text)


def test_brackets_that_never_close_are_no_config_file() -> None:
    with pytest.raises(ValueError, match="more than 100 brackets within each other"):
        read_values(Path("a.yaml"), "a: " + "[" * 3000)
    assert [value for value, _ in values("a: " + "[" * 90 + "1" + "]" * 90, ".yaml").values()] == [1]
