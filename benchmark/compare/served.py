"""Shared by the served_*.py: a server as a process, and the load of served_table.cc on it."""
import json
import subprocess
import sys
import time


class Server:
    """A process that answers PING on a port, which is in its command."""

    def __init__(self, command, port, enter=None):
        self.port = str(port)
        self.process = subprocess.Popen(command, preexec_fn=enter, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            time.sleep(0.05)
            if self.process.poll() is not None:
                break
            if self.cli("ping") == "PONG":
                return
        sys.exit("the server did not start")

    def cli(self, *words):
        return subprocess.run(["redis-cli", "-p", self.port, *words], capture_output=True, text=True).stdout.strip()

    def load(self, program, phase, pin=(), **options):
        """The report of served_table on a phase, None if it reports nothing; `program` is its path."""
        command = [*pin, program, f"--port={self.port}", f"--phase={phase}"] + [f"--{name}={int(value)}" for name, value in options.items()]
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        return json.loads(output) if output else None

    def stop(self):
        self.process.terminate()
        self.process.wait()


def remove_files(directory, *patterns):
    for pattern in patterns:
        for file in directory.glob(pattern):
            file.unlink()
