"""A real MLflow server for tests, and a proxy before it that can be made to fail."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Literal

from sweeps.cluster.free_port import free_port


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Run an MLflow server below a folder; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    # It never ends a connection just when a client sends its next request over it.
    command += ["--uvicorn-opts", "--timeout-keep-alive 86400"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with (folder / "mlflow.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(url, server)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, 9)
        server.wait()


def _wait_until_up(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 400
    while time.monotonic() < end:
        assert server.poll() is None, "MLflow ended while it started"
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        time.sleep(0.2)
    raise AssertionError("MLflow did not start in 400 s")


class Proxy:
    """Passes requests on to an MLflow server, or does not."""

    def __init__(self, target: str) -> None:
        #: "hang" passes requests on once it is another.
        self.behaviour: Literal["pass", "refuse", "hang", "500"] = "pass"
        self.requests = 0
        #: Whether a request hangs.
        self.holds = False
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version: ClassVar[str] = "HTTP/1.0"

            def _answer(self) -> None:
                proxy.requests += 1
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                while proxy.behaviour == "hang":
                    proxy.holds = True
                    time.sleep(0.02)
                proxy.holds = False
                if proxy.behaviour == "refuse":
                    self.connection.close()
                elif proxy.behaviour == "500":
                    self.send_error(500)
                else:
                    self._pass_on(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

            def _pass_on(self, body: bytes) -> None:
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                request = urllib.request.Request(
                    target + self.path, body or None, headers, method=self.command
                )
                try:
                    with urllib.request.urlopen(request, timeout=300) as response:
                        status, answer = response.status, response.read()
                        kind = response.headers.get("Content-Type", "")
                except urllib.error.HTTPError as error:
                    status, answer = error.code, error.read()
                    kind = error.headers.get("Content-Type", "")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and let go of requests that hang."""
        self.behaviour = "refuse"
        self._server.shutdown()
        self._server.server_close()
