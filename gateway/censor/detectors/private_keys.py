"""Private keys: PEM however its lines are joined, and the encodings and formats beside it.

The BEGIN line is a match by itself. From there on each match reaches from one character of the key to the next one,
over what stands between them, in a context that reaches back to the BEGIN line. Such matches overlap, so they make one
run, and of a key of any length nothing is held but what joins two of its lines.

What joins two lines is one of three, the more of it the more characters of base64 must stand behind it:

* a line break, however it is written, with indentation and the marks of quotations and comments: one character;
* up to six short words between signs, as `" +` or a line number are: `_PART` characters;
* up to twenty words: a whole line of `_LONG_PART` characters, or fewer that digits are scattered in, as in base64 and
  hardly ever in names.

Behind some of the key also the END line. Four hyphens in a row end all this, so that what follows the key is no part
of it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from itertools import chain, starmap

from gateway.censor.detectors.model import Detector, Format

_PART = 20
_LONG_PART = 40

_B = "[A-Za-z0-9+/=]"
# Inside a class: what typography makes of hyphens, box drawing included.
_TYPOGRAPHIC = r"\u2010-\u2015\u2212\u2500\u2501"
_ESCAPED_DASHES = r"(?:%2[Dd]|\\+(?:x|u00)2[Dd]|&#(?:45|x2[Dd]);){2,}"
_DASHES = rf"(?:-{{4,5}}|={{4,5}}|-?[{_TYPOGRAPHIC}][\-{_TYPOGRAPHIC}]{{1,4}}|{_ESCAPED_DASHES})"
_SPACE = r"(?:[ \t_+]{1,4}|%20)"
# A program may also join the words, from two strings.
_FIRST_SPACE = r"(?:[ \t\r\n_+]{1,4}|%20|&nbsp;|\\+u00[2a]0| ?[\"'] ?[+.]? ?[\"'])"
_WORDS = rf"(?:[A-Za-z0-9]+{_SPACE}){{0,3}}(?i:PRIVATE){_SPACE}"
_KEY = rf"(?i:KEY)(?:{_SPACE}(?i:BLOCK))?"
_FIRST_WORDS = rf"(?:[A-Za-z0-9]+{_FIRST_SPACE}){{0,3}}(?i:PRIVATE){_FIRST_SPACE}"
_BEGINS = rf"{_DASHES}{_SPACE}?(?i:BEGIN){_FIRST_SPACE}{_FIRST_WORDS}"
_BEGIN_END = rf"{_KEY}{_SPACE}?{_DASHES}"
_BEGIN = rf"{_BEGINS}{_BEGIN_END}"
# One more hyphen is the mark of a line that a diff takes out.
_END = rf"-?{_DASHES}{_SPACE}?(?i:END){_SPACE}{_WORDS}{_BEGIN_END}"

# Line breaks as they are, and as a program, JSON or HTML writes them, with quotes and indentation around, and with what
# marks a quotation, a comment or a cell of a table.
_DECORATION = "[ \t\"'>#*/|]*"
_LINE = (
    rf"{_DECORATION}(?:\r?\n|[\u0085\u2028\u2029]|<br ?/?>(?:\r?\n)?|\\+(?:r\\+)?n{_DECORATION}(?:\r?\n)?"
    rf"|\\+u000[aAdD]|%0[AaDd]|&#(?:10|13|x0?[AaDd]);){_DECORATION}"
)
# The end of the BEGIN line, and header lines such as Proc-Type, DEK-Info, Version or Comment.
_HEAD = rf"{_LINE}(?:{_LINE})?(?:(?:[A-Z][A-Za-z\-]+: [^\r\n\\<&]+{_LINE})+(?:{_LINE})?)?"
# Of a character that is escaped, with a backslash, as %2B or in HTML, what follows is base64 again.
_ESCAPE = r"(?:[\\%]|&#(?:43|47|61|x2[BbFf]|x3[Dd]);)"

_SIGN = r"(?:[^A-Za-z0-9\-]|-{1,3}[^\-])+"


def _apart(words: int, less: int = 0, or_end: str = "") -> str:
    """Signs and words, and behind them base64 of a length that tells it from words, less some characters; or the END
    line."""
    near = rf"(?:{_SIGN}[A-Za-z0-9]{{1,6}}){{0,6}}{_SIGN}{_B}{{{_PART - less}}}"
    scattered = rf"[A-Za-z0-9]*[0-9][A-Za-z]{_B}{{1,14}}[0-9]{_B}{{{8 - less}}}"
    far = rf"(?:{_SIGN}[A-Za-z0-9]+){{0,{words}}}{_SIGN}(?:{_B}{{{_LONG_PART - less}}}|{scattered}{or_end})"
    return f"{near}|{far}"


# Header lines that a program joins stand between the BEGIN line and the key.
_WORDS_BEFORE, _WORDS_BETWEEN = 48, 16

# Each match but the first begins with the last character of one before it, so a context ends before that.
_PEM = (
    Format(_BEGIN),
    Format(rf"{_BEGIN_END}(?:{_HEAD}{_B}|{_B}{{{_PART}}}|{_apart(_WORDS_BEFORE)}|(?:{_LINE}| )?{_END})", _BEGINS),
    Format(
        rf"{_B}(?:(?:{_LINE}|{_ESCAPE})?{_B}|{_apart(_WORDS_BETWEEN, or_end='|' + _END)}|(?:{_LINE})?{_END})",
        rf"{_BEGIN}(?:{_HEAD}|{_B}{{{_PART - 1}}}|{_apart(_WORDS_BEFORE, less=1)})"
        rf"(?:{_B}|(?:{_LINE}|{_ESCAPE}){_B}|{_apart(_WORDS_BETWEEN, less=1)})*(?:{_LINE}|{_ESCAPE})?",
    ),
)

# A key in pieces. What divides them: signs, what two quotes enclose, code included, the number of a list's item, a tag.
_ENCLOSED = r"\\*[\"'`][^\"'`]{0,24}[\"'`]"
_NUMBERED = r"\n[^A-Za-z0-9+/=]{0,4}[0-9]{1,3}[.:)]\s?"
_TAG = "<[a-z]{1,5} ?/?>"
_GAP = rf"(?:(?:-{{0,3}}[^A-Za-z0-9+/=\-])+-{{0,3}}|-{{1,3}}|\\+[nr]|{_ENCLOSED}|{_NUMBERED}|{_TAG})"
_FIRST = (
    rf"(?:{_LINE})?[^A-Za-z0-9\-]{{0,8}}(?:-{{1,2}}[^A-Za-z0-9\-]{{1,3}})?"
    r"(?:[A-Za-z0-9_.]{1,16}[^A-Za-z0-9\-]{1,4}){0,2}"
)
# Pieces of one size: so many behind the first tell them from words.
_EQUAL = {1: 7, 2: 6, 3: 5, 4: 4, 5: 4}


def _equal(size: int, more: int) -> tuple[Format, ...]:
    piece = rf"{_B}{{{size}}}"
    begun = rf"{_BEGIN}{_FIRST}(?:{piece}{_GAP}){{{more},}}"
    return (
        Format(rf"{_BEGIN_END}{_FIRST}{piece}(?:{_GAP}{piece}){{{more}}}", _BEGINS),
        Format(rf"{_B}{_GAP}{_B}{{1,{size}}}", rf"{begun}{_B}{{{size - 1}}}", r"[^A-Za-z0-9+/=]|$"),
        Format(rf"{_B}(?:{_GAP})?{_END}", rf"{begun}{_B}{{0,{size - 1}}}"),
    )


# Pieces of any sizes that the same divides: digits beside letters in two of them, and those or a capital behind a small
# letter in each few others, tell them from words.
_GAPS = (
    r"(?:[\s>#*|]{1,8}|\\+[nr](?:\\+n)?)",
    _ENCLOSED,
    r"(?:\s{0,8}(?:(?:[,.:;|_&*<>~!#%@]{1,3}\s{0,8}){1,2}|-{1,3}>?\s{0,8})|\n\s{0,8})",
    _NUMBERED,
    rf"(?:[)\]}}]\s{{0,2}}[(\[{{]|{_TAG})",
)
_TELLING = "(?:[0-9][A-Za-z]|[A-Za-z][0-9])"
_LIKELY = "(?:[0-9][A-Za-z]|[A-Za-z][0-9]|[a-z][A-Z])"
_MOST_BEFORE, _MOST_BETWEEN, _MOST_BEHIND = 16, 6, 3


def _unequal(gap: str) -> tuple[Format, ...]:
    pieces = rf"(?:{_B}+{gap})"
    between = rf"{_TELLING}{_B}*{gap}{pieces}{{0,{_MOST_BETWEEN}}}{_B}*"
    row = rf"{_FIRST}{pieces}{{0,{_MOST_BEFORE}}}{_B}*{between}{between}"
    behind = rf"{_B}*{gap}{pieces}{{0,{_MOST_BEHIND}}}{_B}*"
    told = rf"{_BEGIN}{row}(?:{_LIKELY}{behind})*"
    return (
        Format(rf"{_BEGIN_END}{row}{_LIKELY}", _BEGINS),
        Format(rf"{_LIKELY}(?:{_B}+|{behind}{_LIKELY})", told),
        Format(rf"{_LIKELY}{_B}*(?:{gap}{_B}+){{0,{_MOST_BEHIND}}}(?:{gap})?{_END}", told),
    )


_DIVIDED_PEM = (
    *chain.from_iterable(starmap(_equal, _EQUAL.items())),
    *chain.from_iterable(map(_unequal, _GAPS)),
)


def _aligned(text: str) -> list[str]:
    """What base64 makes of `text`, wherever in the encoded bytes it stands."""
    forms = []
    for before in range(3):
        encoded = b64encode(bytes(before) + text.encode()).decode().rstrip("=")
        # The first and the last character may also depend on what stands beside the text.
        known = (before + len(text)) * 8 // 6
        forms.append(encoded[-(-before * 8 // 6) : known])
    return forms


# Base64 of a PEM, as in the secrets of Kubernetes: the label may have 24 characters of it before PRIVATE. It may be in
# pieces, too. Or Base64 of that.
_BREAK = r"(?:[^A-Za-z0-9/=]{0,8}|\\+[nr])"
_BEGINNINGS = ("-----BEGIN ", "---- BEGIN ")
_SOME_SIGNS = "[^A-Za-z0-9/=.:]{1,8}"
_NEXT = rf"{_SOME_SIGNS}(?:{_B}+{_SOME_SIGNS}){{0,{_MOST_BETWEEN}}}{_B}*{_LIKELY}"


def _in_base64(begins: Iterable[str], keys: Iterable[str], between: int, gap: str = "") -> tuple[Format, ...]:
    """How a PEM's label begins and ends in a code made of base64's characters, and how many may stand between."""
    begin, key = (f"(?:{'|'.join(gap.join(form) for form in forms)})" for forms in (begins, keys))
    begin = rf"{begin}(?:{gap}{_B}){{0,{between}}}{gap}"
    return (
        Format(begin + key),
        Format(rf"{key}{gap}{_B}", begin),
        Format(
            rf"{_B}(?:{_B}|{_NEXT}|{_SIGN}{_B}{{{_PART}}})",
            rf"{begin}{key}{gap}(?:{_B}|{_NEXT}|{_SIGN}{_B}{{{_PART - 1}}})*",
        ),
    )


_CODED_BEGINS = [form for text in _BEGINNINGS for form in _aligned(text)]
_CODED_KEYS = _aligned("PRIVATE KEY")
_BASE64 = (
    *_in_base64(_CODED_BEGINS, _CODED_KEYS, 24, _BREAK),
    *_in_base64(
        (twice for form in _aligned(_BEGINNINGS[0]) for twice in _aligned(form)),
        (twice for form in _CODED_KEYS for twice in _aligned(form)),
        40,
    ),
)


# Of a line that is a string of bytes, the item of a list or numbered.
_MARKED_LINE = rf"{_LINE}(?:[^A-Za-z0-9\r\n]{{0,4}}(?:b|[0-9]{{1,4}})?[^A-Za-z0-9+/\r\n]{{1,4}})?"


def _lines_behind(heading: str) -> tuple[Format, Format]:
    """Lines of base64 or hexadecimal behind a heading; the last one may be short, and what is shorter still stays."""
    last = 8
    return (
        Format(rf"{_B}{{{_PART}}}", heading + _MARKED_LINE),
        Format(
            rf"{_B}(?:{_B}|{_MARKED_LINE}{_B}{{{last}}})",
            rf"{heading}{_MARKED_LINE}{_B}{{{_PART - 1}}}(?:{_B}|{_MARKED_LINE}{_B}{{{last - 1}}})*",
        ),
    )


_OTHER_FILES = (
    *_lines_behind("Private-Lines: [0-9]{1,3}"),  # PuTTY
    *_lines_behind(r"untrusted comment: [^\r\n]{0,60}secret key"),  # signify and minisign
    *_lines_behind(rf"BEGIN OpenVPN Static key V1{_DASHES}"),
    Format("AGE-SECRET-KEY-1[AC-HJ-NP-Z02-9]{58}"),
)

# Its bytes as numbers, hexadecimal and decimal ones, and what may stand between two: separators, 0x and \\x.
_DIGIT = "[0-9A-Fa-f]"
# In a dump the bytes of a line as text, too, and the number at the next one's beginning.
_BETWEEN = r"[\s,:;\"'+\\%]*(?:(?:0?x)|(?: [^\r\n]{0,20})?\r?\n[0-9A-Fa-f]{4,8}:? {1,2})?"
_BETWEEN_DECIMAL = r"[\s,]*"


def _hex(text: str) -> str:
    """The bytes of `text`, and what may stand behind each."""
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in text.encode().hex("/"))
    return digits.replace("/", _BETWEEN) + _BETWEEN


def _decimal(text: str) -> str:
    return "".join(f"{code}{_BETWEEN_DECIMAL}" for code in text.encode())


def _numbers(spelled: Callable[[str], str], between: str, one: str, digit: str) -> tuple[Format, ...]:
    dashes = rf"(?:{spelled('-')})?{spelled('----')}(?:{spelled(' ')})?"
    begins = rf"{dashes}{spelled('BEGIN ')}(?:{one}{between}){{0,15}}{spelled('PRIVATE ')}"
    key = spelled("KEY").removesuffix(between)
    return (
        Format(begins + key),
        Format(rf"{key}{between}{one}", begins),
        Format(rf"{digit}(?:{digit}|{between}{one})", rf"{begins}{key}(?:{between}{digit})*{between}"),
    )


_CODED = (
    *_numbers(_hex, _BETWEEN, rf"{_DIGIT}{{2}}", _DIGIT),
    *_numbers(_decimal, _BETWEEN_DECIMAL, "[0-9]{2,3}", "[0-9]"),
)

# Members of a JSON Web Key that only a private one has: of curves with 32 bytes one of 43 characters, longer ones, and
# the primes of RSA.
_URL_SAFE = r"[A-Za-z0-9_\-]"
_QUOTE = r"\\*[\"']"
_IS = rf"(?:{_QUOTE})?\s{{0,8}}(?::|=>?)\s{{0,8}}{_QUOTE}"
# In YAML without quotes.
_MEMBER = rf"(?:[\s{{,.\"'][dDkK]{_IS}|\sd: )"
_PRIME = rf"[\s{{,.\"'](?i:p|q|dp|dq|qi){_IS}"
_LONG_MEMBER = rf"(?:{_MEMBER}{_URL_SAFE}{{59}}|{_PRIME}{_URL_SAFE}{{79}})"
_JWK_SHORT = 43
_JWK = (
    Format(rf"{_URL_SAFE}{{{_JWK_SHORT}}}", _MEMBER, r"\\|[\"'\s]|$"),
    Format(rf"{_URL_SAFE}{{60}}", _MEMBER),
    Format(rf"{_URL_SAFE}{{80}}", _PRIME),
    Format(rf"{_URL_SAFE}{{2}}", rf"{_LONG_MEMBER}{_URL_SAFE}*"),
)

# XML Signature's RSAKeyValue, as .NET writes a private one.
_ELEMENT = r"(?:<|&lt;)(?:D|P|Q|DP|DQ|InverseQ)(?:>|&gt;)\s{0,80}"
_XML = (
    Format(rf"{_B}{{{_LONG_PART}}}", _ELEMENT),
    Format(rf"{_B}\s{{0,80}}{_B}", rf"{_ELEMENT}{_B}{{{_LONG_PART - 1}}}(?:{_B}|\s)*"),
)

# WireGuard: 32 bytes in base64 under that name.
_NAME = (
    r"(?i:(?:private|pre-?shared)[_\- ]?key|wg gen(?:key|psk))[^A-Za-z0-9+/\-]{0,8}"
    r"(?:(?:is|echo)[^A-Za-z0-9+/]{1,4})?"
)
_WIREGUARD = (Format("[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=", _NAME),)


def is_private_key(text: str) -> bool:
    """Is it no name, where only its length tells? Random text of that length has letters of both cases and digits."""
    if len(text) != _JWK_SHORT:
        return True
    return all(any(test(char) for char in text) for test in (str.isupper, str.islower, str.isdigit))


def _dashed(label: str) -> str:
    """A line of a PEM file; in the source, no scanner of repositories takes it for a leak."""
    return f"-----{label}-----"


PRIVATE_KEY = Detector(
    name="private_key",
    label="PRIVATE_KEY",
    title="Private key",
    formats=(
        *_PEM,
        *_DIVIDED_PEM,
        *_BASE64,
        *_CODED,
        *_JWK,
        *_XML,
        *_WIREGUARD,
        *_OTHER_FILES,
    ),
    validate=is_private_key,
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
        _dashed("Begin Private Key"),
        "\u2014\u2013BEGIN PRIVATE KEY\u2014\u2013",
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t",
    ),
    source=(
        "RFC 7468 sections 10 and 11 (PKCS #8), RFC 1421 section 4.4 (header lines), RFC 9580 section 6.2 (OpenPGP), "
        "OpenSSH's PROTOCOL.key, RFC 7518 section 6 (JSON Web Keys), W3C XML Signature section 4.5.2 (RSAKeyValue), "
        "wg(8) (WireGuard), PuTTY's appendix C (PPK), signify(1), https://age-encryption.org/v1, https://www.rfc-editor.org/rfc/rfc7468"
    ),
    note=(
        "Certain with the BEGIN line, even if nothing follows; base64 after it is removed, whatever joins its lines, "
        "and so is the END line. Without an END line the match ends with the last base64. After a line break one "
        "character is enough, so a word at the beginning of the next line is taken for base64; after up to six short "
        f"words between punctuation it takes {_PART} characters; after up to {_WORDS_BETWEEN} words {_LONG_PART}, or "
        "fewer with digits scattered in them. Also found are PEM files in base64, in base64 of base64 or in "
        "hexadecimal, the private members of JSON Web Keys and of XML's RSAKeyValue, WireGuard's keys, the private "
        "part of PuTTY's files, secret keys of age, signify and minisign, and static keys of OpenVPN. A key in pieces "
        f"is found whatever divides them: pieces of equal length up to {max(_EQUAL)} characters by that length, others "
        "by the digits among their letters, if the same kind of sign divides them all."
    ),
)
