"""The power-cut explorer: record a workload's writes, cut the power everywhere, check what is left.

log      the log of dm-log-writes
states   what can be on the medium when power fails
extfs    read the files out of an ext4 image
trace    what the workload did
model    the same, as versions of what each file was
oracle   what must be there after a crash, and what may be
sql      the same for databases
mariadb  a MariaDB server, in the guest and on the host
workloads  what is run
guest    recording and recovery, in the virtual machine
explore  a whole run
summary  the tables in docs/power-cuts.md
"""
