"""xfstests, the file systems' own test suite: what passes on stock ext4 and fails on ours.

tree       a checkout that the user names: its tests and groups, its build
guest      running a test in the virtual machine; guest.sh is the guest's part of it
results    verdicts, the comparison with stock, the result file
run        a whole run
command    from the options to a run
summary    the table on the terminal and in docs/xfstests.md
"""
