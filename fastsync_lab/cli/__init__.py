"""The command line. main has the commands, the larger ones in modules of their own."""
