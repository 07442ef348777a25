"""One curve as printed lines, as a CSV file and as a run's metrics: `coach check` says the same of it."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.forked import typed_coach
from tests.rules.examples import causes, judge, run, steps

Row = dict[str, float]
Curve = Callable[[random.Random], Sequence[Row]]


def rows(
    losses: Iterable[float], counter: str = "step", every: int = 10, first: int = 0, **more: float
) -> list[Row]:
    return [{counter: first + every * place, "loss": loss, **more} for place, loss in enumerate(losses)]


def by_epoch(losses: Iterable[float]) -> list[Row]:
    return rows(losses, "epoch", every=1)


def falling(share: float) -> float:
    return 0.3 + 2.1 * math.exp(-5 * share)


def learned(chance: random.Random, count: int = 300) -> list[float]:
    return [falling(place / count) * (1 + chance.gauss(0, 0.03)) for place in range(count)]


def not_finite(chance: random.Random) -> Sequence[Row]:
    return rows([*learned(chance)[:200], *[math.nan] * 100])


def without_norms(chance: random.Random) -> Sequence[Row]:
    found = rows((2.3 + chance.gauss(0, 0.05) for _ in range(300)), grad_norm=1.1)
    return [row if place < 100 else {**row, "grad_norm": math.nan} for place, row in enumerate(found)]


def rising(chance: random.Random) -> Sequence[Row]:
    return rows(1.2 + 7.8 * step / 300 for step in range(300))


def rising_after_a_fall(chance: random.Random) -> Sequence[Row]:
    fall = [2.3 - 2.19 * step / 300 for step in range(300)]
    return rows(
        loss * (1 + chance.gauss(0, 0.03)) for loss in [*fall, *(0.11 + 5.4 * s / 300 for s in range(300))]
    )


def rising_in_noise(chance: random.Random) -> Sequence[Row]:
    return rows(1.2 + 0.8 * step / 2000 + chance.gauss(0, 0.2) for step in range(2000))


def rising_by_epoch(chance: random.Random) -> Sequence[Row]:
    return by_epoch(0.9 * 1.03**epoch + chance.gauss(0, 0.01) for epoch in range(40))


def jumped(good: Sequence[float], peak: Sequence[float], count: int) -> Curve:
    return lambda chance: rows([*good, *peak, *(8 + chance.gauss(0, 0.1) for _ in range(count))])


GOOD = (2.3, 2.25, 2.2, 2.1, 2.0)


def spiked(chance: random.Random) -> Sequence[Row]:
    losses = learned(chance)
    for start in (120, 180, 240):
        losses[start : start + 5] = [9.0] * 5
    return rows(losses)


def guessing(counter: str, every: int, count: int, classes: int) -> Curve:
    return lambda chance: rows(
        (math.log(classes) + chance.gauss(0, 0.002) for _ in range(count)), counter, every
    )


def exploding(chance: random.Random) -> Sequence[Row]:
    found = rows(4.1 + chance.gauss(0, 0.02) for _ in range(300))
    return [{**row, "grad_norm": 4 * 1.04**place} for place, row in enumerate(found)]


def rate_used_up(counter: str, every: int) -> Curve:
    def curve(chance: random.Random) -> Sequence[Row]:
        found = rows((falling(min(place, 60) / 60) for place in range(120)), counter, every)
        return [{**row, "lr": max(0.0, 3e-4 * (1 - place / 72))} for place, row in enumerate(found)]

    return curve


def overfitted(chance: random.Random) -> Sequence[Row]:
    return [{**row, "val_loss": 0.9 + abs(row["epoch"] - 6) / 10} for row in by_epoch(learned(chance, 20))]


def shaken(chance: random.Random) -> Sequence[Row]:
    """A loss that explodes twice, falls each time, and stays far above its first value."""
    fall = [24.0 - 16.0 * share / 28 + chance.gauss(0, 0.1) for share in range(29)]
    return rows([1.34, 6.0, *fall, *fall])


ILL: dict[str, tuple[str, Curve]] = {
    "NaN": ("NUM001", not_finite),
    "a norm that is NaN": ("NUM003", without_norms),
    "a slow rise": ("NUM006", rising),
    "a rise after a fall": ("NUM006", rising_after_a_fall),
    "a rise of two thirds over 2,000 steps": ("NUM006", rising_in_noise),
    "a rise by epoch": ("NUM006", rising_by_epoch),
    "a jump in the first steps": ("NUM006", jumped(GOOD, (), 60)),
    "a jump in the first steps of a long log": ("NUM006", jumped(GOOD, (), 290)),
    "an explosion in the second step": ("NUM006", jumped((1.4,), (26.0,), 100)),
    "an explosion over some steps": ("NUM006", jumped((1.4,), (3.0, 7.0, 12.0, 19.0, 26.0, 14.0), 200)),
    "a rise that doubles in the first steps": (
        "NUM006",
        jumped((1.4, 1.44), (2.6, 4.0, 7.2, 11.0, 14.0, 12.0), 54),
    ),
    "an explosion that falls and never comes back": ("NUM006", shaken),
    "spikes": ("NUM007", spiked),
    "a guess by step": ("NUM008", guessing("step", 10, 80, 10)),
    "a guess by epoch": ("NUM008", guessing("epoch", 1, 60, 2)),
    "a guess in few epochs": ("NUM008", guessing("epoch", 1, 15, 10)),
    "a loss of 0": ("NUM008", lambda chance: rows([0.0] * 300)),
    "a loss that falls to 0 at once": ("NUM008", lambda chance: rows([*learned(chance)[:60], *[0.0] * 60])),
    "norms of 0": (
        "NUM009",
        lambda chance: rows((4.1 + chance.gauss(0, 0.2) for _ in range(60)), grad_norm=0),
    ),
    "a norm that explodes": ("NUM010", exploding),
    "a rate of 0": ("NUM011", rate_used_up("step", 10)),
    "a rate of 0 by epoch": ("NUM011", rate_used_up("epoch", 1)),
    "overfitting": ("NUM013", overfitted),
}


def _annealed(chance: random.Random) -> Sequence[Row]:
    """Warm restarts: each cycle ends lower than the one before."""
    return rows(
        falling(step / 400) + 0.25 * (1 + math.cos(math.pi * (step % 100) / 100)) + chance.gauss(0, 0.03)
        for step in range(400)
    )


def _by_length(chance: random.Random) -> Sequence[Row]:
    """Data sorted by length: the loss rises through each epoch, and each epoch is lower than the last."""
    return rows(
        (1 + 2 * (step % 60) / 60) * 2 * 0.6 ** (step // 60) + chance.gauss(0, 0.02) for step in range(300)
    )


def _remembered(chance: random.Random) -> Sequence[Row]:
    """A fall at the start of each epoch, and a little rise in it: the model remembers the samples."""
    return rows(
        (1.3, 0.9, 0.5, 0.3)[step // 80] * (1 + 0.1 * (step % 80) / 80) + chance.gauss(0, 0.02)
        for step in range(320)
    )


HEALTHY: dict[str, Curve] = {
    "a fall": lambda chance: rows(learned(chance)),
    "a fall by epoch": lambda chance: by_epoch(learned(chance, 40)),
    "a loss high at the start": lambda chance: rows(
        [9.4, 26.0, 19.0, 12.0, *(8 * falling(s / 200) / 2.4 + chance.gauss(0, 0.05) for s in range(200))]
    ),
    "a rise within the noise": lambda chance: rows(
        1.0 + 0.15 * step / 300 + chance.gauss(0, 0.2) for step in range(300)
    ),
    "a flat fine-tuning": lambda chance: rows(1.1 * math.exp(chance.gauss(0, 0.4)) for _ in range(400)),
    "warm restarts": _annealed,
    "sorted data": _by_length,
    "sawteeth of epochs": _remembered,
    "a bump in the warm-up": lambda chance: [
        {**row, "lr": 1e-3 * min(1.0, (place + 1) / 40)}
        for place, row in enumerate(
            rows(
                falling(s / 300) * (1 + 0.4 * math.exp(-(((s - 20) / 10) ** 2))) + chance.gauss(0, 0.03)
                for s in range(300)
            )
        )
    ],
    "a warm-up whose loss rises until now": lambda chance: [
        {**row, "lr": 1e-5 * (place + 1)}
        for place, row in enumerate(rows(2.3 + 0.02 * s + chance.gauss(0, 0.03) for s in range(40)))
    ],
    "a sum of all losses": lambda chance: rows(1.3 * (s + 1) + chance.gauss(0, 0.1) for s in range(200)),
    "a mean that begins at 0": lambda chance: rows(
        (1 - 0.9 ** (s + 1)) * falling(s / 900) for s in range(120)
    ),
    "a loss that is learned down to 0": lambda chance: rows(2.3 * 0.93**s for s in range(300)),
    "an explosion that is on its way back": lambda chance: rows([2.3, *(400 / s for s in range(1, 60))]),
    "a first value of a part of the steps": lambda chance: rows(
        (0.1 if s == 0 else 1.0) * falling(s / 200) for s in range(200)
    ),
    "a spike that comes back": lambda chance: rows(
        falling(s / 300) + (4 * math.exp(-(s - 150) / 8) if s > 150 else 0) + chance.gauss(0, 0.02)
        for s in range(300)
    ),
    "a loss that learns after a plateau": lambda chance: by_epoch(
        [0.6931] * 8 + [0.6931 * math.exp(-0.15 * epoch) for epoch in range(40)]
    ),
    "a rate of 0 at the end": lambda chance: [
        {**row, "lr": 3e-4 * (1 - place / 120)}
        for place, row in enumerate(rows(falling(place / 120) for place in range(120)))
    ],
    "a rate printed with few digits": lambda chance: [
        {**row, "learning_rate": 1e-7} for row in rows(2.0 + chance.gauss(0, 0.1) for _ in range(100))
    ],
}


def printed(curve: Sequence[Row], folder: Path) -> Path:
    """Lines such as `step 10 loss 2.3000 lr 3.000e-04`."""
    lines = [" ".join(f"{name} {_shown(name, value)}" for name, value in row.items()) for row in curve]
    return _written(folder / "train.log", lines)


def in_columns(curve: Sequence[Row], folder: Path) -> Path:
    lines = [",".join(_shown(name, value) for name, value in row.items()) for row in curve]
    return _written(folder / "log.csv", [",".join(curve[0]), *lines])


def measured(curve: Sequence[Row], folder: Path) -> Path:
    """The directory of a run that ended."""
    run_dir = folder / "20261121-040000-mine-0000"
    (run_dir / "metrics").mkdir(parents=True)
    record = {"schema": 1, "run_id": run_dir.name, "recipe": "mine", "parameters": {}, "resources": {}}
    record |= {"backend": "local", "job_id": run_dir.name, "created_time_s": 1e9, "state": "COMPLETED"}
    (run_dir / "run.json").write_text(json.dumps(record))
    ended = {"schema": 1, "state": "COMPLETED", "ended_time_s": 1e9 + 9999, "exit_code": 0, "ranks": []}
    (run_dir / "exit.json").write_text(json.dumps(ended))
    lines = []
    for place, row in enumerate(curve):
        at = {"step": row.get("step", row.get("epoch")), "time_s": 1e9 + place}
        values = {name: str(value) if math.isnan(value) else value for name, value in row.items()}
        evaluated = values.pop("val_loss", None)
        lines.append(json.dumps({**values, **at}).replace('"nan"', '"NaN"'))
        if evaluated is not None:
            lines.append(json.dumps({"event": "eval", "loss": evaluated, **at}))
    _written(run_dir / "metrics" / "rank-0.jsonl", lines)
    return run_dir


def _shown(name: str, value: float) -> str:
    return f"{value:.0f}" if name in ("step", "epoch") else f"{value:.3e}" if name == "lr" else f"{value:.4f}"


def _written(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


PATHS = {"lines": printed, "csv": in_columns, "run": measured}


def findings(target: Path, folder: Path) -> list[str]:
    """The rules of the findings at warning or above, in order."""
    env = {**os.environ, "COACH_HOME": str(folder / "home"), "COACH_AS_ROOT": "1"}
    done = typed_coach(("check", target, "--backend", "local", "--format", "json"), env)
    assert done.returncode in (0, 1), done.stderr
    return [each["rule"] for each in json.loads(done.stdout)["findings"] if each["severity"] != "info"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ILL)
def test_an_ill_curve_is_named_on_each_path(name: str, path: str, tmp_path: Path) -> None:
    rule, curve = ILL[name]
    assert rule in findings(PATHS[path](curve(random.Random(1)), tmp_path), tmp_path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_curve_is_silent_on_each_path(name: str, path: str, tmp_path: Path) -> None:
    assert findings(PATHS[path](HEALTHY[name](random.Random(1)), tmp_path), tmp_path) == []


STAGES = {
    "a curriculum": "--- curriculum: sequences of {} tokens ---",
    "numbered stages": "[train] stage {} of 3",
    "longer sequences": "sequence length is {} now",
}


def _in_stages(announced: str, chance: random.Random, count: int = 500) -> list[str]:
    """Three stages, each harder than the one before; the last words on them lie far above the end."""
    lines = []
    for stage, level in enumerate((1.2, 2.1, 3.0)):
        lines.append(announced.format(stage + 1))
        for place in range(count):
            loss = level + 1.3 * math.exp(-place / 60) * (not stage) + chance.gauss(0, 0.05)
            lines.append(f"step {10 * (stage * count + place)} loss {loss:.4f}")
    return lines


@pytest.mark.parametrize("name", STAGES)
def test_a_rise_at_a_stage_that_the_log_announces_is_no_divergence(name: str, tmp_path: Path) -> None:
    log = _written(tmp_path / "train.log", _in_stages(STAGES[name], random.Random(1)))
    assert findings(log, tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "step {step} loss {loss:.4f} recon 0.2 kl 1.5 kl_weight {share:.3f}",
        "step {step} loss {loss:.4f} reward {share:.3f}",
        "step {step} || Task Loss: {loss:.4f} || KD Loss: {share:.3f}",
    ],
)
def test_a_loss_with_a_weight_that_grows_or_a_reward_may_rise(line: str, tmp_path: Path) -> None:
    lines = [line.format(step=step, loss=0.5 + step / 200, share=step / 300) for step in range(300)]
    assert findings(_written(tmp_path / "train.log", lines), tmp_path) == []


@pytest.mark.parametrize("announced", ["", "stage 1 of 1", "ZeRO stage 2 is enabled"])
def test_words_above_the_first_loss_do_not_explain_a_rise(announced: str, tmp_path: Path) -> None:
    lines = [announced, *(f"phase 1 step {step} loss {1.2 + step / 40:.4f}" for step in range(300))]
    assert findings(_written(tmp_path / "train.log", lines), tmp_path) == ["NUM006"]


def test_a_rise_is_told_while_the_run_goes_on() -> None:
    losses = [row["loss"] for row in rising_after_a_fall(random.Random(1))]
    assert causes(judge(steps(losses[:480]), run=run())) == ["loss_divergence"]
    assert causes(judge(steps(losses[:300]), run=run())) == []


_KERAS = (1.18, 1.04, 0.99, 0.94, 0.89, 0.85, 0.81, 0.79, 0.76, 0.74, 13.36, *[26.64] * 5)
_BEFORE_1_1 = "61878/61878 [==============================] - 5s - loss: "
"""Keras before 1.1 printed the number of the epoch on a line of its own (keras-team/keras issue 21)."""


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        ([f"Epoch {n}\n{_BEFORE_1_1}{loss:.4f}" for n, loss in enumerate(_KERAS)], ["NUM006"]),
        ([f"Epoch {n}\n{_BEFORE_1_1}{loss:.4f}" for n, loss in enumerate(_KERAS[:10])], []),
        (
            [
                f"epoch 1: {n} / 500 loss={2 + n % 7 / 100:.3f}, ppl=7.4, "
                f"gnorm={10 ** max(0, (n - 60) / 12):.3f}"
                for n in range(1, 121)
            ],
            ["NUM010"],
        ),
    ],
)
def test_a_fault_is_named_in_the_lines_of_older_programs(
    lines: list[str], rules: list[str], tmp_path: Path
) -> None:
    assert findings(_written(tmp_path / "train.log", lines), tmp_path) == rules


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("is_redrawn", [False, True])
def test_a_guess_is_seen_in_the_bars_of_keras(classes: int, is_redrawn: bool, tmp_path: Path) -> None:
    chance, lines = random.Random(1), []
    for epoch in range(1, 21):
        loss = math.log(classes) + chance.gauss(0, 0.002)
        lines.append(f"Epoch {epoch}/20")
        drawn = f"200/400 [=====>.....] - ETA: 4s - loss: {loss:.4f}"
        lines += [drawn] * is_redrawn
        lines.append(
            f"400/400 [==============] - 9s 21ms/step - loss: {loss:.4f} - accuracy: {1 / classes:.4f}"
        )
    lines.append(f"79/79 [==============] - 1s 9ms/step - loss: {loss:.4f}")
    assert findings(_written(tmp_path / "keras.log", lines), tmp_path) == ["NUM008"]


def _course(form: str, count: int = 120) -> list[str]:
    """Lines of a training whose loss falls. `{slow}` grows from 1 to 3, `{rate}` falls from 1 to a third."""
    return [
        form.format(
            step=10 * place,
            loss=falling(place / count),
            slow=1 + 2 * place / count,
            rate=1 / (1 + 2 * place / count),
        )
        for place in range(count)
    ]


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        (_course("step {step} loss {loss:.4f} avg_reader_cost: 0.6 s, avg_batch_cost: 0.9 s"), ["GPU005"]),
        (_course("step {step} loss {loss:.4f} iter time 0.9 load time 0.6"), ["GPU005"]),
        (_course("step {step} loss {loss:.4f} Data 0.001 (0.60) Time 0.3 (0.90)"), ["GPU005"]),
        (_course("step {step} loss {loss:.4f} data_cost: 0.01 sec, batch_cost: 0.9 sec"), []),
        (_course("step {step} loss {loss:.4f} data time 9.1, step time 0.9"), []),
        (_course("iter {step} lm loss {loss:.4f} elapsed time per iteration (ms): {slow:.4f}e3"), ["GPU017"]),
        (_course("step {step} loss {loss:.4f} tok/s {rate:.4f}e4"), ["GPU017"]),
        (_course("step {step} loss {loss:.4f} ips: {rate:.4f}e2 images/sec"), ["GPU017"]),
        (_course("step {step} loss {loss:.4f} tps: 9,100"), []),
        (
            _course("step {step} loss {loss:.4f} step_time 0.1")
            + _course("step {step} loss {loss:.4f} step_time 0.9"),
            [],
        ),
    ],
)
def test_the_speed_that_a_program_prints_is_judged(
    lines: list[str], rules: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n")
    assert findings(log, tmp_path) == rules


_EPOCHS = [
    f"Epoch: [{epoch}] step {400 * epoch} loss: {falling(epoch / 12):.4f} data: 0.86 time: 1.0"
    for epoch in range(1, 13)
]
_FIRST_AND_LATER = [
    f"Epoch: [{epoch}][{index}/250] Time {2.5 if index == 0 else 0.3} Data {2.4 if index == 0 else 0.001} "
    f"Loss {falling(epoch / 12):.4f}"
    for epoch in range(12)
    for index in (0, 100, 200)
]
_STEPS = "step {step}/2000 loss {loss:.4f} data_time 0.86 step_time 1.00"


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (_EPOCHS, "finding"),
        ([line.replace("step", "of 12, updates") for line in _EPOCHS], "finding"),
        (_EPOCHS[:4], "too_early"),
        ([line.replace("data: 0.86", "data: 0.01") for line in _EPOCHS], "healthy"),
        (_FIRST_AND_LATER, "healthy"),
        (_FIRST_AND_LATER[::3], "too_early"),
        ([f"Epoch {1 + n // 6} {_STEPS.format(step=n, loss=3 - n / 10)}" for n in range(1, 18)], "too_early"),
        ([f"Epoch {1 + n // 6} {_STEPS.format(step=n, loss=3 - n / 50)}" for n in range(1, 90)], "finding"),
        ([_STEPS.format(step=n, loss=3 - n / 10) for n in range(1, 18)], "too_early"),
    ],
)
def test_a_wait_is_told_of_few_lines_an_epoch_and_too_few_steps_are_never_healthy(
    lines: list[str], verdict: str, tmp_path: Path
) -> None:
    log = _written(tmp_path / "train.log", lines)
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1"}
    done = typed_coach(("check", log, "--backend", "local", "--format", "json"), env)
    checked = json.loads(done.stdout)
    assert checked["verdict"] == verdict
    assert [each["rule"] for each in checked["findings"]] == ["GPU005"] * (verdict == "finding")


@pytest.mark.parametrize(("mfu", "is_healthy"), [("0.31%", False), ("0.012", False), ("38.2%", True)])
def test_a_training_that_hardly_uses_its_gpu_is_not_called_healthy(
    mfu: str, is_healthy: bool, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(_course(f"step {{step}} loss {{loss:.4f}} mfu {mfu}")) + "\n")
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1"}
    done = typed_coach(("check", log, "--backend", "local", "--format", "json"), env)
    said = json.loads(done.stdout)
    assert (said["verdict"] == "healthy") is is_healthy
    assert ["GPU013"] * (not is_healthy) == [each["rule"] for each in said["findings"]]


@pytest.mark.parametrize(
    ("losses", "word"),
    [
        ([1.5 + 0.04 * (step % 3) - 0.002 * step for step in range(60)], "healthy"),
        ([18.5 * 0.97**step + 5.8 for step in range(60)], "unknown"),  # no tokenizer has a million tokens
        ([2.0, 2.1, 2.0, *[3.9 - 0.02 * step for step in range(57)]], "unknown"),  # above its first values
    ],
)
def test_healthy_is_not_said_of_a_loss_of_the_trainer_that_is_worse_than_a_guess_or_than_its_start(
    losses: list[float], word: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    row = "{{'loss': {:.4f}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': {:.2f}}}"
    log.write_text("".join(f"{row.format(loss, place / 50)}\n" for place, loss in enumerate(losses)))
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1"}
    done = typed_coach(("check", log, "--backend", "local", "--format", "json"), env)
    assert json.loads(done.stdout)["verdict"] == word


RESUMED = "=> loaded checkpoint 'last.pt' (epoch 3)"


@pytest.mark.parametrize(
    ("line", "after", "rules"),
    [
        (RESUMED, 2.1, ["NUM006"]),
        ("Resuming training from /runs/1/last.ckpt at step 2000", 2.1, ["NUM006"]),
        (RESUMED, 0.33, []),  # its state was restored
        ("loaded checkpoint of the backbone", 2.1, []),  # no training that is resumed
    ],
)
def test_a_jump_at_a_resume_is_told(line: str, after: float, rules: list[str], tmp_path: Path) -> None:
    lines = _course("step {step} loss {loss:.4f}")
    resumed = (after * 0.94**place for place in range(40))
    lines += [line, *(f"step {1100 + 10 * place} loss {loss:.4f}" for place, loss in enumerate(resumed))]
    assert findings(_written(tmp_path / "train.log", lines), tmp_path) == rules
