"""The command line: ./fastsync.

options     what several commands share
output      whether one can write where it is told to
study       run, list
vm          vm, shell
build, calibrate, clean, crash, faults, report, series, xfstests
            a command each
main        the way in
first_runs  what `make first-runs` does
"""
