"""run_tpu.py with --tpu=NAME, for a TPU that only a fake Cloud TPU API knows.

The program of the TPU runs on emulated cores. The lookup of the name, TPUEstimator's poller of
preemptions and the supervisor are the real ones; both polls are more frequent.

Usage: PYTHONPATH=. python tests/tpu/named_tpu_program.py [flags of run_tpu.py]
"""

import sys

from engine.cli import startup, supervisor

if __name__ == "__main__":
    flag_values = startup.start(sys.argv, __doc__, "engine.cli.flags", "tpu.connect.flags")
    from tpu.connect import flags as tpu_flags

    supervisor.start(sys.argv, flag_values, tpu_flags.restart_flags())

from unittest import mock

from tensorflow.python.tpu import preempted_hook

import run_tpu
from tpu.connect import address, cloud_api, connection
from tpu.emulator import emulator

_POLL_SECONDS = 0.1
_SLICE = "1x2"


def main():
    """Runs run_tpu.py with the resolver and the poller that the emulator would replace."""
    resolver = connection.tf.distribute.cluster_resolver.TPUClusterResolver
    real = {name: vars(resolver)[name] for name in ("__init__", "master", "cluster_spec")}
    poller = preempted_hook._TPUPollingThread
    start_poller = poller.__init__

    def poll_often(self, cluster, session):
        start_poller(self, cluster, session)
        self._interval = _POLL_SECONDS

    with (
        emulator.emulate(_SLICE),
        mock.patch.multiple(resolver, **real),
        mock.patch.object(poller, "__init__", poll_often),
        mock.patch.object(cloud_api, "_POLL_SECONDS", _POLL_SECONDS),
        mock.patch.object(address.Address, "is_remote", False),  # emulated cores read local files
    ):
        run_tpu.main()


if __name__ == "__main__":
    startup.run(main, connection.TPUError)
