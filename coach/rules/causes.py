"""The register: each code with its status, each cause with one sentence, and which finding explains which.

It is data without logic. The engine orders findings by it, the rules' pages show it, and tests require a
proof of each row. A code is never used again: a removed rule stays here as retired, with the codes that
replaced it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from coach.model.judging.finding import Severity


class Status(StrEnum):
    """Whether a code is in use."""

    ACTIVE = "active"
    UNPROVEN = "unproven"
    """No real case was seen yet: its findings are at most info."""
    RETIRED = "retired"


class Says(StrEnum):
    """How a finding relates to the end of the process."""

    END = "end"
    """It ended the process, at warning or above."""
    ERROR = "error"
    """It ended the process if it is critical; otherwise the process went on."""
    COURSE = "course"
    """It is about speed or quality, and never ended the process, even if it is critical."""


@dataclass(frozen=True, slots=True)
class Code:
    """One code."""

    code: str
    says: Says = Says.ERROR
    status: Status = Status.ACTIVE
    replaced_by: tuple[str, ...] = ()
    """For a retired code: the codes that judge its condition now."""
    explained_by_any_end: bool = False
    """True for messages that ranks and launchers print after another process ended: that end explains
    them."""
    explained_by_end_above: bool = False
    """The same, but only an end above it in the log explains it."""
    explained_by_earlier: Severity | None = None
    """For an end from outside (a time limit, a person): a finding of at least this severity explains it,
    unless it came later. The end explains later findings."""
    explained_within_lines: int = 0
    """For an error that says little: another error within this many lines below it belongs to the same
    message and explains it."""
    is_told_late: bool = False
    """True if Slurm, the kernel or the driver reports it with a delay: it counts as the earliest finding."""
    is_last_resort: bool = False
    """True if it fires only while no other finding ended the process or explains this one."""


@dataclass(frozen=True, slots=True)
class Edge:
    """X explains Y: where both fire, Y is a consequence of X."""

    cause: str
    effect: str
    why: str
    within_lines: int | None = None
    """The edge holds if Y stands at most this many lines below X in the same log. None: at any distance."""


@dataclass(frozen=True, slots=True)
class Register:
    """Codes, causes and edges. If an effect has several causes, the one listed first explains it."""

    codes: Mapping[str, Code]
    causes: Mapping[str, str]
    edges: tuple[Edge, ...]

    def of(self, code: str) -> Code:
        """A code's row; a default row if the code is not listed."""
        return self.codes.get(code) or Code(code)

    def explaining(self, code: str) -> tuple[Edge, ...]:
        """The edges whose effect is this code, in the register's order."""
        return tuple(edge for edge in self.edges if edge.effect == code)


def _codes(*rows: Code, **groups: str) -> Mapping[str, Code]:
    plain = [Code(code, Says(says)) for says, codes in groups.items() for code in codes.split()]
    return MappingProxyType({row.code: row for row in sorted([*plain, *rows], key=lambda row: row.code)})


def _edges(*rows: tuple[str, str, str], within_lines: int | None = None) -> tuple[Edge, ...]:
    """Edges from rows of (causes, effects, why)."""
    return tuple(
        Edge(cause, effect, why, within_lines)
        for causes, effects, why in rows
        for effect in effects.split()
        for cause in causes.split()
    )


_CODES = _codes(
    Code("COD001", explained_within_lines=3),
    Code("DST003", explained_by_any_end=True),
    Code("DST004", explained_by_end_above=True),
    Code("DST005", explained_by_any_end=True),
    Code("DST007", explained_by_any_end=True),
    Code("DST019", explained_by_any_end=True),
    Code("DST020", explained_by_any_end=True),
    Code("HDW001", Says.END, is_told_late=True),
    Code("HDW009", is_told_late=True),
    Code("HDW010", is_told_late=True),
    Code("JOB003", Says.END, is_told_late=True),
    Code("MEM007", is_told_late=True),
    Code("JOB014", Says.END, explained_by_any_end=True),
    Code("MEM008", Says.END, explained_by_any_end=True),
    Code("JOB002", Says.END, explained_by_earlier=Severity.CRITICAL),
    Code("JOB005", Says.END, explained_by_earlier=Severity.WARNING),
    Code("JOB018", Says.END, explained_by_earlier=Severity.CRITICAL),
    Code("END001", Says.END, is_last_resort=True),
    Code("DAT006", Says.COURSE, Status.UNPROVEN),
    Code("JOB007", Says.COURSE, Status.UNPROVEN),
    Code("JOB019", Says.COURSE, Status.UNPROVEN),
    Code("MEM012", Says.COURSE, Status.UNPROVEN),
    end="COD002 HDW002 JOB017 JOB020 NUM004",
    error="CUD001 CUD002 CUD003 CUD004 CUD005 CUD006 DAT005 DAT010 DAT011 DAT012 DSP001 DSP002 DST001 "
    "DST002 DST006 DST010 DST021 DST022 DST023 DST024 ENV002 ENV003 ENV004 ENV006 ENV007 ENV008 "
    "ENV010 ENV011 ENV012 ENV016 ENV017 ENV018 ENV021 ENV022 ENV023 ENV025 ENV026 JOB011 MEM001 MEM011 "
    "TOR001 TOR002 TOR003 TOR004",
    course="DAT001 DAT009 DST008 DST009 DST011 DST015 DST016 DST025 DST026 ENV024 GPU003 GPU005 GPU006 "
    "GPU011 GPU013 GPU017 HDW003 HDW004 HDW006 HIS001 HIS002 HIS003 HIS004 HIS005 JOB006 JOB009 MEM004 "
    "MEM005 MEM009 MEM013 NUM001 NUM002 NUM003 NUM006 NUM007 NUM008 NUM009 NUM010 NUM011 NUM013 TOR005",
)

_CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "all_gpus_busy": "Other processes hold every GPU that the job may use.",
        "amp_overflow": "Numbers leave the range of fp16, so hardly a step is taken.",
        "bad_arguments": "The program refuses an argument or a value of its configuration.",
        "batch_too_small": "A step has too few samples to be worth its fixed costs.",
        "batch_without_gain": "A larger batch brought no more samples a second: the limit is elsewhere.",
        "checkpoint_by_every_rank": "Several ranks write over one another's checkpoint.",
        "checkpoint_corrupt": "A file of weights is truncated, or is not a valid one.",
        "checkpoint_world_size": "The checkpoint was saved by another number of ranks.",
        "code_error": "The program has a mistake.",
        "conda_not_initialised": "The batch script could not activate its environment.",
        "container_start": "The container engine did not start the container.",
        "cpu_bound": "The node's CPUs are too slow for its GPUs.",
        "cpu_over_request": "The job requested more CPUs than it used.",
        "cublas_cudnn_error": "One of CUDA's libraries refused a call.",
        "cuda_launch_fork": "A process forked after CUDA had started: CUDA does not survive a fork.",
        "cuda_oom": "The GPU's memory is too small for a step.",
        "cuda_unavailable": "The program needs a GPU, but its framework can use none.",
        "cuda_version_mismatch": "The CUDA compiler is of another version than torch's CUDA.",
        "data_parallel": "One process serves several GPUs, which wait for it.",
        "dataloader_pickle": "An object cannot be sent to a worker process.",
        "dataloader_worker_killed": "A process that loads data died without an exception.",
        "ddp_inplace_or_marked_ready_twice": "A tensor was changed or used twice, and autograd refuses it.",
        "ddp_unused_parameters": "DDP waits for gradients of parameters that the loss does not use.",
        "deepspeed_build": "A compiled extension could not be built or loaded.",
        "deepspeed_config_error": "DeepSpeed does not accept its configuration.",
        "device_mismatch": "One operation has tensors on different devices.",
        "device_side_assert": "A kernel met an impossible value, nearly always an index out of range.",
        "disk_quota": "A file system is full, or the user's quota is used up.",
        "driver_too_old": "The node's driver is older than torch's CUDA needs.",
        "dtype_mismatch": "One operation has tensors of different dtypes.",
        "empty_dataset": "The data set has no samples, or no whole batch.",
        "env_vars_missing": "The launcher did not give a process its rank.",
        "file_not_found": "A file is missing where the job looked for it.",
        "environment_module": "The module command did not load a module of the batch script.",
        "fp16_underflow": "Gradients are too small for fp16 and become zero.",
        "fsdp_error": "FSDP cannot shard the model in this way.",
        "gloo_connect": "Two ranks lost their connection, or never had one.",
        "gpu_memory_errors": "The memory of a GPU is damaged.",
        "gpu_memory_full": "A GPU's memory has hardly any room left.",
        "gpu_memory_leak": "The program keeps more and more memory of a GPU.",
        "gpu_throttled": "Heat or lack of power slows a GPU down.",
        "gpu_underfed": "Kernels run all the time, and use little of the GPU.",
        "gradient_not_finite": "The gradients are not finite, so their steps are lost.",
        "hang": "All ranks wait, and no work is done.",
        "host_memory_leak": "The program keeps more and more memory of its node.",
        "host_oom": "The job needed more memory of its node than it had, and a process was killed.",
        "hostname_resolution": "A host name has no address.",
        "hub_access": "A model hub wants a login, or a permission, that the job does not have.",
        "idle_ranks": "Ranks or GPUs that the job has do not train.",
        "illegal_memory_access": "A kernel read or wrote an invalid memory address.",
        "input_bound": "The training waits for its data.",
        "io_error": "A file system could not read or write.",
        "invalid_device_ordinal": "A process asks for a GPU that the job does not have.",
        "loss_divergence": "The training gets worse instead of better.",
        "loss_spikes": "The loss jumps up again and again.",
        "low_gpu_utilization": "GPUs that the job holds do nothing most of the time.",
        "lr_decayed_early": "The learning rate was almost 0 long before the end.",
        "lr_never_moves": "A warm-up should have raised the learning rate, but it stays at its first value.",
        "memory_above_request": "The job used more memory than it requested, and Slurm did not prevent it.",
        "memory_over_request": "The job requested more memory than it used.",
        "memory_raised_blindly": "More memory was requested, although memory was not the problem.",
        "memory_pressure": "Processes wait until the node finds memory for them.",
        "module_not_found": "Python cannot import a package in this environment.",
        "mpi_launch": "MPI, or the PMI between it and Slurm, did not start the ranks.",
        "nan_loss": "The loss is no longer finite, and all weights trained with it are lost.",
        "nccl_error": "NCCL could not carry out a call.",
        "nccl_network": "The network between the nodes failed.",
        "nccl_over_sockets": "NCCL uses TCP between the nodes and leaves a faster network unused.",
        "nccl_timeout": "Some rank did not take part in a collective operation.",
        "nfs_server_silent": "A file server does not answer, and every process that uses its files waits.",
        "no_checkpoint": "The run will meet its time limit with nothing saved.",
        "no_kernel_image": "A library was not built for this model of GPU.",
        "no_log": "The job failed before it wrote a line, or its log is elsewhere.",
        "no_network": "The node has no internet access.",
        "node_failure": "The machine under the run stopped.",
        "node_fails_often": "A node fails more often than its peers.",
        "not_learning": "The model does not get better, or only guesses.",
        "nvlink_down": "A GPU has lost links to its neighbours.",
        "overfitting": "The model memorizes its training samples.",
        "pcie_degraded": "A GPU is connected more slowly than it could be.",
        "permission_denied": "The job may not read or write a file.",
        "pg_not_initialized": "A distributed call came before the process group existed.",
        "port_in_use": "Another program has the port on which the ranks meet.",
        "process_limit": "The user may start no further process or thread on the node.",
        "rank_mismatch_collective": "The ranks do not call the same collective operations.",
        "recompile_limit": "The compiler stopped compiling a function, because it changed too often.",
        "rendezvous_timeout": "The ranks did not find each other in time.",
        "same_failure_again": "The same work fails with the same cause each time.",
        "same_order": "Each epoch has the samples in the same order.",
        "same_samples": "Several ranks train on the same samples.",
        "scheduler_epilogue": "Only the last words of the batch system tell that the job failed.",
        "script_format": "A script has Windows line ends, or no right #! line, so it cannot run.",
        "segfault": "Native code crashed.",
        "service_login": "A service wants a login that the job does not have.",
        "shape_mismatch": "One operation has tensors whose shapes do not fit.",
        "shared_library_missing": "The system does not find a library, or finds another version of it.",
        "shm_bus_error": "The memory that processes of a node share is full.",
        "sigterm_signal": "Somebody or something outside ended the program by a signal.",
        "slow_storage": "The training waits for its storage.",
        "slower_than_before": "The run is slower than the same runs before it.",
        "slowing_down": "Each step takes longer than the one before it.",
        "slurm_cancelled": "Somebody cancelled the job.",
        "slurm_invalid_request": "Slurm refused the request.",
        "slurm_node_fail": "A node of the job failed.",
        "slurm_preempted": "The job had to give its resources to another job.",
        "slurm_timeout": "The job was not done within its time limit.",
        "stale_nfs": "The server no longer has a file that the job had open.",
        "state_dict_mismatch": "The checkpoint belongs to another model.",
        "straggler": "One rank is slower than the others.",
        "sweep_brake": "The first runs of its sweep failed in the same way, so this one did not begin.",
        "time_over_request": "The job requested more time than it used.",
        "too_many_open_files": "A process reached its limit of open files.",
        "too_many_workers": "The job starts more workers than it has CPUs.",
        "torch_compile_error": "The compiler could not translate the model.",
        "uneven_gpus": "One GPU has far less or far more work than the others.",
        "unknown_failure": "The job failed, and the reason is not known.",
        "user_interrupt": "Somebody at the keyboard interrupted the program.",
        "vanishing_gradients": "The gradients are too small to change the weights.",
        "too_few_gpus": "The program wants more GPUs than the job has.",
        "version_conflict": "Packages of the environment do not fit together.",
        "weights_only_load": "The file holds objects that are no weights, which torch.load refuses.",
        "xid_hw_error": "The driver reported an error of a GPU.",
    }
)

_ENDS_BY_SLURM = "JOB002 JOB005 JOB018 JOB003"

_EDGES = _edges(
    ("MEM011", "COD002", "a full /dev/shm ends a process by a bus error"),
    ("COD001", "COD002", "an interpreter that an exception ends may crash while it shuts down"),
    ("DST005 DST004", "COD002", "NCCL's watchdog aborts its process"),
    ("CUD004 CUD003", "CUD002", "after a kernel failed, every call of CUDA fails"),
    ("MEM001", "CUD002", "a library that finds no memory for its handle says that it failed"),
    ("HDW001 HDW002", "CUD002", "a broken GPU refuses every call"),
    ("CUD004", "CUD003", "calls after a failed assertion report any error of the GPU"),
    ("MEM007", "DAT005", "the kernel kills a worker first when memory runs out"),
    ("MEM011 ENV012", "DAT005", "a worker dies when it can share no memory or open no file"),
    ("DAT012", "DAT005", "a worker that never got its work dies at once"),
    (_ENDS_BY_SLURM, "DAT005", "Slurm ends the workers with the job"),
    ("ENV010", "DAT005", "a worker dies when it cannot write"),
    ("ENV010", "DAT010", "a full disk cuts a file short"),
    ("ENV010", "JOB017", "a full disk takes no log"),
    (
        "MEM007 DST006 DST021",
        "DST020",
        "a rank that has ended, waits elsewhere or has no address does not answer",
    ),
    ("DST021 DST002 CUD005", "DST003", "a rank that found no address or port, or no CUDA, never arrives"),
    ("DST019", "DST004", "without the network NCCL reaches no other rank"),
    ("MEM001", "DST004", "NCCL needs memory of the GPU too"),
    ("CUD003 CUD004", "DST004", "after a kernel failed, every call of NCCL fails"),
    ("HDW001 HDW002", "DST004", "a broken GPU refuses NCCL"),
    ("ENV002 ENV004", "DST004", "without a usable GPU NCCL cannot start"),
    ("ENV012 MEM011", "DST004", "NCCL needs files and shared memory for its connections"),
    ("ENV024", "DST005 DST007 JOB002", "a process waits for its file server until it answers"),
    ("ENV012", "DST019 MEM011", "a connection or a shared tensor needs an open file"),
    ("DST006", "DST005", "ranks in different collectives wait for each other"),
    ("MEM007", "DST005", "the others wait for the rank that was killed"),
    ("DST019", "DST005", "without the network no collective ends"),
    ("MEM008", "DST003 DST004 DST005 DST019 DST020", "the others wait for a killed rank, or lose it"),
    ("HDW003 HDW004", "DST008", "a slow GPU makes its rank late"),
    ("DAT001", "DST008 GPU005", "workers that fight for CPUs are late"),
    ("DST011", "DST009 GPU003", "a GPU without a rank does nothing"),
    ("HDW003", "DST009", "a slow GPU works while the others wait"),
    ("DST008", "DST009 GPU005 GPU011", "the other ranks wait for the slow one"),
    ("GPU003 GPU006 GPU005 DAT006", "DST009", "GPUs that wait do so at different times"),
    ("ENV002", "ENV004", "torch cannot use a GPU through a driver that is too old"),
    ("ENV008", "ENV007", "without its environment a program lacks its modules"),
    ("ENV023", "ENV007 ENV008", "a module that was not loaded brings no Python and no programs"),
    ("ENV021", "DAT011", "what the job could not fetch is not there"),
    ("ENV025", "DAT011 ENV007 ENV008 ENV023 COD001", "a name with a Windows line end names nothing"),
    (
        "ENV026",
        "COD001 COD002 DAT005",
        "a process that may start no thread fails, or is left without workers",
    ),
    ("ENV003 ENV004", "GPU003", "a program that takes the CPU gives the GPUs no work"),
    ("GPU006 GPU005 DAT006 GPU011", "GPU003", "a GPU that waits for its work is idle"),
    ("GPU006 DAT006", "GPU005", "a loader waits for CPUs or for storage"),
    ("DAT001", "GPU006 GPU011", "more workers than CPUs keep the CPUs busy"),
    ("GPU005", "GPU011", "steps that wait for data are slow whatever their size"),
    ("MEM007", "MEM013", "the kernel or Slurm did end the job for its memory"),
    ("MEM009", "MEM013", "memory that grows without end passes every request"),
    ("HDW003 MEM009 MEM012 DAT006 GPU006", "GPU017", "a scarce resource slows each step down"),
    ("CUD003 CUD004", "HDW001", "the driver reports a program's own fault as an Xid too"),
    ("HDW001 CUD003 CUD004", "HDW010", "the log has more details of the same Xid"),
    ("MEM007", "JOB005", "a job is cancelled after its memory ran out"),
    ("JOB002 JOB018 JOB003", "JOB005", "Slurm calls each job that it ends cancelled"),
    (f"{_ENDS_BY_SLURM} MEM007", "JOB011", "a step cannot start in a job that has ended"),
    ("JOB002 JOB018 JOB003 JOB005", "JOB014", "Slurm ends a job by signals"),
    ("MEM007 DST005 DST004 DST020 DST003", "JOB014", "a launcher ends the other ranks by a signal"),
    ("JOB011", "JOB014", "a step that cannot start ends the others"),
    ("JOB003", "JOB017", "a log is lost with its node"),
    ("MEM007 MEM011", "MEM008", "the kernel kills the process that needs the memory"),
    (_ENDS_BY_SLURM, "MEM008", "Slurm kills processes that do not end by themselves"),
    ("DAT005", "MEM008", "a main process ends its workers"),
    ("NUM002", "NUM001", "the loss was not finite from the first step on"),
    ("NUM001 NUM002 NUM004", "NUM003", "if the loss is not finite, its gradients are not finite either"),
    ("NUM001 NUM004", "NUM006", "a loss often rises before it becomes infinite"),
    ("NUM001 NUM006", "NUM007", "the loss of a failing training often jumps first"),
    ("NUM001 NUM004 NUM006", "NUM008", "a training that fails learns nothing"),
    ("NUM001 NUM002 NUM003 NUM004 NUM006", "NUM010", "gradients grow when a training fails"),
    ("NUM006", "NUM013", "a loss that diverges does so on held-out data too"),
    ("NUM001 NUM002", "END001", "many trainers stop if the loss is not finite"),
)

_NEAR_EDGES = _edges(
    ("NUM001 NUM002 NUM006", "COD001", "a trainer that finds its loss not finite raises an exception"),
    within_lines=12,
)

REGISTER = Register(_CODES, _CAUSES, (*_EDGES, *_NEAR_EDGES))
