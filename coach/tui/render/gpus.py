"""The GPUs of one job now: the sources of the numbers, each GPU, their spread, and reports of the
hardware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coach.analysis.measured.gpu_quantities import (
    POWER,
    QUANTITIES,
    UTILIZATION,
    GpuKey,
    Quantity,
    measured_quantities,
    spread,
)
from coach.analysis.measured.provenance import visible_gpus
from coach.lookback.history import History
from coach.model.training.telemetry import GpuSample, Rung
from coach.render.text import (
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    Tone,
    age,
    clip,
    fit,
    line,
    mib,
    muted,
    percent,
    plural,
    printable,
    strong,
    whole,
)
from coach.tui.render.curve import bar, sparkline
from coach.tui.render.heat import HeatRow, heat_lines
from coach.tui.render.table import Cell, Column, Row, fit_columns, header_line, row_line

STALE_S = 30.0
"""Samples older than this, in seconds, are not shown as current."""
LOST_S = 10.0
"""The same limit for a GPU whose node has reported newer samples of other GPUs."""
_SPARK_WIDTH = 16
_MAX_EVENTS = 3
_COLUMNS = (
    Column("gpu", "GPU", 7),
    Column("sm", "SM ACTIVE", 13, 1),
    Column("power", "POWER/LIMIT", 13, 1),
    Column("utilization", "UTIL", 4, 2, "right"),
    Column("memory", "MEMORY", 11, 2),
    Column("temperature", "TEMP", 5, 3, "right"),
    Column("watts", "WATT", 9, 5, "right"),
    Column("clock", "SM MHZ", 9, 4, "right"),
    Column("age", "AGE", 6, 2, "right"),
    Column("past", "POWER, NEWEST", _SPARK_WIDTH, 6),
    Column("reasons", "CLOCKS HELD BY", 16, 7, grow=1),
)


def name_of(key: GpuKey) -> str:
    return f"{printable(key[0])} gpu {key[1]}"


def newest_samples(history: History, gpus: Iterable[GpuKey], now_s: float) -> dict[GpuKey, GpuSample]:
    """The newest sample of each GPU, if it is fresh enough to count as current."""
    newest = {key: history.gpu(*key)[-1] for key in gpus}
    return {key: sample for key, sample in newest.items() if _is_fresh(history, sample, now_s)}


def _is_fresh(history: History, sample: GpuSample, now_s: float) -> bool:
    origin = history.origin(sample.node)
    is_lost = origin is not None and origin.time_s - sample.time_s > LOST_S
    return now_s - sample.time_s <= STALE_S and not is_lost


def heading_line(
    history: History,
    gpus: Sequence[GpuKey],
    views: Sequence[str],
    view: int,
    ended_s: float | None,
    width: int,
    label: KeyLabel,
) -> Line:
    """The number of GPUs, the views with the current one marked, and the models of the GPUs. `ended_s`:
    seconds since the last report of an ended job."""
    names = sorted({sample.name for key in gpus if (sample := history.gpu(*key)[-1]).name is not None})
    num_nodes = len({node for node, _ in gpus})
    parts = [strong(f" {plural(len(gpus), 'GPU')}"), Span(f" on {plural(num_nodes, 'node')}" if gpus else "")]
    if ended_s is not None:
        parts.append(muted(f" as it ended {age(ended_s)} ago"))
    parts.append(Span(f"  {label('view')}", "key"))
    for index, name in enumerate(views):
        parts.append(strong(f" [{name}]") if index == view else muted(f"  {name} "))
    if names:
        more = f" and {len(names) - 1} other" if len(names) > 1 else ""
        parts.append(muted(f"  {printable(names[0])}{more}"))
    return clip(tuple(parts), width)


def source_lines(history: History, nodes: Sequence[str], num_nodes: int | None, now_s: float) -> list[Line]:
    """Each source of the numbers, with its nodes and ages; nodes without reports; nodes that do not show all
    GPUs of the job."""
    by_rung: dict[Rung, list[float]] = {}
    silent: list[tuple[str, float]] = []
    for node in nodes:
        origin = history.origin(node)
        if origin is None:
            continue
        old_s = max(0.0, now_s - origin.time_s)
        if old_s > STALE_S:
            silent.append((node, old_s))
        else:
            by_rung.setdefault(origin.rung, []).append(old_s)
    told = [
        f" by {rung}: {printable(nodes[0]) if len(nodes) == 1 else plural(len(ages), 'node')}, "
        f"{_age_span(ages)} old"
        for rung, ages in by_rung.items()
    ]
    missing = _first_two(
        [f"{printable(node)} is silent: its last sample is {age(old_s)} old" for node, old_s in silent],
        "are silent",
    )
    if num_nodes is not None and num_nodes > len(nodes):
        missing.append(f"nothing measured on {num_nodes - len(nodes)} of {num_nodes} nodes")
    missing += _first_two(_unseen_gpus(history, nodes), "do not show all GPUs of the job")
    return [line(muted(text)) for text in told] + [line(Span(f" ▲ {text}", "warning")) for text in missing]


def _age_span(ages: Sequence[float]) -> str:
    low, high = age(min(ages)), age(max(ages))
    return high if low == high else f"{low} to {high}"


def _first_two(texts: Sequence[str], others: str) -> list[str]:
    """The first two nodes by name, and the number of the others."""
    more = [f"{len(texts) - 2} more nodes {others}"] if len(texts) > 2 else []
    return [*texts[:2], *more]


def _unseen_gpus(history: History, nodes: Sequence[str]) -> list[str]:
    """Each node that shows fewer GPUs than the job has there."""
    hosts = {node: tuple(history.host(node))[-1:] for node in nodes}
    return [
        f"{printable(node)}: {seen}"
        for node, host in hosts.items()
        if host and (seen := visible_gpus(host[0]))
    ]


def heat_rows(
    history: History, gpus: Sequence[GpuKey], fresh: dict[GpuKey, GpuSample], quantity: Quantity
) -> list[HeatRow]:
    """One row per node, with one place for each of the job's GPUs there."""
    by_node: dict[str, list[int]] = {}
    for node, gpu in gpus:
        by_node.setdefault(node, []).append(gpu)
    rows = []
    for node, indices in by_node.items():
        host = tuple(history.host(node))[-1:]
        allotted = (host[0].num_gpus_allotted or 0) if host else 0
        values: list[float | None] = []
        for gpu in sorted({*indices, *range(min(allotted, 64))}):
            sample = fresh.get((node, gpu))
            values.append(quantity.of(sample) if sample is not None else None)
        rows.append(HeatRow(node, tuple(values)))
    return rows


def heat_map_lines(
    history: History,
    gpus: Sequence[GpuKey],
    fresh: dict[GpuKey, GpuSample],
    place: int,
    width: int,
    height: int,
) -> list[Line]:
    """The heat map of one quantity over all GPUs. `place` is its index among the measured quantities. Empty
    if nothing is measured."""
    samples = list(fresh.values())
    quantities = measured_quantities(samples)
    if not quantities:
        return []
    quantity = quantities[place % len(quantities)]
    rows = heat_rows(history, gpus, fresh, quantity)
    return [quantity_line(quantity, samples, width), *heat_lines(rows, quantity, width, height - 1)]


def grid_lines(history: History, gpus: Sequence[GpuKey], now_s: float, width: int) -> list[Line]:
    """A line per GPU with all its values. Utilization is always shown with power or SM activity, which show
    the real load."""
    samples = [history.gpu(*key)[-1] for key in gpus]
    columns = [
        column.name
        for column in _COLUMNS
        if column.name != "sm" or any(sample.sm_activity_pct is not None for sample in samples)
    ]
    shown = [column for column in _COLUMNS if column.name in columns]
    layout = fit_columns(shown, width)
    rows = [header_line(layout)]
    node = None
    for key, sample in zip(gpus, samples, strict=True):
        if key[0] != node and len({gpu_node for gpu_node, _ in gpus}) > 1:
            rows.append(clip(line(strong(f" {printable(key[0])}")), width))
        node = key[0]
        cells = _cells(sample, history.gpu(*key), now_s, _is_fresh(history, sample, now_s))
        rows.append(row_line(Row("", tuple(cells[name] for name in columns)), layout))
    return rows


def _cells(sample: GpuSample, past: Sequence[GpuSample], now_s: float, is_fresh: bool) -> dict[str, Cell]:
    old_s = now_s - sample.time_s
    tone: Tone = "" if is_fresh else "muted"
    power, limit = whole(sample.power_w), whole(sample.power_limit_w)
    clock, top = whole(sample.sm_clock_mhz), whole(sample.max_sm_clock_mhz)
    reasons = sample.clocks_event_reasons
    newest = [past[index] for index in range(max(0, len(past) - _SPARK_WIDTH), len(past))]
    texts = {
        "gpu": f"{sample.gpu}{' MIG' if sample.whole_uuid else ''}",
        "sm": _share(sample.sm_activity_pct),
        "power": _share(POWER.of(sample)),
        "utilization": percent(sample.utilization_pct),
        "memory": f"{mib(sample.memory_used_mib)}/{mib(sample.memory_total_mib)}",
        "temperature": UNKNOWN if sample.temperature_c is None else f"{sample.temperature_c:.0f}°C",
        "watts": f"{power}/{limit}",
        "clock": f"{clock}/{top}",
        "age": age(old_s),
        "past": sparkline([POWER.of(each) for each in newest], _SPARK_WIDTH, 0, 100),
        "reasons": UNKNOWN if reasons is None else ", ".join(map(printable, reasons)) or "nothing",
    }
    cells = {name: Cell(text, tone) for name, text in texts.items()}
    if tone:
        cells["age"] = Cell(f"▲{age(old_s)}", "warning")
    return cells


def _share(value: float | None) -> str:
    return f"{bar(None if value is None else value / 100, 8)} {percent(value):>4}"


def spread_lines(samples: Sequence[GpuSample], num_gpus: int, width: int) -> list[Line]:
    """Each measured quantity over all GPUs: minimum, median and maximum, with the GPUs of both ends."""
    who = 18 if width >= 100 else 14
    head = f" {'':<18}{'MIN':>6}  {fit('WHO', who)}{'MEDIAN':>6}  {'MAX':>6}  {fit('WHO', who)}MEASURED"
    rows = [clip(line(muted(head)), width)]
    for quantity in measured_quantities(samples):
        found = spread(quantity, samples)
        if found is None:
            continue
        is_uneven = found.high > found.low
        low, middle, high = (
            f"{value:.0f}{quantity.unit.replace('°C', '°')}"
            for value in (found.low, found.middle, found.high)
        )
        rows.append(
            clip(
                line(
                    f" {quantity.name:<18}",
                    Span(f"{low:>6}  ", "warning" if found.middle - found.low >= quantity.outlier else ""),
                    muted(fit(short_name_of(found.low_gpu) if is_uneven else "", who)),
                    strong(f"{middle:>6}  "),
                    Span(f"{high:>6}  ", "warning" if found.high - found.middle >= quantity.outlier else ""),
                    muted(fit(short_name_of(found.high_gpu) if is_uneven else "", who)),
                    muted(f"{found.num_measured}/{num_gpus}"),
                ),
                width,
            )
        )
    if len(rows) == 1:
        return [line(muted(" nothing measured now"))]
    return rows


def short_name_of(key: GpuKey) -> str:
    """For example `node17:3`. A long name is cut at its start."""
    node = printable(key[0])
    return f"{node if len(node) <= 9 else '…' + node[-8:]}:{key[1]}"


def name_among(key: GpuKey, gpus: Sequence[GpuKey]) -> str:
    """The name of one of some GPUs, without its node if they are all on one node."""
    return f"gpu {key[1]}" if len({node for node, _ in gpus}) == 1 else short_name_of(key)


def quantity_line(quantity: Quantity, samples: Sequence[GpuSample], width: int) -> Line:
    """The quantity of the heat map in numbers. Utilization never stands alone."""
    found = spread(quantity, samples)
    parts = [strong(f" {quantity.name}"), muted(f" {quantity.unit}")]
    if quantity is UTILIZATION:
        work = next((told for each in QUANTITIES[:2] if (told := spread(each, samples)) is not None), None)
        beside = f"{work.quantity.name}: median {work.middle:.0f} %" if work else "power not measured"
        parts.append(Span(f" ({beside})", "info"))
    if found is not None:
        parts += [
            Span(f"  min {found.low:.0f} "),
            muted(short_name_of(found.low_gpu)),
            Span(f"  median {found.middle:.0f}  max {found.high:.0f} "),
            muted(short_name_of(found.high_gpu)),
        ]
    return clip(tuple(parts), width)


def trouble_lines(history: History, gpus: Sequence[GpuKey], now_s: float, width: int) -> list[Line]:
    """Problems that the driver reported for these GPUs: the newest Xid errors, memory errors, missing links.
    Empty if there are none."""
    told = _xids(history, gpus, now_s)
    for key in gpus:
        link, health = history.gpu_link(*key), history.gpu_health(*key)
        if health is not None:
            newest = health[1]
            if newest.ecc_volatile_uncorrected:
                count = newest.ecc_volatile_uncorrected
                told.append(
                    f"{name_of(key)}: {plural(count, 'uncorrected memory error')} since the driver was loaded"
                )
            if newest.is_row_remap_pending or newest.has_row_remap_failed:
                word = "failed" if newest.has_row_remap_failed else "waits for a reset of the GPU"
                told.append(f"{name_of(key)}: remapping of a memory row {word}")
        if link is not None and link[1].num_nvlinks and link[1].num_active_nvlinks is not None:
            active, links = link[1].num_active_nvlinks, link[1].num_nvlinks
            if active < links:
                told.append(f"{name_of(key)}: {active} of {links} NVLinks active")
    return [clip(line(Span(f" ▲ {text}", "warning")), width) for text in told]


def _xids(history: History, gpus: Sequence[GpuKey], now_s: float) -> list[str]:
    """The newest Xid errors of these GPUs, oldest first."""
    known = set(gpus)
    events = [event for event in history.gpu_events if (event.node, event.gpu) in known]
    return [
        f"Xid {UNKNOWN if event.xid is None else event.xid} on {name_of((event.node, event.gpu))}, "
        f"{age(now_s - event.time_s)} ago"
        for event in events[-_MAX_EVENTS:]
    ]
