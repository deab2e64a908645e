"""The command `build`."""

from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.cli.options import (
    DEFAULT_KERNEL,
    KernelOption,
    StockOption,
    check_kernel,
    shown,
)
from fastsync_lab.host import needs
from fastsync_lab.host.build import build_modules, build_own_module, own_modules, plain_name
from fastsync_lab.host.debug.kernel import DEBUG
from fastsync_lab.host.debug.kernel import debug_kernel as build_debug_kernel
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.progress import Report, progress


def build(
    kernel: KernelOption = DEFAULT_KERNEL,
    stock: StockOption = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask apt for a newer kernel first (root or sudo).")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help=f"Build kernels that look for bugs ({', '.join(DEBUG)}) from the same source, "
            "and the modules for them: 1,300 files to compile for each, 3 GB.",
        ),
    ] = False,
) -> None:
    """Fetch a stock Debian kernel into the cache and build jbd2.ko and ext4.ko for it.

    So are the lab's device model and, where it can be had, the I/O scheduler qasio. The result is
    build/SERIES/ (build/SERIES-stock/ with --stock, build/SERIES-kasan/ and build/SERIES-kcsan/
    with --debug). Nothing is installed.
    """
    check_kernel(kernel, stock=stock)
    needs.check_programs(needs.BUILD, needs.DEBUG_KERNEL if debug else ())
    with progress() as report:
        tree = fetch_kernel(kernel, refresh=refresh, report=report)
        trees = (
            [build_debug_kernel(tree, name, report=report) for name in DEBUG] if debug else [tree]
        )
        built = [(file, tree) for tree in trees for file in products(tree, stock, report)]
    for file, tree in built:
        print(f"{shown(file)}  for {tree.release}")


def products(tree: KernelTree, stock: bool, report: Report) -> list[Path]:
    """Build all modules for a kernel; the names under which a user finds them."""
    modules = build_modules(tree, stock=stock, report=report)
    own = [] if stock else [build_own_module(name, tree, report) for name in own_modules(tree)]
    return [plain_name(module) for module in (modules.jbd2, modules.ext4, *own)]
