"""Addresses on networks: e-mail, IP, MAC and web.

Edges are ASCII ones on purpose: Chinese and Japanese put no space between a word and an address.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from string import ascii_lowercase

from gateway.censor.detectors.model import Detector, Format

# Inside a class: letters outside ASCII, of scripts that put spaces between words.
_FOREIGN = (
    r"\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02AF\u0300-\u036F\u0370-\u0373\u0376\u0377\u037B-\u037D\u0386\u0388-\u052F"
    r"\u0531-\u0556\u0561-\u0587\u05D0-\u05EA\u0620-\u0669\u066E-\u06D3\u0900-\u0963\u0966-\u097F\u10D0-\u10FA"
    r"\u1E00-\u1FFF"
)
# And of those that do not: kana, Han, Hangul.
_UNSPACED = r"\u3041-\u3096\u30A1-\u30FA\u30FC\u3400-\u9FFF\uAC00-\uD7A3"

# What stands behind the last dot of pictures (logo@2x.png) and of systemd's units (getty@tty1.service), and is no
# top-level domain.
_NO_DOMAINS = (
    *("avif", "gif", "jpeg", "jpg", "png", "svg", "webp"),
    *("mount", "path", "service", "slice", "socket", "target", "timer"),
)


def _top_level() -> tuple[str, str]:
    """Two letters or more that do not begin one of `_NO_DOMAINS`, or differ later; and those that begin one, as .se
    does, and so are domains only where no letter follows."""
    beginnings = {word[:length] for word in _NO_DOMAINS for length in range(1, len(word) + 1)}

    def others(begin: str) -> str:
        taken = {each[-1] for each in beginnings if each[:-1] == begin}
        return "".join(char + char.upper() for char in ascii_lowercase if char not in taken)

    def spelled(text: str) -> str:
        return "".join(f"[{char}{char.upper()}]" for char in text)

    going_on = "|".join(f"{spelled(begin)}[{others(begin)}]" for begin in sorted(beginnings))
    alone = "|".join(spelled(begin) for begin in sorted(beginnings - {*_NO_DOMAINS}) if len(begin) > 1)
    letters = f"[A-Za-z{_FOREIGN}]"
    return rf"(?:[{others('')}{_FOREIGN}]{letters}|{going_on}){letters}*", f"(?:{alone})"


_WORD = rf"A-Za-z0-9_{_FOREIGN}"
_TOP_LEVEL, _TOP_LEVEL_ALONE = _top_level()
_LABELS = rf"[{_WORD}][{_WORD}\-.]*\."
_DOMAIN = rf"{_LABELS}(?:{_TOP_LEVEL}|xn--[A-Za-z0-9\-]+)"
# Under a top-level domain in ASCII only one label may have such characters, and begins with one unless it is the first:
# what follows example.com in Chinese text is no part of it.
_UNSPACED_LABEL = rf"[{_UNSPACED}][{_UNSPACED}A-Za-z0-9\-]{{0,62}}"
_UNSPACED_HOST = rf"(?:(?:[A-Za-z0-9\-]+\.)*|[A-Za-z0-9\-]+){_UNSPACED_LABEL}(?:\.[A-Za-z0-9\-]+)*\.[A-Za-z]{{2,}}"
_UNSPACED_DOMAIN = rf"(?:[{_UNSPACED}A-Za-z0-9\-]+\.[{_UNSPACED}]{{2,}}|{_UNSPACED_HOST})"

_LOCAL = rf"[{_WORD}%+\-][{_WORD}%+\-'.]{{0,63}}"
# An ellipsis may stand before an address; a single dot makes it part of something else.
_LOCAL_BEFORE = rf"^|[^{_WORD}%+\-.@]|\.\.\."

# The version and the type of a package's archive, or the beginning of the type: every substring is looked at.
_ARCHIVE = re.compile(r"(?i)(?:[0-9]+\.){2,}(?:tgz?|tar?|wh?l?|jar?|gem?|deb?|rpm?)$")
_LABEL = re.compile(r"[^\W_](?:[\w\u0300-\u036F\-]*[^\W_\-])?")


def is_email_address(text: str) -> bool:
    """Does it keep the lengths, and the places where dots and hyphens may stand? The archive of a package
    (left-pad@1.0.0.tgz) is none."""
    local, _, domain = text.partition("@")
    if _ARCHIVE.match(domain):
        return False
    if len(local) > 64 or len(domain) > 253 or ".." in local or local.startswith(".") or local.endswith("."):
        return False
    return all(len(label) <= 63 and _LABEL.fullmatch(label) for label in domain.split("."))


def is_ipv4_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def is_ipv6_address(text: str) -> bool:
    """Is this an address, and not what programs write alike? `1::2` is a slice in Python, `a::b` a name in C++, and a
    line of /etc/passwd has numbers between colons: without letters it is one of the addresses in use (2000::/3)."""
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return False
    if "::" not in text or "." in text or address.is_loopback:
        return True
    groups = text.partition("%")[0].split(":")
    if all(group.isdigit() or not group for group in groups):
        return len(groups[0]) == 4 and groups[0][0] in "23"
    return any(len(group) > 2 for group in groups)


def is_mac_address(text: str) -> bool:
    """Groups of four digits without a letter are some other number."""
    return "." not in text or any(char.isalpha() for char in text)


EMAIL = Detector(
    name="email",
    label="EMAIL",
    title="E-mail address",
    formats=(
        Format(rf"{_LOCAL}@(?:{_DOMAIN}|{_UNSPACED_DOMAIN})", _LOCAL_BEFORE),
        Format(rf"{_LOCAL}@{_LABELS}{_TOP_LEVEL_ALONE}", _LOCAL_BEFORE, rf"$|[^A-Za-z{_FOREIGN}]"),
        Format(
            rf"[{_UNSPACED}]{{1,32}}@{_UNSPACED_DOMAIN}",
            rf"^|[^{_UNSPACED}{_WORD}%+\-.@]|\.\.\.",
        ),
    ),
    validate=is_email_address,
    examples=(
        "alice@example.com",
        "first.last+tag@mail.example.co.uk",
        "o'brien@example.ie",
        "user_name%internal@example.org",
        "1234567890@example.com",
        "x@xn--80ak6aa92e.com",
        "jörg@müller.example",
        "почта@пример.рф",
        "用户@例子.广告",
        "info@日本語.jp",
        "bob@mail.日本語.co.jp",
        "alice@example.se",
        "alice@example.services",
    ),
    source=(
        "RFC 5321 section 4.1.2 and RFC 5322 section 3.4.1 (dot-atom form), RFC 6531 (letters beyond ASCII), "
        "https://www.rfc-editor.org/rfc/rfc5321"
    ),
    note=(
        "Of the signs that a local part may hold, _ . + - ' and % are followed; before another one the address begins "
        "again. Quoted local parts, bare host names, bracketed IP addresses and handles such as @alice@example.com "
        "are left out."
    ),
)

_QUAD_BEFORE = r"^|[^A-Za-z0-9_.\-]|(?:^|[^A-Za-z])\-"
_QUAD_AFTER = r"$|[^A-Za-z0-9_.\-]|\.(?:$|[^A-Za-z0-9_])|\-(?:$|[^A-Za-z])"

IPV4 = Detector(
    name="ipv4",
    label="IPV4",
    title="IPv4 address",
    formats=(Format(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", _QUAD_BEFORE, _QUAD_AFTER),),
    validate=is_ipv4_address,
    examples=("192.168.1.1", "8.8.8.8", "203.0.113.255", "0.0.0.0", "10.0.0.1"),  # noqa: S104
    source=(
        "RFC 3986 section 3.2.2 (IPv4address: four decimal numbers up to 255 without leading zeros), "
        "https://www.rfc-editor.org/rfc/rfc3986#section-3.2.2"
    ),
    note="A version or section number of four parts looks the same and is found too, unless a letter is joined to it.",
)

IPV6 = Detector(
    name="ipv6",
    label="IPV6",
    title="IPv6 address",
    formats=(
        Format(
            r"[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,40}(?:%[A-Za-z0-9._~\-]{0,15}[A-Za-z0-9])?",
            before=r"^|[^A-Za-z0-9_:.]|[G-Zg-z_]:|[Vv]6:",
            after=r"$|[^A-Za-z0-9_:.]|[:.](?:$|[^A-Za-z0-9_:.])",
        ),
    ),
    validate=is_ipv6_address,
    examples=(
        "2001:db8::1",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "FE80::0202:B3FF:FE1E:8329",
        "fe80::1%eth0",
        "::1",
        "::ffff:192.0.2.128",
        "64:ff9b::192.0.2.33",
        "2001:db8:0:0:8:800:200C:417A",
        "2001:4860:4860::8888",
        "1:2:3:4:5:6:7:8",
    ),
    source=(
        "RFC 4291 section 2.2 (text forms), RFC 4007 section 11 (zones), "
        "https://www.rfc-editor.org/rfc/rfc4291#section-2.2"
    ),
    note=(
        "Compressed addresses without a group of three or more digits, such as 1::2, are left out, since slices and "
        "names in programs look the same, and so are those without a letter outside 2000::/3; ::1 is found."
    ),
)


def _octets(separator: str) -> str:
    octet = "[0-9A-Fa-f]{2}"
    return rf"(?:{octet}{separator}){{5}}{octet}(?:{separator}{octet}{separator}{octet})?"


_MAC_AFTER = r"$|[^A-Za-z0-9_:.\-]|[:.\-](?:$|[^A-Za-z0-9_])"

MAC_ADDRESS = Detector(
    name="mac_address",
    label="MAC_ADDRESS",
    title="MAC address",
    formats=(
        Format(
            rf"{_octets(':')}|{_octets('-')}|[0-9A-Fa-f]{{4}}(?:\.[0-9A-Fa-f]{{4}}){{2,3}}",
            before=r"^|[^A-Za-z0-9_:.\-]|[G-Zg-z_][:\-]|[Mm][Aa][Cc][:\-]",
            after=_MAC_AFTER,
        ),
    ),
    validate=is_mac_address,
    examples=(
        "00:1A:2B:3C:4D:5E",
        "00-1a-2b-3c-4d-5e",
        "001a.2b3c.4d5e",
        "02:00:5e:10:00:00:00:01",
        "ff:ff:ff:ff:ff:ff",
    ),
    source=(
        "IEEE Std 802-2014 clause 8 (EUI-48 and EUI-64, hexadecimal representation), "
        "https://standards.ieee.org/ieee/802/4963/"
    ),
    note=(
        "Octets joined by colons or hyphens, or groups of four digits joined by points, one of them a letter. Twelve "
        "digits in a row are left out."
    ),
)

# What a URL is made of (letters beyond ASCII as in RFC 3987), what it may end with, and what of it is more likely
# punctuation of the sentence around it.
_INNER = rf"A-Za-z0-9\-_~/#@$&+=%{_FOREIGN}"
_PUNCTUATION = r".,;:!?'*()\[\]"
_HOST = rf"[{_WORD}]"
_SCHEME = r"(?i:https?|ftps?|wss?)://"
_WWW = rf"(?i:www)\.[{_WORD}\-.]+\.[A-Za-z{_FOREIGN}]{{2}}"
_NO_LETTER = r"(?:^|[^A-Za-z0-9])"

URL = Detector(
    name="url",
    label="URL",
    title="Web address",
    formats=(
        Format(rf"{_SCHEME}(?:{_HOST}|\[[0-9A-Fa-f:.]+\]|{_UNSPACED_HOST})|{_WWW}", _NO_LETTER),
        Format(
            rf"[{_INNER}\]][{_PUNCTUATION}]{{0,3}}(?:[{_INNER}]|\([{_INNER}.,;:!?'*]*\))",
            rf"{_NO_LETTER}(?:{_SCHEME}(?:{_UNSPACED_HOST[:-4]})?|{_WWW[:-3]})[{_INNER}{_PUNCTUATION}]*",
        ),
    ),
    validate=None,
    examples=(
        "https://example.com",
        "http://localhost:8080/path?a=1&b=2#part",
        "https://user:pass@example.com/",
        "https://en.wikipedia.org/wiki/Guard_(disambiguation)",
        "http://[2001:db8::1]:8080/x",
        "ftp://ftp.example.org/pub/file.tar.gz",
        "wss://example.com/socket",
        "www.example.com/index.html",
        "HTTPS://EXAMPLE.COM/A",
        "https://日本語.jp/x",
        "http://www.例え.jp:8080/a?b=1",
    ),
    source="RFC 3986 (syntax) and its appendix C (delimiters in text), RFC 3987, https://www.rfc-editor.org/rfc/rfc3986",
    note=(
        "The schemes http, https, ftp, ftps, ws and wss, and host names that begin with www. Punctuation at the end is "
        "taken for the sentence's, and a closing parenthesis only if it is opened in the address."
    ),
)
