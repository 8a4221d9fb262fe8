"""A small HTTP server of customers, which is busy now and then: something to try the program with.

python examples/http_enrichment/customer_server.py 8080
"""

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CITIES = ["Athens", "Lima", "Oslo", "Pune"]


def customer(number: int) -> dict[str, str] | None:
    """Returns a customer; None for every tenth, who is unknown."""
    return None if number % 10 == 9 else {"name": f"Customer {number}", "city": CITIES[number % len(CITIES)]}


class Handler(BaseHTTPRequestHandler):
    """Answers GET /customers/c7. It refuses every third request."""

    requests = 0

    def do_GET(self) -> None:
        """Called for each request."""
        Handler.requests += 1
        found = customer(int(self.path.rpartition("/c")[2]))
        if Handler.requests % 3 == 0:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        elif found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            body = json.dumps(found).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
