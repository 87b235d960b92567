"""A web server for tests that misbehaves as told: breaks off, ignores ranges, changes files, answers errors."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves `files` (name -> bytes). Requests are kept in `asked` as (name, Range header)."""

    def __init__(self):
        self.files = {}
        self.asked = []
        self.break_after = []  # bytes after which each of the next answers breaks off; None for a whole one
        self.errors = []  # status codes of the next answers, before any other
        self.ranges = True  # whether Range is honoured
        self.etag = True  # whether an ETag is sent, and If-Range honoured
        self.before_answer = None  # called with the number of the request
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def url(self, name):
        return f"http://127.0.0.1:{self._http.server_address[1]}/{name}"

    def close(self):
        self._http.shutdown()
        self._http.server_close()


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name, span = self.path.partition("?")[0].lstrip("/"), self.headers.get("Range")
            server.asked.append((name, span))
            if server.before_answer:
                server.before_answer(len(server.asked))
            if server.errors:
                self.send_error(server.errors.pop(0))
                return
            if name not in server.files:
                self.send_error(404)
                return
            content = server.files[name]
            tag = f'"{hash(content)}"'
            start = int(span.removeprefix("bytes=").rstrip("-")) if span and server.ranges else 0
            if server.etag and self.headers.get("If-Range") not in (None, tag):
                start = 0
            if start >= len(content) > 0:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if server.etag:
                self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            most = server.break_after.pop(0) if server.break_after else None
            self.wfile.write(content[start:] if most is None else content[start : start + most])
            if most is not None:
                self.close_connection = True

        def log_message(self, *_):
            pass

    return Handler
