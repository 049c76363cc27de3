"""Command line of the package: `python -m tpu emulate|check|compare|vm ...`."""

import sys

from tpu.programs.command_line import main

if __name__ == "__main__":
    sys.exit(main())
