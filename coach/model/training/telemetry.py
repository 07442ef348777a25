"""Measurements of the sampler on a node. None: not measured.

Each class is one kind of record in a telemetry file. A field added here is read from the file by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rung(StrEnum):
    """The path of a number from the node to coach, best first."""

    SAMPLER = "the sampler beside the training"
    STEP = "a step in the job (srun --overlap)"


@dataclass(frozen=True, slots=True)
class Origin:
    """The path of a node's newest numbers, and their time by the node's clock."""

    rung: Rung
    time_s: float


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU or MIG instance at one time, in NVML's terms."""

    node: str
    time_s: float
    gpu: int
    """Index within the job, in CUDA's numbering."""
    uuid: str | None
    name: str | None = None
    utilization_pct: float | None = None
    """Share of the driver's sample window in which at least one kernel ran. It does not tell how much of the
    GPU the kernel used."""
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    clocks_event_reasons: tuple[str, ...] | None = None
    memory_utilization_pct: float | None = None
    """Share of the sample window in which device memory was read or written."""
    memory_temperature_c: float | None = None
    memory_clock_mhz: float | None = None
    max_memory_clock_mhz: float | None = None
    whole_uuid: str | None = None
    """For a MIG instance: the UUID of its GPU. Temperatures, clocks and event reasons are those of the whole
    GPU."""
    sm_activity_pct: float | None = None
    """GPM (measured only on request): share of the multiprocessors that were busy, averaged over time."""
    sm_occupancy_pct: float | None = None
    tensor_activity_pct: float | None = None
    dram_activity_pct: float | None = None


@dataclass(frozen=True, slots=True)
class GpuLink:
    """Connections of one GPU to the host and to other GPUs. Errors are counted since the driver was
    loaded."""

    node: str
    time_s: float
    gpu: int
    uuid: str | None
    pcie_generation: int | None = None
    """Current generation: an idle GPU lowers it."""
    max_pcie_generation: int | None = None
    pcie_width: int | None = None
    max_pcie_width: int | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None
    pcie_replays: int | None = None
    num_nvlinks: int | None = None
    num_active_nvlinks: int | None = None
    nvlink_tx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None
    nvlink_crc_errors: int | None = None
    nvlink_replays: int | None = None
    nvlink_recoveries: int | None = None


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """Memory errors of one GPU, the rows and pages that were retired because of them, its temperature limits,
    and its modes."""

    node: str
    time_s: float
    gpu: int
    uuid: str | None
    has_ecc: bool | None = None
    ecc_volatile_corrected: int | None = None
    """Volatile: since the driver was loaded. Aggregate: over the life of the GPU."""
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_corrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    remapped_rows_corrected: int | None = None
    remapped_rows_uncorrected: int | None = None
    is_row_remap_pending: bool | None = None
    """True if a row will be remapped at the next reset of the GPU."""
    has_row_remap_failed: bool | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    is_page_retirement_pending: bool | None = None
    shutdown_temperature_c: float | None = None
    slowdown_temperature_c: float | None = None
    max_memory_temperature_c: float | None = None
    max_temperature_c: float | None = None
    is_persistent: bool | None = None
    compute_mode: str | None = None
    is_mig: bool | None = None


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """An Xid: the driver reported an error of a GPU."""

    node: str
    time_s: float
    gpu: int
    uuid: str | None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """One node at one time: first the part that the job may use, then the whole node."""

    node: str
    time_s: float
    cpu_pct: float | None = None
    """Use of the CPUs allotted to the job, 0 to 100."""
    num_cpus: int | None = None
    memory_used_mib: float | None = None
    """Resident memory of the job's processes on this node."""
    memory_limit_mib: float | None = None
    memory_request_mib: float | None = None
    """Memory that Slurm reserved for the job on this node; None if the job may have the whole node."""
    memory_available_mib: float | None = None
    num_processes: int | None = None
    num_gpus: int | None = None
    """GPUs, or MIG instances, that the sampler sees. The next two fields: those allotted to the job on this
    node, and those in the node."""
    num_gpus_allotted: int | None = None
    num_gpus_of_node: int | None = None
    node_cpu_pct: float | None = None
    node_memory_used_mib: float | None = None
    node_memory_total_mib: float | None = None
    swap_used_mib: float | None = None
    swap_total_mib: float | None = None
    cpu_pressure_pct: float | None = None
    """Linux PSI over the last ten seconds. Pressure: the share of time in which some task waited for the
    resource. Stall: the share in which all tasks waited."""
    memory_pressure_pct: float | None = None
    memory_stall_pct: float | None = None
    io_pressure_pct: float | None = None
    io_stall_pct: float | None = None
    disk_read_mib_s: float | None = None
    disk_write_mib_s: float | None = None
    network_rx_mib_s: float | None = None
    network_tx_mib_s: float | None = None
    shared_memory_used_mib: float | None = None
    shared_memory_total_mib: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """A process of the job: each one on a GPU, and the largest of the others."""

    node: str
    time_s: float
    pid: int
    name: str = ""
    rank: int | None = None
    cpu_pct: float | None = None
    """Percent of one CPU."""
    rss_mib: float | None = None
    gpu_memory_mib: float | None = None
    local_rank: int | None = None
    num_threads: int | None = None
    read_mib_s: float | None = None
    write_mib_s: float | None = None
    gpus: tuple[int, ...] | None = None
    anonymous_mib: float | None = None
    """The part of `rss_mib` that is neither a file's nor shared; None unless the process is above the
    limit."""


@dataclass(frozen=True, slots=True)
class PortSample:
    """One network port of a node. Errors and link downs are counted since the port was started."""

    node: str
    time_s: float
    name: str
    type: str | None = None
    """`infiniband`, `roce`, `ethernet`, `ipoib`."""
    state: str | None = None
    rate_gbit_s: float | None = None
    rx_mib_s: float | None = None
    tx_mib_s: float | None = None
    num_errors: int | None = None
    num_link_downs: int | None = None


@dataclass(frozen=True, slots=True)
class MountSample:
    """A network file system that the node used in the last ten seconds, and its request times."""

    node: str
    time_s: float
    path: str
    type: str | None = None
    operations_per_s: float | None = None
    wait_ms: float | None = None
    """Mean milliseconds of a request, from queued to answered."""
    read_mib_s: float | None = None
    write_mib_s: float | None = None
    num_retransmissions: int | None = None


@dataclass(frozen=True, slots=True)
class SensorGap:
    """A quantity that the sampler could not measure on a node, why, and how to get it."""

    node: str
    what: str
    because: str = ""
    how: str = ""


@dataclass(frozen=True, slots=True)
class StepUse:
    """One job step in sstat: peaks, not current values."""

    step_id: str
    num_tasks: int
    max_rss_mib: float | None
    """Peak of its largest task."""
    gpu_utilization_pct: float | None
    """Sum over its tasks, if the site accounts for GPUs."""
    gpu_memory_mib: float | None


TelemetrySample = (
    GpuSample
    | GpuLink
    | GpuHealth
    | GpuEvent
    | HostSample
    | ProcessSample
    | PortSample
    | MountSample
    | SensorGap
)
