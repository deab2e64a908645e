"""The I/O error sweep: fail each request of a short workload, compare with the stock modules.

workloads  what is run
layout     what a request is for, by where it goes
guest      running workloads on a failing device, in the virtual machine
compare    what is different from stock
sweep      a whole run
command    from the options to a run
summary    the table in docs/io-errors.md
"""
