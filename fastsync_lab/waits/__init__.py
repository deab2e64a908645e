"""The experiment qasio: file system calls beside a bulk writer, under one I/O scheduler or another.

Its programs are programs/waitbench.c and kernel/qasio. Other experiments compare what ext4 does on
an idle device; here ext4 is the stock one, and what differs is who is served first.

rows     what is run and what is required: rows.toml
cells    one setting: its script, and what it measured
run      a whole run; one guest for each device, finished cells are kept
figures  values that can be compared, and verdicts
summary  docs/qasio-results.md
"""
