"""What programs and tables are full of, and no detector takes for anything."""

from __future__ import annotations

import random
from base64 import b64encode

import pytest

from gateway.censor.detectors import DETECTORS
from gateway.censor.explain import prose
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule
from tests.support.compiled import compiled

RULES = tuple(Rule(id=name, detector=name) for name in DETECTORS if name != "url")
PICTURE = b64encode(b"\x89PNG\r\n\x1a\n" + random.Random("picture").randbytes(1500)).decode()

TEXTS = {
    "pictures for dense screens": "![logo](logo@2x.png), icon@3x.webp, hero@2x.avif",
    "units of systemd": "getty@tty1.service, user@1000.socket, wg-quick@wg0.service",
    "slices": "a[1::2], x[::2], y[:, ::-1], z[337::617], s[::]",
    "names with colons": "std::dec, Foo::Bar::baz(), ::before, ::1x, a::b",
    "article numbers": "EAN 4000000000006, 4006381333931, UPC 036000291452, ISBN 978-3-16-148410-0",
    "hexadecimal numbers": "0x4111111111111111, 0xdeadbeef, 0XCAFEBABE4111, \\x41\\x42, #4111111",
    "numbers of parts": "PN-123-45-6789, 123-45-6789-B, SKU 4111-A, AB-536-90-4399, MT29F4G08ABADAWP",
    "hashes of commits": "commit da39a3ee5e6b4b0d3255bfef95601890afd80709, fix in 3f786850e3",
    "digests": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "digests of packages": "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+S",
    "UUIDs": "123e4567-e89b-12d3-a456-426614174000, {6BA7B810-9DAD-11D1-80B4-00C04FD430C8}",
    "versions": "v1.2.3, 2.0.0-rc.1+build.5114f85, python3.11.7, 10.15.7, lodash@4.17.21, numpy==1.26.4, ^18.2.0",
    "archives of packages": "npm install left-pad@1.0.0.tgz, module@12.0.3.tar and @scope/name@2.4.1.tgz",
    "placeholders of keys": f"sk_live_{'x' * 24}, SK{'0' * 32}, glpat-{'x' * 20}, AKIA{'X' * 16}, ghp_{'*' * 36}",
    "dates and times": "2026-11-22T20:15:00Z, 22.11.2026, 11/22/2026, 12:30:45.678, 20261122201500",
    "fingerprints for SSH": "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDMgZYzXHZYqd7gFkg",
    "older fingerprints": "MD5:16:27:ac:a5:76:28:2d:36:63:1b:56:4d:eb:df:a6:48",
    "a public key for SSH": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me",
    "colours": "#ff8800, #FFFFFF80, rgb(255, 136, 0), rgba(17, 24, 39, 0.125), hsl(210deg 50% 40%)",
    "styles": "a::before{content:'';margin:0 0 0 1.2345em} @media (min-width:1024px){.x:hover::after{top:0}}",
    "pictures in base64": f"<img src='data:image/png;base64,{PICTURE}'>",
    "numbers": "1,234,567.89, 3.14159265358979, 6.02214076e23, 1 021 314 571, 4096, 1_000_000, -0.000123",
    "weights": "[0.123456, -0.654321, 0.987654, 40.712800, -74.006000]",
    "code": "token = tokens[i]; password = getpass(); key = keys[0]; secret = os.environ['SECRET'], api_key=api_key",
    "regular expressions": r"^[A-Z]{2}\d{2}(?:[ ]?\d{4}){3,7}$ and \d{3}-\d{2}-\d{4} and (?P<year>\d{4})",
    "a table": "| id | 1 | 22 | 333 | 4444 |\n| -- | 0.1 | 0.22 | 0.333 | 0.4444 |",
    "identifiers": "sk-learn, ghp_user, AKIA, hf_hub_download, npm_config_registry, lip_sync_controller_state_machine",
    "addresses in memory": "at 0x7ffdf3a1c2b0, rip=0xffffffff81000000, <object at 0x7f2c21cc9d90>",
    "paths": "/usr/lib/python3.11/re/_parser.py:370, C:\\Users\\x\\a.txt, s3://bucket/key/2026/11/22/part-00000.parquet",
    "prose": "".join(prose()),
}  # fmt: skip


def matches(pieces: list[str]) -> list[tuple[str, str]]:
    censor = Censor(compiled(Policy(name="all", rules=RULES)).program(Direction.OUTPUT, Channel.CONTENT))
    for piece in pieces:
        censor.feed(piece)
    censor.finish()
    text = "".join(pieces)
    return [(match.rule, text[match.start : match.end]) for match in censor.matches]


@pytest.mark.parametrize("name", TEXTS)
def test_no_detector_takes_it_for_anything(name: str) -> None:
    text = TEXTS[name]
    for surrounding in ("{}", "({})", "so: {}."):
        whole = surrounding.format(text)
        assert matches([whole]) == []
        assert matches([whole[at : at + 7] for at in range(0, len(whole), 7)]) == []
