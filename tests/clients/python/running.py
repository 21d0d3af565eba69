"""A tenure that runs as real processes, and the official client that talks to it."""

import atexit
import functools
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from anthropic import Anthropic

HERE = Path(__file__).resolve().parent

# A dead worker is noticed after three seconds, not after fifteen, so that the tests are short.
CONFIG = f"""
[node]
heartbeat_seconds = 1
dead_after_seconds = 3

[providers.script]
dialect = "script"
scenarios = {json.dumps(str(HERE / "scenarios"))}
"""

# Seconds after which the client gives up on a request that gets no answer.
CLIENT_TIMEOUT = 30.0


class Tenure:
    """A data folder with a server and, inside of it or beside it, a worker."""

    def __init__(self, *, worker_apart: bool = False, keys: list[str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-clients-"))
        self.data = self.folder / "data"
        self.worker_apart = worker_apart
        self.address = "127.0.0.1:0"
        self.server: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None
        self.keys_file = self.folder / "keys"
        auth = ""
        if keys is not None:
            self.keys_file.write_text("\n".join(keys))
            auth = f"\n[auth]\nkeys_file = {json.dumps(str(self.keys_file))}\n"
        (self.folder / "tenure.toml").write_text(CONFIG + auth)
        self.start()

    def start(self) -> None:
        """Starts what is not running; a server that was there before comes back at its old address."""
        if self.server is None:
            without = ["--no-worker"] if self.worker_apart else []
            self.server, said = self._spawn("dev", *without, "--listen", self.address)
            self.address = address_of(said)
            self._wait_until_served()
        if self.worker is None and self.worker_apart:
            self.worker, _ = self._spawn("worker")

    def kill_server(self) -> None:
        """Ends the server as a power cut would."""
        kill(self.server)
        self.server = None

    def kill_worker(self) -> None:
        """Ends the worker as a power cut would."""
        kill(self.worker)
        self.worker = None

    def stop(self) -> None:
        """Ends everything and removes the data folder."""
        for process in (self.worker, self.server):
            if process is not None:
                process.terminate()
        for process in (self.worker, self.server):
            if process is not None:
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    kill(process)
        self.worker = self.server = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_until_served(self) -> None:
        """Returns with the first answered request: the port is open a little before that."""
        connection = http.client.HTTPConnection(self.address, timeout=CLIENT_TIMEOUT)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        connection.close()

    @property
    def base_url(self) -> str:
        return f"http://{self.address}"

    @property
    def key(self) -> str:
        return (self.data / "api.key").read_text().strip()

    def client(self, **options) -> Anthropic:
        """The official client; nothing about it is changed but the address and the key."""
        return Anthropic(**{"base_url": self.base_url, "api_key": self.key, "timeout": CLIENT_TIMEOUT, **options})

    def log(self) -> str:
        """What the processes wrote to stderr."""
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(self.folder.glob("*.log")))

    def _spawn(self, command: str, *arguments: str) -> tuple["subprocess.Popen[bytes]", dict]:
        settings = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "ANTHROPIC_"))}
        words = [os.environ["TENURE_BINARY"], command, "--json", "--data", self.data, "--config", self.folder / "tenure.toml", *arguments]
        with (self.folder / f"{command}.log").open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=self.folder, env=settings)
        for line in process.stdout:
            try:
                return process, json.loads(line)
            except ValueError:
                continue
        raise AssertionError(f"tenure {command} ended with {process.wait()} before it said that it runs\n{self.log()}")


def address_of(said: dict) -> str:
    """HOST:PORT in the line that a server prints when it listens."""
    text = said.get("address") or said.get("listen") or said["url"]
    return text.removeprefix("http://").rstrip("/")


def kill(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None:
        process.send_signal(signal.SIGKILL)
        process.wait()


@functools.cache
def shared() -> Tenure:
    """One tenure for all tests that do not kill it."""
    tenure = Tenure()
    atexit.register(tenure.stop)
    return tenure
