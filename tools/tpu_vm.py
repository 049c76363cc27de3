"""Trains on a Cloud TPU VM: creates it, copies code and data, runs a program, deletes it.

    python -m tools.tpu_vm up --name=my-tpu --type=v3-8 --zone=us-central1-a --spot
    python -m tools.tpu_vm push --data=data/digits --bucket=gs://my-bucket/digits
    python -m tools.tpu_vm run -- python run_tpu.py --flagfile=configs/digits.cfg ...
    python -m tools.tpu_vm status
    python -m tools.tpu_vm down

In other projects: `tpu-estimator vm up`, of the distribution of tpu/.
"""

import sys

from common import python_version

if __name__ == "__main__":
    python_version.require()

from tpu.vm.command_line import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m tools.tpu_vm"))
