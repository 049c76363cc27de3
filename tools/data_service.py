"""Produces batches of trainings on other hosts: a server of the tf.data service.

python -m tools.data_service --port=5050

Start one on each machine that helps, and give their addresses to the trainings:
--data_service=grpc://HOST:5050,grpc://HOST:5050. Uses two ports, PORT and PORT + 1. Who reaches
them can run TensorFlow graphs here, which read and write files: use a network that you trust.
SIGTERM or Ctrl-C ends it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

from absl import flags

from common.errors import UsageError

FLAGS = flags.FlagValues()

flags.DEFINE_integer(
    "port",
    5050,
    "Port of the dispatcher, which --data_service names; the worker has the next one.",
    lower_bound=1,
    upper_bound=2**16 - 2,
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "host",
    socket.gethostname(),
    "Name or IP address by which the trainings reach this machine.",
    flag_values=FLAGS,
)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A training that ends or resumes leaves its datasets; their caches and buffers are freed then.
_FREE_AFTER_MS, _SILENT_MS = 1000, 30_000


def main() -> None:
    """Serves until a signal."""
    try:
        unknown = FLAGS(sys.argv)[1:]
    except flags.Error as error:
        raise UsageError(str(error)) from error
    if unknown:
        raise UsageError(f"unexpected argument '{unknown[0]}'. Flags are written --name=value")
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # in the threads of the servers, too
    servers = start(FLAGS.host, FLAGS.port)
    address = f"grpc://{FLAGS.host}:{FLAGS.port}"
    print(f"serving --data_service={address} (and port {FLAGS.port + 1})", flush=True)
    number = signal.sigwait(_SIGNALS)
    del servers
    print(f"ended by {signal.Signals(number).name}")


def start(host: str, port: int) -> list:
    """Starts a dispatcher on `port` and its worker on the next one; returns both."""
    import tensorflow as tf

    service = tf.data.experimental.service
    for each in (port, port + 1):
        try:
            socket.create_server(("", each)).close()
        except OSError as error:
            raise UsageError(
                f"port {each}: {os.strerror(error.errno)}. Use another --port"
            ) from error
    dispatcher = service.DispatchServer(
        service.DispatcherConfig(
            port,
            job_gc_check_interval_ms=_FREE_AFTER_MS,
            job_gc_timeout_ms=_FREE_AFTER_MS,
        )
    )
    worker = service.WorkerServer(
        service.WorkerConfig(
            f"localhost:{port}", f"{host}:{port + 1}", port + 1, heartbeat_interval_ms=1000
        )
    )
    return [worker, dispatcher]


if __name__ == "__main__":
    startup.run(main)
