"""The fastsync lab: build ext4 with coarse mtime, boot it, measure it.

A folder imports only those above it, itself included; tests/unit/test_house.py looks.

host      this machine: Debian's kernels and what is built for them, programs that are run
machine   a guest: how it is booted, reached and traced, and its modelled devices
study     what all studies share
studies   one file each
crash     the power-cut explorer
faults    the I/O error sweep
xfstests  the file systems' own test suite
cli       ./fastsync: a module for each of the larger commands
"""
