"""What all tests share."""

from hypothesis import settings

# A loaded machine may be slow at any one example: no deadline, and the same examples every time.
settings.register_profile("fastsync", deadline=None, derandomize=True)
settings.load_profile("fastsync")
