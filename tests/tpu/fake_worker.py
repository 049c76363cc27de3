"""A fake TPU worker: implements enough of TensorFlow's gRPC service to be found.

Usage: python fake_worker.py HOSTS CORES_PER_HOST. Prints its port, then serves until it is killed.

TPUClusterResolver and TPUEstimator find a TPU in it without any patches. It is a separate process
because a session that lists devices holds the GIL.
"""

import signal
import sys
from concurrent import futures

import grpc

SERVICE = "/tensorflow.MasterService/"
# Tags of fields 1 and 2 with wire type 2 (length-delimited). Messages are encoded by hand because
# the wheel does not contain master.proto, and the import of TensorFlow takes seconds.
FIELD_1, FIELD_2 = b"\x0a", b"\x12"


def field(tag, value):
    """Returns an encoded field of less than 128 bytes."""
    return tag + bytes([len(value)]) + value


def create_session():
    """Returns a CreateSessionResponse with a session_handle."""
    return field(FIELD_1, b"fake")


def list_devices(num_hosts, cores_per_host):
    """Returns a ListDevicesResponse with local_device (of the master) and remote_device."""
    answer = b""
    for host in range(num_hosts):
        for kind, count in (("CPU", 1), ("TPU_SYSTEM", 1), ("TPU", cores_per_host)):
            for i in range(count):
                name = f"/job:worker/replica:0/task:{host}/device:{kind}:{i}"
                attributes = field(FIELD_1, name.encode()) + field(FIELD_2, kind.encode())
                answer += field(FIELD_2 if host else FIELD_1, attributes)
    return answer


class Worker(grpc.GenericRpcHandler):
    """Handles the RPCs of TPU discovery with fixed responses."""

    def __init__(self, num_hosts, cores_per_host):
        self._answers = {
            "CreateSession": create_session(),
            "ListDevices": list_devices(num_hosts, cores_per_host),
            "CloseSession": b"",
            "Reset": b"",
        }

    def service(self, handler_call_details):
        method = handler_call_details.method
        if not method.startswith(SERVICE) or method[len(SERVICE) :] not in self._answers:
            return None
        answer = self._answers[method[len(SERVICE) :]]
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


def main():
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([Worker(*map(int, sys.argv[1:]))])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    signal.pause()  # wait_for_termination() polls


if __name__ == "__main__":
    main()
