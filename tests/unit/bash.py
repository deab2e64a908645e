"""Bash that the lab makes for guests, read by shellcheck."""

from collections.abc import Iterable

from fastsync_lab.host import shell


def complaints(bodies: Iterable[str], *, exclude: str) -> str:
    """What shellcheck says of scripts, each a function that is called; `exclude` are its codes."""
    functions = [f"f{at}() {{\n{one.rstrip()}\n}}\nf{at}" for at, one in enumerate(bodies)]
    text = "\n".join(["#!/bin/bash", *functions, ""])
    argv = ["shellcheck", "--shell=bash", "--severity=info", f"--exclude={exclude}", "-"]
    return shell.run(argv, input_text=text, check=False).stdout
