"""Takes secrets out of text before it may reach a log, a status or an event."""

from __future__ import annotations

import re
from typing import Any

REDACTED = "[redacted]"

# Names whose value is secret: as a flag, a Python or JSON key, an environment variable or a header.
# `token` only as a whole word or a suffix like hf_token: max_num_batched_tokens is no secret.
_SECRET_NAME = (
    r"(?:[\w-]*(?:api[-_]?keys?|secret(?:[-_]?(?:access[-_]?)?key)?|password|passwd|credentials?)"
    r"|(?:[\w-]*[-_])?token|authorization)"
)
_QUOTED = r"""'[^']*'|"[^"]*\""""
_BARE = r"""[^\s,;'"\[\](){}]+"""
_VALUE = rf"(?:{_QUOTED}|{_BARE})"
_LIST = r"[\[(][^\])]*[\])]"

_PATTERNS = (
    # Authorization: Bearer x, and a bare "Bearer x"
    re.compile(r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+"),
    # https://user:password@host
    re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@"),
    # A flag with its one or more values, also as neighbouring items of a printed list.
    re.compile(
        rf"(?i)(?P<keep>--{_SECRET_NAME}['\"]?(?:=|\s*,\s*|\s+))"
        rf"(?!-){_VALUE}(?:(?:\s+|\s*,\s*)(?![-'\"]){_BARE}|\s*,\s*(?!['\"]-)(?:{_QUOTED}))*"
    ),
    # key=value, 'key': 'value', KEY: value, key=['a', 'b']
    re.compile(rf"(?i)(?P<keep>(?<![\w-]){_SECRET_NAME}['\"]?\s*[=:]\s*)(?:{_LIST}|{_VALUE})"),
    # Tokens that are known by their shape wherever they stand.
    re.compile(r"(?P<keep>\b)(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,})"),
    re.compile(r"(?P<keep>\b)eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"),
)


def redact(text: str) -> str:
    """`text` with the values of keys, tokens and passwords replaced by "[redacted]".

    Knows flags (`--api-key X Y`), assignments and mappings (`api_key=['X']`, `"hf_token": "X"`), bearer
    headers, URLs with a password, and tokens with a well-known shape. It errs on the side of hiding.
    Redacting twice changes nothing more.
    """
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: found["keep"] + REDACTED, text)
    return text


def redact_value(value: Any) -> Any:
    """A value of a manifest: a text, a mapping of texts, or words, where a key may follow its flag as its own word."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        shown, hide = [], False
        for word in value:
            shown.append(REDACTED if hide and not word.startswith("-") else redact(word))
            hide = redact(f"{word} x") != f"{redact(word)} x"
        return shown
    if isinstance(value, dict):
        return {key: redact(text) if isinstance(text, str) else text for key, text in value.items()}
    return redact(value) if isinstance(value, str) else value
