"""`python -m fastsync_lab` is ./fastsync."""

from fastsync_lab.host.interrupt import guarded


def run() -> None:
    """The command line; it is loaded with a signal's handler in place, for that takes a second."""
    from fastsync_lab.cli.main import main

    main()


if __name__ == "__main__":
    guarded(run)
