"""What the sampler on a node measured. What was not measured is None."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one time, in NVML's terms."""

    node: str
    time_s: float
    gpu: int
    """Index within the job, as CUDA numbers it."""
    uuid: str | None
    name: str | None = None
    utilization_pct: float | None = None
    """Share of the driver's sample window in which at least one kernel ran: not how much of the GPU was used."""
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    clocks_event_reasons: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """One node at one time, as far as the job may use it."""

    node: str
    time_s: float
    cpu_pct: float | None = None
    """Use of the CPUs allotted to the job, 0 to 100."""
    num_cpus: int | None = None
    memory_used_mib: float | None = None
    """Resident memory of the job's processes on this node."""
    memory_limit_mib: float | None = None
    memory_available_mib: float | None = None
    num_processes: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One of the job's larger processes."""

    node: str
    time_s: float
    pid: int
    name: str
    rank: int | None = None
    cpu_pct: float | None = None
    rss_mib: float | None = None
    gpu_memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class SensorGap:
    """Something the sampler could not measure on a node, why, and how to get it."""

    node: str
    what: str
    because: str
    how: str


TelemetrySample = GpuSample | HostSample | ProcessSample | SensorGap
