"""A module that takes long to load, for interrupted.py."""

import time

time.sleep(100)
