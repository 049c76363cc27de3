"""Command line of the package: `python -m tpu emulate|run|check|compare|vm ...`."""

import sys

from tpu.programs import command_line, processes


def main():
    """Runs the command of `sys.argv`; ends this process with its exit status."""
    status = command_line.main()
    if sys.argv[1:2] not in (["emulate"], ["run"]):  # its status is that of the program
        processes.keep_status(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
