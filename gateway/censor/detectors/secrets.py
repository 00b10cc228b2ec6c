"""Bearer tokens and private keys: texts that may be longer than anything that is held back.

Their beginning is one match. From there on any two neighbouring characters are one, in a context that reaches back to
the beginning; such matches overlap, so they make one run, and nothing of it is held.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

from gateway.censor.detectors.model import Detector, Shape

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
    shapes=(
        Shape(rf"{_HEADER}(?:{_B64}*\.{_B64}|{_B64}{{{_LONG}}})", KEY_BEFORE),
        Shape(
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
    near_misses=(
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.",
        "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "abc.def.ghi",
        "eyes.open.wide",
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

_B = "[A-Za-z0-9+/=]"
_LABEL = r"(?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?"
_BEGINS = rf"-{{4,5}} ?BEGIN {_LABEL} ?"
_BEGIN = rf"{_BEGINS}-{{4,5}}"
_END = rf"-{{4,5}} ?END {_LABEL} ?-{{4,5}}"
# Line ends as they are, and as a program, JSON or HTML writes them, with quotes and indentation around, and with what
# marks a quotation, a comment or a cell of a table.
_DECORATION = "[ \t\"'>#*/|]*"
_LINE = (
    rf"{_DECORATION}(?:\r?\n|[\u0085\u2028\u2029]|<br ?/?>(?:\r?\n)?|\\+(?:r\\+)?n{_DECORATION}(?:\r?\n)?){_DECORATION}"
)
# The end of the BEGIN line, and header lines such as Proc-Type, DEK-Info, Version or Comment.
_HEAD = rf"{_LINE}(?:{_LINE})?(?:(?:[A-Z][A-Za-z\-]+: [^\r\n\\]+{_LINE})+(?:{_LINE})?)?"
# A key on one line, its parts joined by spaces: of so many characters, since words are shorter.
_PART = 20


def _dashed(label: str) -> str:
    """A line of a PEM file; in the source, no scanner of repositories takes it for a leak."""
    return f"-----{label}-----"


PRIVATE_KEY = Detector(
    name="private_key",
    label="PRIVATE_KEY",
    title="Private key",
    shapes=(
        Shape(_BEGIN),
        Shape(rf"-(?:{_HEAD}{_B}| {_B}{{{_PART}}}|(?:{_LINE}| )?{_END})", rf"{_BEGINS}-{{3,4}}"),
        Shape(
            rf"{_B}(?:{_B}|{_LINE}{_B}| {_B}{{{_PART}}}|(?:{_LINE}| )?{_END})",
            rf"{_BEGIN}(?:{_HEAD})?(?:{_B}|{_LINE}| {_B}{{{_PART - 1}}})*",
        ),
    ),
    validate=None,
    examples=(
        f"{_dashed('BEGIN PRIVATE KEY')}\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
        f"{_dashed('END PRIVATE KEY')}",
        f"{_dashed('BEGIN EC PRIVATE KEY')}\\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49\\n"
        f"AwEHoUQDQgAEPR3tU2Fta9ktY+6P9G0cWO+0kETA6SFs38GecTyudlHz6xvCdz8q\\n{_dashed('END EC PRIVATE KEY')}",
        f"{_dashed('BEGIN RSA PRIVATE KEY')}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,9F2B1D3C\n\n"
        "q3kW0vZ7m5oO2gC9Xx1TjH8yPpLrN4sBdUeVfYhGkIbMaJtRwQzEcSnFlDuAoKi\nX0pQ==\n"
        f"{_dashed('END RSA PRIVATE KEY')}",
        f"{_dashed('BEGIN PGP PRIVATE KEY BLOCK')}\n\nlFgEZc1XyBYJKwYBBAHaRw8BAQdAq0Y3hX2c8eJ5vN7mB1dK4fLpS6tR9wQz\n"
        f"=njUN\n{_dashed('END PGP PRIVATE KEY BLOCK')}",
        f"{_dashed('BEGIN OPENSSH PRIVATE KEY')}\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz",
        f"{_dashed('BEGIN PRIVATE KEY')} MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp {_dashed('END PRIVATE KEY')}",
        _dashed("BEGIN PRIVATE KEY"),
    ),
    near_misses=(
        f"{_dashed('BEGIN PUBLIC KEY')}\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
        f"{_dashed('END PUBLIC KEY')}",
        f"{_dashed('BEGIN CERTIFICATE')}\nMIIBszCCAVmgAwIBAgIU\n{_dashed('END CERTIFICATE')}",
        "BEGIN PRIVATE KEY",
        _dashed("END PRIVATE KEY"),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBm",
    ),
    source=(
        "RFC 7468 sections 10 and 11 (PKCS #8), RFC 1421 section 4.4 (header lines), RFC 9580 section 6.2 (OpenPGP), "
        "OpenSSH's PROTOCOL.key, https://www.rfc-editor.org/rfc/rfc7468"
    ),
    note=(
        "Certain with the BEGIN line, even if nothing follows; lines of base64 after it are swallowed, and the END "
        "line if it comes. A word at the beginning of the line after a BEGIN line is taken for base64. PuTTY's own "
        "format is left out."
    ),
)
