from __future__ import annotations

from coach.workflows.jobs.place_in_queue import read_place
from tests.sources.scripted_io import ScriptedIo, captured

NOT_HERE = (
    1,
    (
        "You are not running a supported accounting_storage plugin\nOnly 'accounting_storage/slurmdbd' is "
        "supported.\n"
    ),
)


def test_a_site_with_accounting_gives_every_part_in_five_queries() -> None:
    io = ScriptedIo(
        {
            "priorities": captured("priorities-24.11.txt"),
            "fair-share": captured("fair-share-24.11.txt"),
            "associations": captured("associations-24.11.txt"),
            "qos": captured("qos-24.11.txt"),
            "reservations": captured("reservations-24.11.txt"),
        }
    )
    place = read_place(io, "root")
    assert place.missing() == ()
    assert place.priorities.value
    assert place.priorities.value[0].fair_share == 5000
    assert [limits.name for limits in place.qos.value or ()] == ["normal", "tiny"]
    assert len(io.asked) == 5


def test_a_part_that_the_site_lacks_has_an_error_and_the_others_have_values() -> None:
    io = ScriptedIo(
        {
            "priorities": (
                1,
                (
                    "slurm_load_ctl_conf error: You are not running a supported priority plugin "
                    "(priority/basic).\n"
                ),
            ),
            "fair-share": captured("fair-share-22.05.txt"),
            "associations": NOT_HERE,
            "qos": NOT_HERE,
            "reservations": captured("reservations-22.05.txt"),
        }
    )
    place = read_place(io, "root")
    missing = dict(place.missing())
    assert set(missing) == {"priority factors", "fair share", "limits of accounts", "limits of QOS"}
    assert missing["limits of QOS"] == "You are not running a supported accounting_storage plugin"
    assert [each.name for each in place.reservations.value or ()] == ["maint", "course"]
