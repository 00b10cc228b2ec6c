"""Passwords and other credentials that only the name before them distinguishes from other text.

The name is context: only the value is the match, so that what stays says what was there. A value counts if it looks
like one that somebody chose or a machine drew, and not like a placeholder, a word or the name of a variable.
"""

from __future__ import annotations

import re

from gateway.censor.detectors.issuers import is_random
from gateway.censor.detectors.model import Detector, Format

# Between a name and its value: a sign of assignment, with quotes, emphasis and brackets around the name.
_ASSIGNED = r"(?:\\*[\"'`]|[*_]{2})?\]?[ \t]{0,3}(?::=|=>|=|:)(?:[*_]{2})?[ \t]{0,3}"
# In a sentence or a table: quotes or emphasis, what it is for, and a verb or the edge of a cell.
_SAID = (
    r"(?:[\"'`]|[*_]{2})?(?:[ \t]\([^()\r\n]{1,24}\)|[ \t](?:for|of|to|on)(?:[ \t][A-Za-z0-9_.\-]{1,20}){1,3})?"
    r"(?:[ \t](?:is|was|to|ist|lautet|est|es|é)(?: now| set to)?:?[ \t]|[ \t]{0,20}\|[ \t]{0,20}"
    r"|:[ \t]{0,3}\r?\n[ \t]{0,8})"
    r"(?:[\"'`]|[*_]{2})?"
)
_QUOTE = r"\\*[\"'`]"
# Names of what somebody chose, and of what a machine drew.
_LOGIN = "(?i:passwor[dt]|passwd|passphrase|pwd|kennwort|mot de passe|contraseña|senha|пароль|密码|パスワード)[0-9]?"
_CHOSEN = rf"(?:{_LOGIN}|(?i:secret|credentials?)[0-9]?)"
_DRAWN = (
    r"(?:(?i:token|(?:api|access|account|auth|client|app(?:lication)?|consumer|deploy|encryption|license|master|sdk"
    r"|secret|service|session|signing|subscription)[_\- ]?(?:key|token|secret)|sig|signature|[_\- ]pat"
    r"|shared[_\-]?(?:access[_\-]?)?(?:key|secret|signature)|webhook[_\-]?secret)|[A-Z0-9]_KEY)"
)
_SHORTEST, _SHORTEST_DRAWN = 6, 16
# What values are made of in quotes, and without, where what ends a sentence is none of it.
_QUOTED = r"[^\s\"'`\\<>{}]"
_BARE_CHARS = r"A-Za-z0-9!#\x24%+\-./:=?@^_~"
_BARE, _BARE_LAST = f"[{_BARE_CHARS}]", r"[A-Za-z0-9#$%+\-/=@^_~]"
_BARE_AFTER = rf"$|[^{_BARE_CHARS}(\[{{]|[.!?:](?:$|[^{_BARE_CHARS}])"

_USER_INFO = r"[A-Za-z][A-Za-z0-9+.\-]{1,20}://[^\s/@:\"'`<>]{0,64}:"
_HEADER = rf"(?i:authorization|proxy-authorization){_ASSIGNED}(?:{_QUOTE})?"
_SCHEME = r"(?i:bearer|basic|token|apikey|ssws|bot)[ \t]{1,3}"
_OPAQUE = r"[A-Za-z0-9+/=_\-.~]"

# pass: VALUE, SMTP_PASS=VALUE; tests print "PASS: NAME".
_SHORT_NAME = r"(?:(?:^|[^A-Za-z])pass|[_\-.](?i:pass))"
# --password VALUE, mysql -pVALUE, and the line of a .netrc
_OPTION = (
    r"(?:(?:^|\s)-{1,2}(?:[a-z]{1,12}-){0,2}pass(?:word|wd)?[ \t]|login[ \t][^\s]{1,64}[ \t]password[ \t]"
    r"|(?:sshpass|docker login[^\r\n]{0,60})[ \t]-p[ \t]?|mysql[^\r\n]{0,60}[ \t]-p"
    r"|redis-cli[^\r\n]{0,60}[ \t]-a[ \t])"
)
# PASSWORD 'VALUE', ConvertTo-SecureString 'VALUE', auth=('user', 'VALUE')
_FIRST = rf"(?i:auth(?:enticate)?|login)[ \t]?=?[ \t]?\({_QUOTE}[^\"'\s]{{1,64}}{_QUOTE},"
_GIVEN = rf"(?:{_LOGIN}|(?i:identified by|convertto-securestring)|{_FIRST})[ \t]{{1,2}}{_QUOTE}"

# Words that stand where a value belongs.
_PLACEHOLDERS = frozenset(
    """
    a abc access an and api app auth bar change changeme client config db dummy env example fake false foo from get
    getenv hash here hidden host id input insert is key login me my name new none null of old os pass passphrase passwd
    password placeholder process pw pwd real redacted replace required salt sample secret set some strong super test the
    this to todo token true undefined use user username value with you your
    clave haslo heslo kennwort motdepasse parola passord passwort salasana senha wachtwoord
    """.split()  # noqa: SIM905
)
_WORDS = re.compile("[A-Z]?[a-z]+|[A-Z]+")
# Variables and their parts, the fields of a record, constants, what a shell or a template inserts, paths and addresses.
_NAME = re.compile(
    r"[A-Za-z_]+\d?(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)*|[A-Za-z_]+(?::[A-Za-z_]+){2,}|[A-Z][A-Z0-9_]*"
    r"|[%$@#:]\(?[A-Za-z_]\w*\)?[%sd]?|[/~.].*|\w+://.*"
)
# Terms such as SHA256, Base64-encoded and 8-16.
_TERM = re.compile(r"[A-Z]+[0-9]+|(?:[A-Za-z]+[0-9]*|[0-9]+)(?:-(?:[A-Za-z]+[0-9]*|[0-9]+))+")
_KINDS = (str.isdigit, str.islower, str.isupper)


def is_value(text: str) -> bool:
    """Is this no placeholder: are there letters or digits, of which not all are the same, and other words?"""
    words = [word.lower() for word in _WORDS.findall(text)]
    if words and all(word in _PLACEHOLDERS or len(word) > 2 > len(set(word)) for word in words):
        return False
    return len({char for char in text if char.isalnum()}) > 2


def is_password(text: str) -> bool:
    """Is this a value, and no name: are there digits, signs and letters of both cases, two kinds of them?"""
    return is_value(text) and _NAME.fullmatch(text) is None and _kinds(text) > 1


def is_token(text: str) -> bool:
    """Is this a value that a machine could have drawn?"""
    return is_value(text) and _NAME.fullmatch(text) is None and (is_random(text) or _kinds(text) > 2)


def is_unlabelled_password(text: str) -> bool:
    """Is this a password, where what stands there may be any word: are there letters, digits and signs, or random?"""
    return is_password(text) and _TERM.fullmatch(text) is None and (is_random(text) or _kinds(text) > 2)


def _kinds(text: str) -> int:
    signs = any(not char.isalnum() and char not in "_-." for char in text)
    return sum(any(map(kind, text)) for kind in _KINDS) + signs


_INTO_QUOTES, _INTO_BARE = rf"{_ASSIGNED}{_QUOTE}", _ASSIGNED
_OUT_OF_QUOTES = r"\\|[\"'`]"

CREDENTIAL = Detector(
    name="credential",
    label="CREDENTIAL",
    title="Password or token named as such",
    formats=(
        # postgres://user:password@host, of which the password goes.
        Format(r"[^\s/@\"'`<>]{3,128}", _USER_INFO, r"@[A-Za-z0-9\[]", is_value),
        Format(f"{_QUOTED}{{{_SHORTEST},}}", _CHOSEN + _INTO_QUOTES, _OUT_OF_QUOTES, is_password),
        Format(f"{_BARE}{{{_SHORTEST - 1},}}{_BARE_LAST}", _CHOSEN + _INTO_BARE, _BARE_AFTER, is_password),
        Format(f"{_QUOTED}{{{_SHORTEST_DRAWN},}}", _DRAWN + _INTO_QUOTES, _OUT_OF_QUOTES, is_token),
        Format(f"{_BARE}{{{_SHORTEST_DRAWN - 1},}}{_BARE_LAST}", _DRAWN + _INTO_BARE, _BARE_AFTER, is_token),
        # The password is VALUE. | API key | VALUE |
        Format(
            f"[{_BARE_CHARS}&*]{{{_SHORTEST + 1},}}{_BARE_LAST}", _LOGIN + _SAID, _BARE_AFTER, is_unlabelled_password
        ),
        Format(
            f"{_BARE}{{{_SHORTEST_DRAWN - 1},}}{_BARE_LAST}",
            f"(?:{_DRAWN}|secret)" + _SAID,
            _BARE_AFTER,
            is_token,
        ),
        # Authorization: Bearer TOKEN
        Format(f"{_OPAQUE}{{{_SHORTEST_DRAWN},}}", _HEADER + _SCHEME, rf"$|[^{_OPAQUE[1:]}", is_token),
        Format(f"{_QUOTED}{{{_SHORTEST},}}", _SHORT_NAME + _INTO_QUOTES, _OUT_OF_QUOTES, is_password),
        Format(
            f"{_BARE}{{{_SHORTEST - 1},}}{_BARE_LAST}",
            rf"(?:{_SHORT_NAME}{_INTO_BARE}|(?:^|[^A-Za-z])PASS=)",
            _BARE_AFTER,
            is_password,
        ),
        Format(f"{_BARE}{{{_SHORTEST - 1},}}{_BARE_LAST}", rf"{_OPTION}(?:{_QUOTE})?", _BARE_AFTER, is_password),
        # <password>VALUE</password>, name="password" value="VALUE"
        Format(rf"[^\s<>]{{{_SHORTEST},}}", f"{_CHOSEN}>", "</", is_password),
        Format(rf"[^\s\"'<>]{{{_SHORTEST},}}", rf"{_CHOSEN}[\"'][ \t]value=[\"']", "[\"']", is_password),
        Format(f"{_QUOTED}{{{_SHORTEST},}}", _GIVEN, _OUT_OF_QUOTES, is_password),
        # curl -u user:password
        Format(
            f"{_BARE}{{{_SHORTEST - 1},}}{_BARE_LAST}",
            rf"[ \t](?:-u|--user)[ =](?:{_QUOTE})?[^\s:\"'`]{{1,64}}:",
            _BARE_AFTER,
            is_value,
        ),
    ),
    validate=None,
    introduction="password=",
    # In two halves, so that scanners of repositories do not take them for leaks.
    examples=("s3cr3t" + "-Pa55", "Tr0ub4dor" + "#3x!9", "kX9" + "#mP2$vL5"),
    source=(
        "RFC 3986 section 3.2.1 (user information), RFC 9110 section 11 (authorization), connection strings of "
        "databases and of Azure, https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1"
    ),
    note=(
        "The password of a web address or a connection string (postgres://user:PASSWORD@host), values of names such as "
        "password, token, api_key and AccountKey in code, JSON, YAML, XML, SQL and environments, headers of "
        f"authorization, and options such as curl's -u. A password needs {_SHORTEST} characters of two kinds (digits, "
        f"signs, letters of both cases), a token {_SHORTEST_DRAWN} that are random or of three kinds. Placeholders, "
        "words, names of variables and paths are left out, and so are passwords made of letters of one case, but in "
        "addresses. In sentences and tables, as in The password is VALUE, a password needs eight characters, of three "
        "kinds or random. The name stays."
    ),
)
