"""The program whose forks the workers are; `births.py` says why.

    python -m gateway.serving.workers.forkserver PIDS CONTROL CONNECTIONS [CONTROL CONNECTIONS ...]

All are file descriptors. It forks a worker for each pair of sockets, writes the process id of each as a line to PIDS,
and ends. Nothing that it loads may start a thread: a fork would have its locks and not the thread.
"""

from __future__ import annotations

import gc
import os
import sys

from gateway.serving.workers import worker


def main(arguments: list[str]) -> int:
    pids, *sockets = map(int, arguments)
    # A collection would write to all that was loaded so far, and so give every fork a copy of its own.
    gc.collect()
    gc.freeze()
    for control, connections in zip(sockets[::2], sockets[1::2], strict=True):
        pid = os.fork()
        if not pid:
            for descriptor in {pids, *sockets} - {control, connections}:
                os.close(descriptor)
            return worker.main(control, connections)
        os.write(pids, b"%d\n" % pid)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
