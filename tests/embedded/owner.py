"""A process that uses an embedded server, and reads commands from standard input, one per line.

Run by the tests as `python owner.py DIRECTORY`; each command is answered by one line.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from duly.embedded import EmbeddedServer, open_server
from duly.errors import DulyError


def ask(path: str, command: str) -> str:
    """Send one inline command, and return its reply on one line."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(command.encode() + b"\r\n")
        return connection.recv(65536).decode().strip().replace("\r\n", " ")


def write(server: EmbeddedServer, command: str) -> str:
    """Send a command until it is answered, like a client. The command must be repeatable."""
    while True:
        try:
            reply = ask(server.socket_path, command)
        except OSError:
            reply = ""
        if reply and not reply.startswith("-LOADING"):
            return reply
        server.ensure_running()


def fork(server: EmbeddedServer, command: str) -> str:
    """Use the server in a child that then ends, and return the child's result."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, write(server, command).encode())
        server.release()
        os._exit(0)
    os.wait()
    reply = os.read(read_end, 65536).decode()
    os.close(read_end)
    os.close(write_end)
    return reply


def cycle(directory: str, name: str, count: int) -> str:
    """Open, write and release, many times."""
    for number in range(count):
        server = open_server(directory)
        write(server, f"SADD {name} {number}")
        server.release()
        # From zero to longer than the stop, so that opens meet every part of it.
        time.sleep(number % 6 * 0.01)
    return "done"


def serve(directory: str) -> None:
    server: EmbeddedServer | None = None
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        try:
            if verb == "cycle":
                name, count = rest.split()
                answer = cycle(directory, name, int(count))
            elif server is None or verb == "open":
                server = open_server(directory)
                answer = server.socket_path
            elif verb == "release":
                server.release()
                answer = "released"
            elif verb == "fork":
                answer = fork(server, rest)
            elif verb == "fork-and-stay":
                # The child continues without using the server; its pid is the answer.
                pid = os.fork()
                if pid == 0:
                    os.close(1)
                    os.read(0, 1)
                    os._exit(0)
                answer = str(pid)
            elif verb == "ensure":
                server.ensure_running()
                answer = "running"
            else:
                answer = write(server, rest)
        except DulyError as error:
            answer = f"{type(error).__name__}: {error}".replace("\n", " | ")
        print(answer, flush=True)  # noqa: T201 - the answer to the test


if __name__ == "__main__":
    serve(sys.argv[1])
