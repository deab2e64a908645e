"""This machine: Debian's kernels, what is built for them, and how other programs are run.

kernels, fetch   which stock kernels there are, and how one gets into the cache
chroot           the Debian that a kernel's compiler comes from
glue             our files and patches on a kernel's own sources
build, series    the modules; the same change as patches for a kernel tree
debug            kernels that look for bugs, and the one that is a program of this machine
workload         programs/, compiled for the guest
options          the modes of our ext4, and their mount options
age              whether a result is of what this tree has now
needs            the programs that each command runs
lint, mutants    what `make lint` and `make mutants` run
shell            child processes, all of them
interrupt        what a signal ends, and how
progress         how long work tells what it is doing
shares           work for several threads
limits           time limits that tell a dead guest from a busy host
paths            where things lie; locks, and files that are never half written
errors           what a user is told in one line
terminal         this process's terminal, when a guest's program takes it over
"""
