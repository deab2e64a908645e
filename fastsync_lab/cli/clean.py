"""The command `clean`."""

import shutil
from typing import Annotated

import typer

from fastsync_lab.cli.options import shown
from fastsync_lab.host.paths import CACHED, build_dir, cache_dir


def clean(
    cache: Annotated[
        bool,
        typer.Option("--cache", help="Remove the cache of kernels, chroots and images as well."),
    ] = False,
) -> None:
    """Remove what was built (build/)."""
    found = [build_dir()] if build_dir().exists() else []
    if cache:
        found += [path for name in CACHED for path in sorted(cache_dir().glob(name))]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        print(f"removed {shown(path)}")
