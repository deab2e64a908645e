"""The command `clean`."""

import shutil
from typing import Annotated

import typer

from fastsync_lab.cli.options import shown
from fastsync_lab.host.paths import build_dir, cache_dir


def clean(
    cache: Annotated[
        bool,
        typer.Option("--cache", help="Remove the cache of kernels, chroots and images as well."),
    ] = False,
) -> None:
    """Remove what was built (build/)."""
    for path in (build_dir(), *([cache_dir()] if cache else [])):
        if path.exists():
            shutil.rmtree(path)
            print(f"removed {shown(path)}")
