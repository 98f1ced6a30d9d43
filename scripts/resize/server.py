"""A server of few worker processes' worth: so many threads, each of which takes a connection from the accept queue, waits
as for a database, and answers. What it takes is limited by its workers, not by the processor.

Usage: server.py PORT WORKERS WAIT_S BACKLOG
"""

import socket
import sys
import threading
import time


def work(listener: socket.socket, wait_s: float) -> None:
    """Serves one connection after another."""
    while True:
        connection, _ = listener.accept()
        try:
            # A check connects and sends nothing.
            if connection.recv(4096):
                time.sleep(wait_s)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        except OSError:
            pass
        connection.close()


def main() -> None:
    """Serves until it is killed."""
    port, workers, wait_s, backlog = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(backlog)
    for _ in range(workers):
        threading.Thread(target=work, args=(listener, wait_s), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
