"""An S3 for tests: moto's server on loopback, which counts what it is asked for and misbehaves as told."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_MAX_ATTEMPTS": "1",  # botocore's own retries take seconds each
}
FAIL, BREAK_OFF = "fail", "break off"  # answer 500; take the request and answer nothing that can be read


class Request(NamedTuple):
    method: str
    key: str  # with its bucket
    query: str
    sent: int  # bytes of the answer


class ObjectStorage:
    """One server. Each test has a bucket of its own."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        http: Any = self._server._server
        self._answer, http.app = http.app, self._watched
        self.asked: list[Request] = []
        self.trouble: Callable[[str, str], str] = lambda method, key: ""  # what to do with a request
        self.root = ""

    def new_bucket(self) -> None:
        bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        self.root = f"s3://{bucket}/results"
        self.trouble = lambda method, key: ""
        self.system.mkdir(bucket)
        self.asked.clear()

    @property
    def system(self) -> Any:
        import fsspec

        return fsspec.filesystem("s3", use_listings_cache=False)

    def objects(self, ending: str = "") -> list[str]:
        """Names of the objects below the root, without the mark."""
        named = [key.split("/", 2)[2] for key in self.system.find(self.root)]
        return sorted(name for name in named if name.endswith(ending) and name != ".testbed")

    def unfinished_uploads(self) -> int:
        return len(self.system.call_s3("list_multipart_uploads", Bucket=self.root.split("/")[2]).get("Uploads", ()))

    def _watched(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, key = environ["REQUEST_METHOD"], environ["PATH_INFO"].lstrip("/")
        what = self.trouble(method, key)
        if what == FAIL:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self.asked.append(Request(method, key, environ["QUERY_STRING"], 0))
            start_response("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"]
        answer = b"".join(self._answer(environ, start_response))
        self.asked.append(Request(method, key, environ["QUERY_STRING"], 0 if method == "HEAD" else len(answer)))
        if what == BREAK_OFF:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)  # or the client would wait for its time limit
            raise ConnectionAbortedError("as told")
        return [answer]

    def close(self) -> None:
        self._server.stop()


@contextmanager
def counted(storage: ObjectStorage) -> Iterator[list[Request]]:
    """The requests from now on."""
    storage.asked.clear()
    yield storage.asked


def slow(seconds: float) -> Callable[[str, str], str]:
    def wait(method: str, key: str) -> str:
        time.sleep(seconds)
        return ""

    return wait
