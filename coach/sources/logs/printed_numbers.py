"""Parse the numbers of a training from the lines that it prints, in any of these forms: `loss 0.5`, `'loss':
0.5`, `lm loss: 5.0E-01 |`, `loss=0.5]`.

A line counts if it names a training loss or an evaluation loss, and as long as no training loss was seen also
if it names the speed of a step. This module separates names from numbers; `quantities.py` interprets the
names. A line that counts within an epoch (`ep 1 | it 6/50`, a progress bar)
gets a step that grows over the epochs. A line that has an epoch and no step is numbered by the epoch, a line
that has neither by its position among these lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice

from coach.model.training.metrics import WORDS_OF_TOTAL_LOSS
from coach.sources.logs.line_text import parse_time_s
from coach.sources.logs.printed_speeds import Speeds, speed_of
from coach.sources.metrics.quantities import LINE_KEY, SPEEDS, Quantity, quantity_of
from coach.sources.values import whole

MAX_CHARS = 2048
_MAX_NUMBERS = 40

_NUMBER = re.compile(
    r"(?<![\w.@])(?P<number>[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,309})(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF))"
    r"(?: ?(?P<unit>%|(?:m?s|sec(?:ond)?s?)(?:/(?:it|iter|step|batch))?"
    r"|(?:it|iters?|steps?|batch(?:es)?|samples?|imgs?|images?|examples?|seqs?|tok(?:en)?s?)/s(?:ec(?:ond)?)?"
    r"(?![\"']?[:= ]{1,3}[-+]?\d))(?![\w/])|(?![\w.%]))"
)
"""The largest float has 309 digits before its point; one below 0.001 may have 20 behind it.
A rate before another number is the name of that one."""
_UNIT_OF_NAME = re.compile(r"[ _]?[(\[](?P<unit>m?s|sec(?:ond)?s?|s/it|iter/s)[)\]]\Z")
"""`elapsed time per iteration (ms): 100.1`, `'train_speed(s/it)': 42.51`."""
_AVERAGE = re.compile(
    r"(?:, {1,9}[\d.]{1,12}/s {0,2})?\s?\(\s{0,3}(?P<number>\d{1,9}\.\d{1,9}(?:e[-+]\d\d)?)(?: ?m?s)?\s?[),]"
)
"""`Data 0.201 (0.300)`, `Time: 0.320s,  400.32/s  (0.470s,  272.39/s)`: the value, then its average."""
_ROUNDED = re.compile(r"0\.0{2,}")
"""A learning rate that was printed as zero with few digits may be small but not zero."""
_MAX_WORDS = 4
_PARTS = re.compile(r"[|,;()\[\]{}]|\b[A-Z]{4,8}:[\w.]{1,60}:")
"""A name never extends across one of these, the last of which is the default prefix of `logging`:
`INFO:root:`."""
_AFTER_NAME = " \t\"'([:=|"
_STEP_WORDS = frozenset(
    {"step", "steps", "iter", "iters", "iteration", "iterations", "global_step", "it", "num_updates"}
    | {"acc_iter", "global_step/max_steps"}
)
_EPOCH_WORDS = frozenset({"epoch", "epochs", "ep"})
_GLUED = re.compile(
    r"(?<![\w/.-])(ep(?:och)?|step(?=.?\d+ ?[:\]|,;])|iter(?:ation)?)[_-]?(\d{1,9})(?=[ :\]|,;])",
    re.IGNORECASE,
)
"""`epoch1: loss 0.9`, `[step200] loss 0.9`: a counter without a space before its number."""
_BAR = re.compile(
    r"(?:[|━]|^)\s{0,9}(?P<n>\d{1,9})/(?P<total>\d{1,9}) "
    r"(?:\[(?:[\d:]{4,11}<|[=>.])|[━╸]|[\d.]{1,6}(?:it/s|s/it))"
)
"""The bars of tqdm (`100%|███| 50/50 [00:03<00:00`), Keras (`391/391 [====]`) and ultralytics (`100% ━━━ 8/8
3.1it/s`)."""
_IN_EPOCH = re.compile(
    r"(?:\b(?:it|iter|iteration|step|batch|mini-?batch)[\s:=#\[(]{1,3}|(?:\d\]|\biter\(train\))\s?\[\s{0,9}"
    r"|(?P<many>^train: {1,4}\d{1,9} \[|%\) \[) {0,9})"
    r"(?P<n>\d{1,9})\s?/\s{0,9}(?P<total>\d{1,9})(?![\d/.%])(?(many)|(?! ?\())",
    re.IGNORECASE,
)
"""`it 6/50`, `Batch 100/1000`, `Epoch: [0][ 10/5005]`, `Iter(train) [10/15230]`, `Train: 0 [  50/73 ( 70%)]`.
With `Train Epoch: 1 [640/60000 (1%)]` samples are counted."""
_COUNT_AT_START = re.compile(r"\s{0,9}(?P<n>\d{1,9})/\d{1,9}\s{1,3}(?=[a-zA-Z])")
"""`10/400 loss 2.1`."""
_EPOCH = re.compile(
    r"\bepoch(?:\(train\))? {0,4}\[(\d{1,9})\]|\btrain: {1,4}(\d{1,9})[ /]|\b(\d{1,9})epoch:train",
    re.IGNORECASE,
)
"""`Epoch(train)  [1]`, `Train: 0 [`, `1epoch:train:1-500batch`: an epoch that no name stands before."""
_OF_EPOCHS = re.compile(r"\bepochs?[:\s]{0,3}$", re.IGNORECASE)
"""The description of a bar whose steps are epochs."""
_PART = re.compile(r"(?<![\w/.-])([A-Za-z]{1,30}) [Ll](?:oss|OSS)(?![\w/.-])")
"""`Generator loss`: a loss with a word before it that may tell it from another one."""
_OF_THE_WHOLE = WORDS_OF_TOTAL_LOSS | frozenset(
    ["overall", "final", "initial", "model", "sec", "val", "valid", "validation", "eval", "test", "dev"]
)
"""Words before `loss` with which it is still the whole loss. `quantities.py` interprets those of
evaluations."""
_NO_TRAINING = re.compile(r"\b(?:val|valid|validat\w*|eval\w*|test|testing)\b", re.IGNORECASE)
_HEAD_OF_EVALUATION = re.compile(
    r"\b(?:val|valid|validat\w{1,4}|eval\w{0,7}|test(?:ing)?)(?:[ _](?:set|epoch|step|batch|iter))?"
    r"\s{0,3}(?:[:|\[\](]|\d|\)\s{0,3}\[|on ')",
    re.IGNORECASE,
)
"""`Test: [0/20] … Loss 6.9`, `Test set: Average loss: 0.05`, `| valid | epoch 001 | … loss 2.0`, `Epoch(val)
[1]`: the line is about an evaluation, although its loss is not called so."""
_BATCH = re.compile(r"\[\s{0,9}(?P<n>\d{1,9})/\s{0,9}(?P<total>\d{1,9})\]")
_OF = re.compile(r"/(\d{1,18})(?![\w.])")
"""The whole of a share: `Accuracy: 9800/10000`."""
_FUNCTION = re.compile(
    r"(?<![A-Za-z0-9])(?:mse|bce|nll|xent|cross[_ -]?entropy|ce)(?![A-Za-z0-9])"
    r"|(?<=train[_ /.-])(?:rmse|mae|objective)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
"""Losses by the name of their function. All fall as a training succeeds."""
ANEW = "is_anew"
"""Key of the record at which another curve begins: a log's plain loss takes the place of a part that was read
until then, or another run begins in the same log."""
_COUNTERS = frozenset({"step", "epoch", "position"})
LOSS_WORDS = re.compile(rb"loss|Loss|LOSS")
FUNCTION_WORDS = re.compile(
    rb"mse|MSE|Mse|bce|BCE|nll|NLL|xent|XENT|entropy|Entropy|CE|train[_ /.-](?:ce|mae|objective)"
)
SPEED_OR_LOSS_WORDS = re.compile(
    rb"loss|Loss|LOSS|(?:data|Data|wait|Wait|load|Load|read|Read|fetch|Fetch|input|Input|io|Io|IO"
    rb"|(?:step|Step|iter|Iter|batch|Batch)[_ ](?:time|Time|cost))"
    rb"[A-Za-z_ ]{0,24}[\"']?[:=(\s]{1,4}\d{1,9}\.\d|SamplesPerSec=|throughput/samples_per_sec:"
)
"""The last two are rates of DeepSpeed (`ThroughputTimer` in deepspeed/utils/timer.py) and Composer
(composer/callbacks/speed_monitor.py)."""
_WORDS_OF_SPEEDS = b"ata ait oad ead etch nput io Io IO ime cost amples".split()
"""One of them stands in each such line."""
_Meaning = tuple[str | None, tuple[str | None, str], str | None]
"""(name, speed, unit) of a number by the words before it."""
_MeaningOf = Callable[[str, str | None], _Meaning]
_LEAST_FALL = 0.2
"""Share of its first value by which a loss must have changed to tell another run from another epoch."""
_NEARLY_ALL = 0.9
"""Share of its length. A bar that came this far and then begins again counts the next epoch."""


def may_have_speeds(lines: Iterable[bytes]) -> bool:
    """False if only LOSS_WORDS can match one of the lines, which is found sooner."""
    text = b"\n".join(lines)
    return any(word in text for word in _WORDS_OF_SPEEDS)


def _meaning_of(before: str, part: str | None) -> _Meaning:
    """The meaning of the number behind a text."""
    before, unit = before.rstrip(_AFTER_NAME).lstrip("/"), None
    if before.endswith((")", "]")) and (in_name := _UNIT_OF_NAME.search(before)) is not None:
        before, unit = before[: in_name.start()], in_name["unit"]
    words = _PARTS.split(before.removesuffix("tensor").rstrip(_AFTER_NAME))[-1]
    words = words.replace('"', "").replace("'", "").split()[-_MAX_WORDS:]
    name = _name_of(words, part)
    return name, speed_of(words), unit


def record_of_line(
    text: str, part: str | None = None, meaning_of: _MeaningOf = _meaning_of, *, needs_loss: bool = True
) -> Mapping[str, float] | None:
    """Name → number of one line, with `step`, `epoch`, `time_s` and speeds (`printed_speeds.toml`) if the
    line has them; None for a line without a loss. A line that counts within an epoch has `position` and
    `length`, that of a progress bar also `is_bar`. If no loss is needed, a line with a speed counts too.

    If a name has two numbers, as in `Loss 0.52 (0.61)`, the first one counts; of a time and of an evaluation,
    the average. `Generator loss` counts only if `generator` is the `part`. `meaning_of` may remember.
    """
    text = text[:MAX_CHARS]
    if needs_loss and not _names_loss(text):
        return None
    text = _GLUED.sub(r"\1 \2", text)
    is_evaluation = _is_about_evaluation(text)
    record = _named_numbers(text, part, meaning_of, is_evaluation=is_evaluation)
    is_step = _has_loss(record) if needs_loss or is_evaluation else _has_speed(record)
    if not is_step:
        return None
    if is_evaluation:
        record = {
            f"val {name}" if _field_of(name) in ("loss", "accuracy") else name: value
            for name, value in record.items()
        }
        batch = _BATCH.search(text)  # its loss is not that of the evaluation
        is_read = _BAR.search(text) is None and (batch is None or int(batch["n"]) >= int(batch["total"]))
    else:
        is_read = _add_position(record, text)
    if not is_read:
        return None
    if (count := _COUNT_AT_START.match(text)) is not None and _COUNTERS.isdisjoint(record):
        record["step"] = float(count["n"])
    if (time_s := parse_time_s(text)) is not None:
        record["time_s"] = time_s
    return record


def _names_loss(text: str) -> bool:
    return "loss" in text or "Loss" in text or "LOSS" in text


def _named_numbers(
    text: str, part: str | None, meaning_of: _MeaningOf, *, is_evaluation: bool
) -> dict[str, float]:
    """The numbers of a line by their names."""
    record: dict[str, float] = {}
    speeds = Speeds()
    end = 0
    for found in islice(_NUMBER.finditer(text), _MAX_NUMBERS):
        name, speed, unit = meaning_of(text[end : found.start()], part)
        end, number = found.end(), found["number"]
        value = float(number.replace(",", ""))
        average = _AVERAGE.match(text, end)
        mean = value if average is None else float(average["number"])
        if speeds.take(speed, mean, unit or found["unit"], is_decimal="." in number):
            continue
        if name is None or (name == "step" and "e" in number):  # a bar rounds 2345 to 2.34e+3
            continue
        if _ROUNDED.fullmatch(number) and _field_of(name) == "lr":
            continue
        is_accuracy = _field_of(name) == "accuracy"
        if found["unit"] != "%" or is_accuracy:
            value = _value_of(found, mean if is_evaluation else value, is_accuracy=is_accuracy)
            record.setdefault(name, value)
    return record | speeds.of_line()


def _field_of(name: str) -> str | None:
    """The field of a step that a name stands for: `loss`, `accuracy`, `lr`."""
    quantity = quantity_of(name)
    return quantity.field if quantity is not None else None


def _has_loss(record: Mapping[str, float]) -> bool:
    """True if a loss is among the names, of the training or of an evaluation."""
    return "loss" in map(_field_of, record)


def _has_speed(record: Mapping[str, float]) -> bool:
    """True for the speed of a training step. One time without a counter may be about anything."""
    return "samples_per_s" in record or len((SPEEDS | _COUNTERS) & record.keys()) > 1


def _value_of(found: re.Match[str], value: float, *, is_accuracy: bool) -> float:
    """The number; of an accuracy such as `9800/10000` or `82.7%` the share."""
    if found["unit"] == "%":
        return value / 100
    of = _OF.match(found.string, found.end()) if is_accuracy else None
    return value / float(of[1]) if of is not None and value <= float(of[1]) > 0 else value


def _is_about_evaluation(text: str) -> bool:
    """True if words about an evaluation, and none about training, stand before the first loss of a line."""
    head = text.casefold().partition("loss")[0]
    return _HEAD_OF_EVALUATION.search(head) is not None and "train" not in head


def _name_of(words: Sequence[str], part: str | None = None) -> str | None:
    """The name of a number by the words before it: `step`, `epoch`, or the name of a known quantity; else
    None. A `loss` behind another word than those of a whole loss is not read, except behind `part`."""
    for start in range(len(words)):
        name = " ".join(words[start:])
        if not name[0].isalpha() and name[0] != "_":
            continue
        plain = name.casefold()
        if plain in _STEP_WORDS:
            return "step"
        if plain in _EPOCH_WORDS:
            return "epoch"
        before = words[start - 1].casefold() if start else ""
        if plain == "loss" and before.isalpha() and before not in _OF_THE_WHOLE and before != part:
            return None
        if quantity_of(name) is not None:
            return plain
    return None


def _add_position(record: dict[str, float], text: str) -> bool:
    """Add the place within the epoch. False for the bar of an evaluation, whose losses are no steps."""
    bar = _BAR.search(text)
    if bar is not None:
        description = text[: bar.start()].partition("%|")[0].rstrip("0123456789 ")
        if _NO_TRAINING.search(description) and "train" not in description.casefold():
            return False
        record["is_bar"] = 1.0
        if _OF_EPOCHS.search(description) and "epoch" not in record:
            record["epoch"] = record["position"] = float(bar["n"])
            return True
    if "epoch" not in record and (epoch := _EPOCH.search(text)) is not None:
        record["epoch"] = float(epoch[epoch.lastindex or 0])
    found = bar or _IN_EPOCH.search(text)
    if found is None or not int(found["total"]) >= int(found["n"]):
        record.pop("is_bar", None)
        return True
    position = float(found["n"])
    if record.get("step", position) == position:  # else the line tells the step, and its place besides
        record.pop("step", None)
        record["position"], record["length"] = position, float(found["total"])
    return True


def record_by_function(text: str, function: str | None) -> tuple[Mapping[str, float], str] | None:
    """The record of a line that calls its training loss by its function (`train_mse: 0.5`, `CE 2.3`), and the
    function; None for any other line. `function`: the only one to look for.

    A line without a step, an epoch or a word of training may be about anything.
    """
    text = text[:MAX_CHARS]
    names = dict.fromkeys(found[0].casefold() for found in _FUNCTION.finditer(text))
    for name in [name for name in names if function in (None, name)]:
        named = _FUNCTION.sub(partial(_as_loss, name), text)
        record = record_of_line(named)
        is_training = record is not None and any(map(_is_training_loss, record))
        if record is not None and (is_training or function is not None):
            is_counted = not _COUNTERS.isdisjoint(record) or "train" in text.casefold()
            return (record, name) if is_counted else None
    return None


def _as_loss(name: str, found: re.Match[str]) -> str:
    return "loss" if found[0].casefold() == name else found[0]


class LineNumbers:
    """The records of one log in order, each with a number that grows."""

    def __init__(self) -> None:
        self._meaning_of = lru_cache(_meaning_of)
        """It remembers the meanings of words, because a log repeats them."""
        self.has_plain_loss = False
        """True once a line has named a training loss; from then on no function counts as one."""
        self._has_speeds = False
        """True once a line without a loss was read."""
        self._function: str | None = None
        self._part: str | None = None
        """The word before `loss`. In a log without a plain loss, only the loss with this word is read."""
        self._num_losses = 0
        self._step = _StepCount()
        self._first_loss: float | None = None
        self._last_loss = 0.0
        self._last_epoch: int | None = None
        self._has_many_per_epoch = False
        self._last_position: tuple[float | None, float] | None = None
        self._evaluated: dict[str, float] = {}

    def records(self, lines: Iterable[str]) -> list[Mapping[str, float]]:
        """The records of the lines that name a loss or a speed, without the repetitions of a redrawn bar."""
        found = map(self._record_of, lines)
        numbered = (self._numbered(dict(record)) for record in found if record is not None)
        return [record for record in numbered if record is not None]

    def _record_of(self, line: str) -> Mapping[str, float] | None:
        record = record_of_line(line, None, self._meaning_of)
        if record is not None or self.has_plain_loss:
            is_other = self._has_speeds or self._part is not None
            is_first = not self.has_plain_loss and any(map(_is_training_loss, record or ()))
            self.has_plain_loss = self.has_plain_loss or is_first
            return {**(record or {}), ANEW: 1.0} if is_first and is_other else record
        if (word := _PART.search(line[:MAX_CHARS])) is not None and self._function is None:
            self._part = self._part or word[1].casefold()
            return record_of_line(line, self._part, self._meaning_of)
        found = record_by_function(line, self._function)
        if found is not None:
            self._function = found[1]
            return found[0]
        return self._with_speeds(line)

    def _with_speeds(self, line: str) -> Mapping[str, float] | None:
        if self._part is not None or self._function is not None:
            return None
        record = record_of_line(line, None, self._meaning_of, needs_loss=False)
        self._has_speeds = self._has_speeds or record is not None
        return record

    def _numbered(self, record: dict[str, float]) -> Mapping[str, float] | None:
        if record.pop("is_bar", 0.0) and not self._is_news(record):
            return None
        position, length = record.pop("position", None), record.pop("length", None)
        number, epoch = whole(record.get("step", position if length else None)), whole(record.get("epoch"))
        is_training = any(map(_is_training_loss, record)) or not any(map(_is_evaluation, record))
        if number is not None:
            if not is_training and self._step.is_past(number, epoch):
                return None  # a batch of an evaluation, whose loss is not that of the evaluation
            anew = {ANEW: 1.0} if self._begins_anew(record, number, epoch, length) else {}
            return {**record, **anew, "step": self._step.next(number, epoch, length)}
        if is_training and "epoch" in record and epoch in (None, self._last_epoch):
            self._has_many_per_epoch = True
        if epoch is not None and not self._has_many_per_epoch:
            if is_training:
                self._last_epoch, self._num_losses = epoch, max(self._num_losses, epoch) + 1
            return record
        self._num_losses += is_training
        return {**record, LINE_KEY: float(max(0, self._num_losses - 1))}

    def _begins_anew(
        self, record: Mapping[str, float], number: int, epoch: int | None, length: float | None
    ) -> bool:
        """True at the first line of another run: its counter is back at the beginning, and so is its loss."""
        name = training_loss_of(record)
        if name is None:
            return False
        loss, first = record[name], self._first_loss
        if first is not None and self._step.is_back(number, epoch, length):
            fall = abs(first - self._last_loss)
            is_anew = fall > _LEAST_FALL * abs(first) and abs(loss - first) < fall / 2
            if is_anew:
                self._step, self._first_loss = _StepCount(), loss
        else:
            is_anew = False
            self._first_loss = loss if first is None else first
        self._last_loss = loss
        return is_anew

    def _is_news(self, record: dict[str, float]) -> bool:
        """True if a bar has moved on, or shows a new evaluation. Removes from the record all values that the
        bar has shown before.

        Before its first step is complete, a bar shows 0 with the values of that step.
        """
        repeated = [name for name, value in record.items() if self._evaluated.get(name) == value]
        self._evaluated |= {name: value for name, value in record.items() if _is_evaluation(name)}
        for name in repeated:
            del record[name]
        number = record.get("position", record.get("step", 0.0))  # a bar may tell the step beside its place
        place = record.get("epoch"), number
        if place == self._last_position or not number:
            for name in [name for name in record if _field_of(name) and not _is_evaluation(name)]:
                del record[name]
        self._last_position = place
        return any(map(_field_of, record))


class _StepCount:
    """Steps that grow over the epochs, from numbers that may begin anew in each."""

    def __init__(self) -> None:
        self._first_epoch: int | None = None
        self._first_number: int | None = None
        self._last_epoch = -1
        self._last_number = -1
        self._last_step = -1
        self._offset = 0
        """The steps of all earlier epochs."""

    def is_past(self, number: int, epoch: int | None) -> bool:
        """True for a number below that of the last line, in the same epoch if lines tell it."""
        return number < self._last_number and epoch in (None, self._last_epoch)

    def is_back(self, number: int, epoch: int | None, length: float | None) -> bool:
        """True if a line has the number of the first one again, or a smaller one, in no later epoch. A count
        that was complete begins the next epoch."""
        if epoch is None and length and self._last_number >= _NEARLY_ALL * length:
            return False
        is_first = self._first_number is not None and number <= self._first_number < self._last_number
        return is_first and (epoch is None or epoch <= (self._first_epoch or 0))

    def next(self, number: int, epoch: int | None, length: float | None) -> float:
        """The step of a line. `length`: the number of steps in an epoch, if the line tells it."""
        if epoch is not None and self._first_epoch is None:
            self._first_epoch = epoch
        if self._first_number is None:
            self._first_number = number
        if epoch is not None and epoch < self._last_epoch:
            self._offset = 0  # the training began again
        elif number <= self._last_number and epoch is not None and epoch > self._last_epoch >= 0:
            self._offset = self._before(number, epoch, length)
        elif epoch is None and length and number < self._last_number:
            is_next = self._last_number >= _NEARLY_ALL * length
            self._offset = self._offset + int(length) if is_next else 0
        self._last_epoch = self._last_epoch if epoch is None else epoch
        self._last_number, self._last_step = number, number + self._offset
        return self._last_step

    def _before(self, number: int, epoch: int, length: float | None) -> int:
        """The steps before an epoch that begins."""
        before = (epoch - (self._first_epoch or 0)) * int(length or 0)
        if length and before + number > self._last_step:
            return before
        return self._last_step + (not number)


def training_loss_of(record: Mapping[str, float]) -> str | None:
    """The name of the first training loss of a record; None if it has none."""
    return next(filter(_is_training_loss, record), None)


def _is_training_loss(name: str) -> bool:
    return quantity_of(name) == Quantity("loss", is_evaluation=False)


def _is_evaluation(name: str) -> bool:
    quantity = quantity_of(name)
    return quantity is not None and quantity.is_evaluation
