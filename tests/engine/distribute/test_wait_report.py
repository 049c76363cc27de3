"""Processes of a cluster that do not answer are reported while another waits for them."""

import socket
import time

from engine.distribute import tf_config
from tools.local_cluster import free_ports


def test_silent_processes_are_printed_until_the_session_exists(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = f"127.0.0.1:{server.getsockname()[1]}"
        silent = f"127.0.0.1:{free_ports(1)[0]}"
        addresses = {"ps 0": listening, "ps 1": silent, "chief 0": "no port"}
        hook = tf_config.WaitReportHook(addresses, first=0)
        hook.begin()
        printed = ""
        while "\n" not in printed:
            time.sleep(0.01)
            printed += capsys.readouterr().out
        hook.after_create_session(None, None)
    assert printed == f"waiting for ps 1 ({silent}), chief 0 (no port): no answer for 0 s\n"


def test_nothing_is_printed_if_all_answer(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        hook = tf_config.WaitReportHook({"ps 0": f"127.0.0.1:{server.getsockname()[1]}"}, first=0)
        hook.begin()
        server.accept()
        hook.after_create_session(None, None)
    assert capsys.readouterr().out == ""
