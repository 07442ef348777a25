"""GPUs of one job, compared."""

from __future__ import annotations

from coach.analysis.measured.gpu_quantities import (
    MEMORY,
    POWER,
    SM_ACTIVITY,
    UTILIZATION,
    bands,
    measured_quantities,
    spread,
)
from coach.lookback.history import History
from tests.tui.fake_session import NOW_S
from tests.tui.gpu_jobs import SLOW, make_gpu, make_gpu_job


def test_the_gpu_that_idles_behind_a_full_utilization_is_named() -> None:
    history = make_gpu_job()
    found = spread(POWER, [history.gpu(*key)[-1] for key in history.gpus])
    assert found is not None
    assert found.low_gpu == SLOW
    assert round(found.low) == 16
    assert 65 < found.middle <= found.high < 80
    assert found.num_measured == 8


def test_a_value_that_a_gpu_does_not_report_is_not_counted_as_zero() -> None:
    known, unknown = make_gpu("node01", 0, NOW_S), make_gpu("node01", 1, NOW_S, power_w=None)
    found = spread(POWER, [known, unknown])
    assert found is not None
    assert (found.num_measured, found.low_gpu, found.low) == (1, ("node01", 0), found.high)
    assert spread(POWER, [unknown]) is None


def test_a_share_that_no_number_can_hold_is_not_known() -> None:
    assert POWER.of(make_gpu("node01", 0, NOW_S, power_w=1e308, power_limit_w=1e-9)) is None
    assert POWER.of(make_gpu("node01", 0, NOW_S, power_limit_w=0.0)) is None


def test_how_hard_a_gpu_works_comes_before_its_utilization() -> None:
    plain, with_gpm = make_gpu("node01", 0, NOW_S), make_gpu("node01", 0, NOW_S, sm_activity_pct=40.0)
    assert measured_quantities([plain])[0] is POWER
    assert measured_quantities([plain, with_gpm])[:3] == [SM_ACTIVITY, POWER, UTILIZATION]
    assert measured_quantities([make_gpu("node01", 0, NOW_S, memory_total_mib=None)]).count(MEMORY) == 0


def test_the_past_of_many_gpus_is_a_band_with_few_points() -> None:
    history = make_gpu_job(num_nodes=2, num_samples=120)
    found = bands(history, history.gpus, [POWER, UTILIZATION], NOW_S - 120, NOW_S, 20)
    assert 15 < len(found["power over limit"]) <= 20
    assert all(band.low == 100 * 110 / 700 for band in found["power over limit"])
    assert all(band.middle is not None and band.middle > 60 for band in found["power over limit"])
    assert {band.middle for band in found["utilization"]} == {97.0}


def test_a_silence_breaks_the_curve() -> None:
    history = History()
    history.add_samples(make_gpu("node01", 0, NOW_S - 100 + at) for at in (0, 1, 2, 90, 91))
    found = bands(history, history.gpus, [UTILIZATION], NOW_S - 100, NOW_S, 100)["utilization"]
    assert [band.middle for band in found] == [97.0, 97.0, 97.0, None, 97.0, 97.0]


def test_thinned_older_samples_do_not_look_like_a_gap() -> None:
    history, spacings = History(), (64, 64, 32, 32, 32, 16, 16, 8, 4, 2, 1, 1, 1)
    times = [NOW_S - sum(spacings[index:]) for index in range(len(spacings) + 1)]
    history.add_samples(make_gpu("node01", 0, time_s) for time_s in times)
    found = bands(history, history.gpus, [UTILIZATION], times[0], NOW_S, 300)["utilization"]
    assert [band.middle for band in found] == [97.0] * len(times)
