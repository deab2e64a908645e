"""`python -m fastsync_lab` is ./fastsync."""

from fastsync_lab.cli import main

if __name__ == "__main__":
    main()
