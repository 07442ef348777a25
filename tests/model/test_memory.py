"""Memory sizes in Slurm's spelling, the same for launches and for readers of runs."""

from __future__ import annotations

from coach.model.slurm.memory import mem_mib


def test_memory_is_read_as_sbatch_takes_it_and_as_people_write_it() -> None:
    sizes = {"8G": 8192, "16GB": 16384, "16g": 16384, "500M": 500, "500": 500, "2048K": 2, "1K": 1, "0": 0}
    assert {text: mem_mib(text) for text in sizes} == sizes
    assert (mem_mib("lots"), mem_mib(""), mem_mib("8G8")) == (None, None, None)
