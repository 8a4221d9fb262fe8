"""The single rule for secrets in texts for people or storage: `redacted` replaces each by `***`.

A secret is the user information of a URL, the value of a key whose name marks it as secret, and the credentials of an
HTTP Authorization header. The names are those of Flink's GlobalConfiguration, and a few more. A key that ends with
`file` or `url` names a place, not a secret.

This module is below the services, because pipelines create the texts of task failures and program errors.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
_USER_INFORMATION = re.compile(r"(?<=://)[^\s/?#'\"\\<>]+@")
_NAMES = (
    r"passw(?:or)?d|passphrase|secret|token|api[-_.]?key|access[-_.]?key|account[-_.]?key|service[-_.]?key|"
    r"private[-_.]?key|credentials?|basic[-_.]auth|auth[-_.]params|user[-_.]info|jaas[-_.]config"
)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_LONGEST_KEY = 100
# The lookbehind and the bound keep the search linear in the length of the text.
_KEY = re.compile(
    rf"(?P<key>(?<![\w.-])[\w.-]{{1,{_LONGEST_KEY}}})"
    r"(?:(?P<equals>\s{0,9}=(?!=)\s{0,9})|\\*[\"']\s{0,9}:\s{0,9})"
)
"""A key before a value. Values are matched for secret keys only: that of another key may contain an assignment."""
_QUOTED = r"(?P<quote>\\*[\"'])[^\"'\\\n]+"
_VALUE = re.compile(rf"{_QUOTED}|[^\s\"'\\,;&(){{}}\[\]]+")
_JSON_VALUE = re.compile(rf"{_QUOTED}|[0-9][\w.-]*")
_AUTHORIZATION = re.compile(
    r"(?P<head>authorization\\*[\"']?\s*[:=]\s*\\*[\"']?(?:Basic|Bearer)\s+)[^\s\"'\\,;]+", re.IGNORECASE
)


def is_secret(key: str) -> bool:
    """Returns whether a key names a secret. The key of a file with a secret does not."""
    return _SECRET_NAME.search(key) is not None and not key.lower().endswith(("file", ".url"))


def has_user_information(url: str) -> bool:
    """Returns whether a text contains a URL with a user, a password or a token before its host."""
    return _USER_INFORMATION.search(url) is not None


def has_password(url: str) -> bool:
    """Returns whether a text contains a URL with a user and a password."""
    found = _USER_INFORMATION.search(url)
    return found is not None and ":" in found[0]


def redacted(text: str) -> str:
    """Returns the text without its secrets. JSON stays valid JSON."""
    if "://" in text:
        text = _USER_INFORMATION.sub(f"{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\g<head>{HIDDEN}", text)
    parts = []
    done = 0
    found = _KEY.search(text)
    while found is not None:
        end = found.end()
        if is_secret(found["key"]):
            value = (_JSON_VALUE if found["equals"] is None else _VALUE).match(text, end)
            if value is not None:
                parts += [text[done:end], value["quote"] or "", HIDDEN]
                done = end = value.end()
        found = _KEY.search(text, end)
    return "".join([*parts, text[done:]])
