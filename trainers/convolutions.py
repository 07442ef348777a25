"""Compute one convolution in four ways, count the multiplications of each, and time them beside the
library's.

    python trainers/convolutions.py --batch_size 4

Trains nothing. All four give the numbers of torch's conv2d, but for rounding, or the bench ends with an
error.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.bench import Bench, largest_difference
from common.distributed import TrainerError, pick_device, print_rank0, require_single_process, run
from torch import Tensor

SHAPES = [  # channels in, channels out, height and width, kernel
    (3, 64, 32, 3),  # the three convolutions of SimpleCNN
    (64, 128, 16, 3),
    (128, 256, 8, 3),
    (16, 16, 64, 5),
    (16, 16, 64, 15),
]
TOLERANCE = 1e-4  # in fp32, as a share of the largest result; Winograd rounds more than the others


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("batch_size", "max_steps", "max_seconds", "seed")
    parser.add_places()
    parser.change_shared("bench")
    parser.change("batch_size", default=4, usual=(1, 1024), unit="images", help="Images of one convolution")
    parser.change("max_steps", default=5, usual=(3, 1000))
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Bench(args, device) as bench:
        measure(args, device, bench)


def measure(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    torch.manual_seed(args.seed)
    torch.backends.cudnn.allow_tf32 = False  # with TF32 conv2d on a GPU would have the largest error
    bench.start()
    print_rank0(
        f"convolutions of {args.batch_size} images on {device.type}, fp32, median of {args.max_steps}:"
    )
    print_rank0(" in  out  size kernel  way        multiplications   time ms  largest error")
    for num_in, num_out, size, width in SHAPES:
        images = torch.randn(args.batch_size, num_in, size, size, device=device)
        kernels = torch.randn(num_out, num_in, width, width, device=device)
        expected = F.conv2d(images.double().cpu(), kernels.double().cpu(), padding=width // 2).to(device)
        ways = {"conv2d": library, "direct": direct, "im2col": im2col, "fft": fft}
        if width == 3:
            ways["winograd"] = winograd
        for way, convolve in ways.items():
            if not bench.goes_on():
                bench.finish()
            error = largest_difference(convolve(images, kernels), expected)
            if not error <= TOLERANCE:
                raise TrainerError(f"{way} differs from conv2d by {error:.1g} of the largest number")
            seconds = bench.seconds_of(partial(convolve, images, kernels))
            count = multiplications(way, args.batch_size, num_in, num_out, size, width)
            bench.row(
                "convolution",
                f"{num_in:3} {num_out:4} {size:5} {width:6}  {way:9} {count:16,} {1e3 * seconds:9.2f}"
                f" {error:14.1g}",
                way=way,
                shape=[args.batch_size, num_in, num_out, size, width],
                num_multiplications=count,
                convolution_time_s=seconds,
                largest_error=error,
            )
    bench.finish()


# Every way takes images (batch, in, height, width) and kernels (out, in, width, width) of an odd width, and
# keeps height and width. As everywhere in machine learning the kernel is not mirrored.


def library(images: Tensor, kernels: Tensor) -> Tensor:
    """The algorithm that cuDNN or oneDNN takes for this shape."""
    return F.conv2d(images, kernels, padding=kernels.shape[-1] // 2)


def direct(images: Tensor, kernels: Tensor) -> Tensor:
    """The definition: for every place of the kernel, its weights times the images, shifted, added up."""
    width, size = kernels.shape[-1], images.shape[-1]
    padded = F.pad(images, [width // 2] * 4)
    result = torch.zeros((), device=images.device)
    for y in range(width):
        for x in range(width):
            shifted = padded[:, :, y : y + size, x : x + size]  # a view: nothing is copied
            result = result + torch.einsum("oi,nihw->nohw", kernels[:, :, y, x], shifted)
    return result


def im2col(images: Tensor, kernels: Tensor) -> Tensor:
    """One large product of matrices: each column holds the inputs of one number of the result. Memory for the
    images grows by the places of the kernel, nine times for 3x3."""
    width = kernels.shape[-1]
    columns = F.unfold(images, width, padding=width // 2)
    return (kernels.flatten(1) @ columns).view(len(images), len(kernels), *images.shape[2:])


def fft(images: Tensor, kernels: Tensor) -> Tensor:
    """Among frequencies a convolution is a product, number by number, whatever the width of the kernel."""
    width, size = kernels.shape[-1], images.shape[-1]
    padded = [size + width - 1] * 2  # else pixels that leave on one side would come in on the other
    spectrum = torch.fft.rfft2(images, padded)
    weights = torch.fft.rfft2(kernels, padded).conj()  # conj: without mirroring the kernel
    result = torch.fft.irfft2(torch.einsum("oihw,nihw->nohw", weights, spectrum), padded)
    first = width // 2
    return result.roll((first, first), (-2, -1))[..., :size, :size]


def winograd(images: Tensor, kernels: Tensor) -> Tensor:
    """F(2x2, 3x3) of Lavin and Gray, 2015 (arXiv 1509.09308): four numbers of the result by 16
    multiplications instead of 36, for more additions."""
    # A transform of a 4x4 tile by rows and by columns is a product with 16 numbers: kron makes its matrix.
    of_tile = images.new_tensor([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    of_kernel = images.new_tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    of_result = images.new_tensor([[1, 1, 1, 0], [0, 1, -1, -1]])
    num_images, _, height, width = images.shape
    padded = F.pad(images, (1, 1 + width % 2, 1, 1 + height % 2))
    tiles = padded.unfold(2, 4, 2).unfold(3, 4, 2).flatten(-2)  # (images, in, rows, columns, 16), two apart
    tiles = tiles @ torch.kron(of_tile, of_tile).T
    weights = kernels.flatten(-2) @ torch.kron(of_kernel, of_kernel).T
    products = torch.einsum("oik,nirsk->norsk", weights, tiles)  # 16 products of matrices
    result = products @ torch.kron(of_result, of_result).T  # (images, out, rows, columns, 4)
    result = result.unflatten(-1, (2, 2)).transpose(3, 4)
    result = result.reshape(num_images, len(kernels), padded.shape[2] - 2, padded.shape[3] - 2)
    return result[..., :height, :width]


def multiplications(way: str, num_images: int, num_in: int, num_out: int, size: int, width: int) -> int:
    """Multiplications that depend on images and kernels. Those by constants, such as in transforms, are left
    out, except those of the Fourier transform, which are most of its work."""
    if way == "winograd":
        num_tiles = ((size + 1) // 2) ** 2
        return num_images * num_in * num_out * num_tiles * 16
    if way != "fft":
        return num_images * num_in * num_out * size**2 * width**2
    padded = size + width - 1
    frequencies = padded * (padded // 2 + 1)
    products = 4 * num_images * num_in * num_out * frequencies  # of complex numbers
    # 2 n log2 n real multiplications for n complex numbers by radix 2, and half of it for real ones.
    transform = padded**2 * (padded**2 - 1).bit_length()
    return products + (num_images * (num_in + num_out) + num_in * num_out) * transform


if __name__ == "__main__":
    run(main)
