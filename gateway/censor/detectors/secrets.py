"""Bearer tokens and private keys: texts that may be longer than anything that is held back.

Their beginning is one match. From there on any two neighbouring characters are one, in a context that reaches back to
the beginning; such matches overlap, so they make one run, and nothing of it is held.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

from gateway.censor.detectors.model import Detector, Format

# A token also begins behind a line feed that a program or JSON has escaped.
KEY_BEFORE = r"(?:^|[^A-Za-z0-9]|\\[nrt])"

_B64 = r"[A-Za-z0-9_\-]"
# The first part of a token is a JSON object, {" or { ", and names an algorithm: the three ways in which base64 writes
# the member "alg", depending on where it stands.
_HEADER = rf"ey(?:JhbGci|[JA]{_B64}*(?:ImFsZyI|JhbGci|iYWxnI)){_B64}*\."
# A token without its third part is no token; but from here on it is too long to wait for that.
_LONG = 128
_PIECE = 4


def has_token_header(text: str) -> bool:
    """Does the text begin with a JOSE header? Pieces from inside a token are accepted: their context has one."""
    if len(text) <= _PIECE:
        return True
    header = text.partition(".")[0]
    try:
        members = json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (ValueError, RecursionError):  # the latter from a header made of opening brackets
        return False
    return isinstance(members, dict) and isinstance(members.get("alg"), str)


JWT = Detector(
    name="jwt",
    label="JWT",
    title="JSON web token",
    formats=(
        Format(rf"{_HEADER}(?:{_B64}*\.{_B64}|{_B64}{{{_LONG}}})", KEY_BEFORE),
        Format(
            rf"{_B64}\.{{0,2}}{_B64}",
            rf"{KEY_BEFORE}{_HEADER}(?:{_B64}*\.[A-Za-z0-9_\-.]*|{_B64}{{{_LONG - 1}}}{_B64}*)",
        ),
    ),
    validate=has_token_header,
    examples=(
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
        ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmN"
        "vbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..yVi-LdQQngN0C5WS.1McwSmhZzAtmmLp9y-OdnJwaJFo1nj_4ashmzl2LhubGf0Jl1OTEVJzsHZ"
        "b7bkup7cGTkuxh6Vfv10ljHsjWf_URXoxP3stQqQeViVcuPV0y2Q_WHYzTNGZpmHe-hM6gjDhyZyvu3yeXGFSvfPQmp9pWVOgDjI4RC0MQ83rzzn"
        "-8XZTnNGtS8fPLcNR-3qLB5mIQtbOB9uOtB-o_NMAf_-EQnPm0BSeVP2WKxzGB5Tz9vEbT5ZXA.b2RbHMYWGQ2wNJuDNgYORw",
    ),
    source=(
        "RFC 7519 (JWT), RFC 7515 section 7.1 and RFC 7516 section 7.1 (compact form), "
        "https://www.rfc-editor.org/rfc/rfc7519"
    ),
    note=(
        "The first part must be a JSON object that names an algorithm. Unsecured tokens, whose third part is empty, "
        f"are left out. A second part of {_LONG} characters or more is not waited for."
    ),
)
