"""The scaling laws, tested on measured figures and on curves computed from the laws themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coach.analysis.comparing.scaling_laws import (
    STRONG,
    WEAK,
    Scaling,
    Size,
    amdahl,
    gustafson,
    scaling_of,
    scaling_words,
    usl,
)

Law = Callable[[float, float], float]
MINUTES = {1: 342.2, 4: 89.3, 16: 24.8, 32: 13.2, 64: 6.94, 128: 4.81}
"""GPUs → minutes of one training of ResNet-50 on ImageNet (HelmholtzAI-FZJ, 2023-getting-started)."""


def measured(minutes: dict[int, float], kind: str) -> Scaling:
    sizes = [Size(n, 1000 / time, 64 * n if kind == WEAK else 64) for n, time in minutes.items()]
    told = scaling_of(sizes)
    assert told is not None
    assert told.kind == kind
    return told


def test_the_fits_of_a_published_series_are_those_that_others_found() -> None:
    told = measured(MINUTES, STRONG)
    assert told.serial_share == pytest.approx(0.0061, abs=0.0002)
    assert told.contention == pytest.approx(0.0042, abs=0.0003)
    assert told.coherence == pytest.approx(1.6e-5, abs=0.2e-5)
    assert told.best_num_ranks == pytest.approx(250, abs=15)


def test_a_forecast_is_a_band_that_holds_the_later_measurement() -> None:
    until_32 = {n: time for n, time in MINUTES.items() if n <= 32}
    for kind in (STRONG, WEAK):
        told = measured(until_32, kind)
        assert [each.num_ranks for each in told.forecasts] == [64, 128]
        for each in told.forecasts:
            assert each.low < MINUTES[1] / MINUTES[each.num_ranks] < each.high


@pytest.mark.parametrize(("law", "kind"), [(amdahl, STRONG), (gustafson, WEAK)])
def test_a_scaling_law_recovers_the_serial_share_of_its_own_curve(law: Law, kind: str) -> None:
    told = scaling_of([Size(n, 100 * law(0.1, n), 64 * (n if kind == WEAK else 1)) for n in (1, 2, 4)])
    assert told is not None
    assert told.kind == kind
    assert told.serial_share == pytest.approx(0.1, abs=1e-6)
    assert (told.most == pytest.approx(10)) if kind == STRONG else told.most is None


def test_a_sweep_without_one_rank_recovers_the_law_as_well() -> None:
    told = scaling_of([Size(n, 100 * amdahl(0.05, n), 64) for n in (8, 16, 32)])
    assert told is not None
    assert told.serial_share == pytest.approx(0.05, abs=1e-6)
    as_8 = 8 / amdahl(0.05, 8)
    assert told.most == pytest.approx(20 * as_8)
    for each in told.forecasts:
        true = as_8 * amdahl(0.05, each.num_ranks)
        assert each.low * (1 - 1e-9) <= true <= each.high
    two = scaling_of([Size(n, usl(0.05, 0.01, n)) for n in (2, 4, 8, 16, 32)])
    assert two is not None
    assert (two.contention, two.coherence) == pytest.approx((0.05, 0.01), rel=0.01)


def test_a_sweep_whose_batches_are_not_known_is_not_called_neither_strong_nor_weak() -> None:
    told = scaling_of([Size(1, 100), Size(2, 150)])
    assert told is not None
    assert scaling_words(told)[0].startswith("neither strong nor weak scaling is known")


def test_a_curve_with_a_peak_is_described_by_the_universal_law() -> None:
    told = scaling_of([Size(n, usl(0.05, 0.01, n)) for n in (1, 2, 4, 8, 16, 32)])
    assert told is not None
    assert told.kind is None  # the batch sizes are not known
    assert (told.contention, told.coherence) == pytest.approx((0.05, 0.01), rel=0.01)
    assert told.best_num_ranks == pytest.approx((0.95 / 0.01) ** 0.5, rel=0.01)


def test_two_sizes_give_a_share_and_no_forecast_and_one_gives_nothing() -> None:
    told = scaling_of([Size(1, 100, 64), Size(2, 150, 128)])
    assert told is not None
    assert (told.kind, told.forecasts, told.contention) == (WEAK, (), None)
    words = scaling_words(told)
    assert words[0].startswith("weak scaling, each rank keeps its samples. Gustafson: 50.00% is not divided")
    assert words[1:] == (
        "Universal Scalability Law: needs 5 numbers of ranks, there are 2",
        "no forecast: it needs 3 numbers of ranks",
    )
    assert scaling_of([Size(1, 100), Size(1, 120)]) is None
    assert scaling_of([Size(1, 0.0), Size(2, 100)]) is None


def test_ranks_that_bring_nothing_are_all_serial_and_those_that_are_perfect_are_not() -> None:
    slower = scaling_of([Size(1, 100, 64), Size(2, 90, 64)])
    perfect = scaling_of([Size(2, 100, 64), Size(4, 200, 64), Size(8, 400, 64)])
    assert slower is not None
    assert perfect is not None
    assert slower.serial_share == pytest.approx(1, abs=1e-6)
    assert (perfect.serial_share, perfect.most) == (0.0, None)
    assert "no number of ranks" not in scaling_words(perfect)[0]
