"""The command line: ./fastsync.

options     what several commands share
study       run, list
vm          vm, shell
calibrate, report, series, xfstests
            a command each
main        all the others, and the way in
first_runs  what `make first-runs` does
"""
