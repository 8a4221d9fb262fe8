"""HTTP requests without redirects: a request, and its credentials, are for the configured address and no other."""

from __future__ import annotations

import urllib.request
from typing import Any


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler for urllib's `build_opener`: the answer with a redirect is an HTTPError then."""

    def redirect_request(self, *_: Any) -> None:
        return None
