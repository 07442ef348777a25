"""Write one kernel for two operations, bias and GELU, in Triton and in CUDA C, and compare it with eager
torch and with torch.compile.

    python trainers/fused_kernel.py --max_steps 10

Trains nothing. Without a GPU the Triton kernel runs in Triton's interpreter, to see that it is right, and the
CUDA kernel is compiled and not run.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import importlib.util
import os
import warnings
from typing import Any, Callable

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.bench import Bench, largest_difference
from common.distributed import TrainerError, pick_device, print_rank0, require_single_process, run
from common.needed import needed
from torch import Tensor

IS_INTERPRETED = not torch.cuda.is_available()
if IS_INTERPRETED:  # Triton looks at this when it is imported
    os.environ["TRITON_INTERPRET"] = "1"
with needed("`pip install triton`, or torch for CUDA, which brings it"):
    import triton
    import triton.language as tl

THREADS = 256  # of one block
INTERPRETED_ROWS = 16  # Triton's interpreter is a program in Python
TOLERANCE = 1e-5

CUDA_SOURCE = r"""
extern "C" __global__ void bias_gelu(const float* x, const float* bias, float* result, int num_numbers,
                                     int num_columns) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;  // one number for each thread
    if (place < num_numbers) {
        float sum = x[place] + bias[place % num_columns];  // stays in a register: never written to memory
        float inner = 0.7978845608f * (sum + 0.044715f * sum * sum * sum);
        result[place] = 0.5f * sum * (1.0f + tanhf(inner));
    }
}
"""


@triton.jit
def bias_gelu_in_triton(x, bias, result, num_numbers, num_columns, BLOCK: tl.constexpr):
    """The same in Triton: a program computes a block of numbers, and the compiler makes threads of it."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = places < num_numbers
    total = tl.load(x + places, mask=is_inside) + tl.load(bias + places % num_columns, mask=is_inside)
    inner = 0.7978845608 * (total + 0.044715 * total * total * total)
    gelu = total / (1 + tl.exp(-2 * inner))  # which is 0.5 * total * (1 + tanh(inner))
    tl.store(result + places, gelu, mask=is_inside)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """In torch: two kernels, and the sum goes to memory and back between them."""
    return F.gelu(x + bias, approximate="tanh")


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("max_steps", "max_seconds", "seed")
    parser.add_argument(
        "--rows", type=int, default=2048, min=1, usual=(16, 65536), unit="rows", help="Rows of the matrix"
    )
    parser.add_argument(
        "--columns",
        type=int,
        default=4096,
        min=1,
        max=32768,
        usual=(16, 32768),
        unit="numbers",
        help="Numbers in a row, and in the bias",
    )
    parser.add_argument(
        "--compile",
        type=bool,
        default=True,
        help="Compare with torch.compile too; on a CPU it takes up to a minute and needs a C++ compiler",
    )
    parser.add_places()
    parser.change_shared("bench")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Bench(args, device) as bench:
        measure(args, device, bench)


def measure(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    torch.manual_seed(args.seed)
    bench.start(triton=triton.__version__)
    if args.rows * args.columns >= 2**31:
        raise TrainerError(f"rows={args.rows} times columns={args.columns}: the kernels count below 2^31")
    x = torch.randn(args.rows, args.columns, device=device)
    bias = torch.randn(args.columns, device=device)
    print_rank0(f"bias and GELU of {args.rows} x {args.columns} numbers in fp32 on {device.type}:")
    print_rank0("way          time us     GB/s    largest error")
    compare("eager", bias_gelu, x, bias, bench)
    if args.compile and bench.goes_on():
        compare("compile", compiled(), x, bias, bench)
    if bench.goes_on():
        if device.type == "cuda":
            compare("triton", in_triton, x, bias, bench)
        elif IS_INTERPRETED:
            compare("triton", in_triton, x[:INTERPRETED_ROWS], bias, bench, "interpreted, not timed")
        else:
            print_rank0("triton   not run: it is loaded for the GPU that this run does not use")
    if bench.goes_on():
        if device.type == "cuda":
            compare("cuda", cuda_kernel(device), x, bias, bench)
        else:
            show_compiled(bench)
    bench.finish()


def compare(
    way: str, compute: Callable[..., Tensor], x: Tensor, bias: Tensor, bench: Bench, not_timed: str = ""
) -> None:
    """Hold one way against the formula in 64 bits, and time it. GB/s counts the least traffic: each number is
    read once and written once."""
    wide = x.double() + bias.double()
    expected = 0.5 * wide * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (wide + 0.044715 * wide**3)))
    try:
        error = largest_difference(compute(x, bias), expected)
    except Exception as failure:
        if way != "compile":
            raise
        said = (str(failure).strip().splitlines() or [type(failure).__name__])[0]
        bench.row(
            "kernel", f"{way:8} not measured: {said[:80]}", way=way, kernel_time_s=None, error=said[:200]
        )
        return
    if not error <= TOLERANCE:
        raise TrainerError(f"{way} differs from the formula by {error:.1g} of the largest number")
    seconds = None if not_timed else bench.seconds_of(lambda: compute(x, bias))
    bandwidth = None if seconds is None else 2 * x.numel() * x.element_size() / seconds / 1e9
    timed = f"{1e6 * seconds:11,.0f} {bandwidth:8.1f}" if seconds and bandwidth else not_timed
    bench.row(
        "kernel",
        f"{way:8} {timed:22} {error:14.1g}",
        way=way,
        kernel_time_s=seconds,
        bandwidth_gb_s=bandwidth,
        largest_error=error,
    )


def compiled() -> Callable[..., Tensor]:
    # It advises TF32, which is not used.
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    return torch.compile(bias_gelu)  # type: ignore[no-any-return] # it is as callable as what it compiles


def in_triton(x: Tensor, bias: Tensor) -> Tensor:
    result = torch.empty_like(x)
    block = 1024
    num_programs = triton.cdiv(x.numel(), block)
    bias_gelu_in_triton[(num_programs,)](x, bias, result, x.numel(), x.shape[1], BLOCK=block)
    return result


def cuda_kernel(device: torch.device) -> Callable[..., Tensor]:
    """The CUDA kernel, ready to be called. torch 2.9 and later compile and launch one themselves; before, the
    driver does."""
    if hasattr(torch.cuda, "_compile_kernel"):
        launch = torch.cuda._compile_kernel(CUDA_SOURCE, "bias_gelu")
    else:
        major, minor = torch.cuda.get_device_capability(device)
        launch = load_with_driver(compile_cuda(f"sm_{major}{minor}"))

    def compute(x: Tensor, bias: Tensor) -> Tensor:
        result = torch.empty_like(x)
        blocks = (x.numel() + THREADS - 1) // THREADS
        launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=[x, bias, result, x.numel(), x.shape[1]])
        return result

    return compute


def show_compiled(bench: Bench) -> None:
    """Compile the CUDA kernel for two generations of GPUs, A100 and H100."""
    for architecture in ("sm_80", "sm_90"):
        try:
            binary = compile_cuda(architecture)
        except OSError as error:
            bench.row(
                "kernel", f"cuda     not compiled: {error}", way="cuda", kernel_time_s=None, error=str(error)
            )
            return
        bench.row(
            "kernel",
            f"cuda     compiled for {architecture} ({len(binary):,} bytes), not run: no GPU",
            way="cuda",
            kernel_time_s=None,
            architecture=architecture,
            num_binary_bytes=len(binary),
        )


def compile_cuda(architecture: str) -> bytes:
    """Machine code for one generation of GPUs, made by NVRTC, NVIDIA's compiler as a library. It needs
    neither a GPU nor a driver. Raises OSError where it is not installed."""
    library = ctypes.CDLL(find_nvrtc())
    program = ctypes.c_void_p()

    def check(status: int) -> None:
        if status:
            size = ctypes.c_size_t()
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            raise TrainerError(
                f"NVRTC, for {architecture}: status {status}: {log.value.decode(errors='replace')}"
            )

    check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), CUDA_SOURCE.encode(), b"bias_gelu.cu", 0, None, None
        )
    )
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    check(library.nvrtcCompileProgram(program, len(options), options))
    size = ctypes.c_size_t()
    check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    binary = ctypes.create_string_buffer(size.value)
    check(library.nvrtcGetCUBIN(program, binary))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def find_nvrtc() -> str:
    """The library among the packages of NVIDIA, else the one that the loader finds."""
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        for pattern in ("cuda_nvrtc/lib", "cu*/lib"):
            found = sorted(glob.glob(os.path.join(folder, pattern, "libnvrtc.so.[0-9]*")))
            if found:
                return found[-1]
    return "libnvrtc.so"


def load_with_driver(binary: bytes) -> Callable[..., None]:
    """Load machine code by CUDA's driver library, and launch it as torch's own launcher would."""
    driver = ctypes.CDLL("libcuda.so.1")
    torch.cuda.current_stream().synchronize()  # torch has made the context by now
    module, function = ctypes.c_void_p(), ctypes.c_void_p()

    def check(status: int) -> None:
        if status:
            raise TrainerError(f"CUDA's driver refused the kernel: status {status}")

    check(driver.cuModuleLoadData(ctypes.byref(module), binary))
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"bias_gelu"))

    def launch(grid: tuple[int, ...], block: tuple[int, ...], args: list[Any]) -> None:
        values = [
            ctypes.c_void_p(value.data_ptr()) if isinstance(value, Tensor) else ctypes.c_int(value)
            for value in args
        ]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        check(driver.cuLaunchKernel(function, *grid, *block, 0, stream, pointers, None))

    return launch


if __name__ == "__main__":
    run(main)
