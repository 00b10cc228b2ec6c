"""Crypto-currencies: addresses, keys and seed phrases."""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b, sha256
from importlib import resources

from gateway.censor.detectors.model import Detector, Format

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_OF_RIPPLE = str.maketrans("rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz", _BASE58)
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_B58, _B32 = "[1-9A-HJ-NP-Za-km-z]", "[02-9ac-hj-np-z]"
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_OF_CASH = (0x98F2BC8E61, 0x79B76D99E2, 0xF33E5FB3C4, 0xAE2EABE2A8, 0x1E4F43E470)
_CHECKSUMS = (1, 0x2BC830A3)  # of Bech32 and Bech32m


def _bytes_of(text: str) -> bytes:
    """Of Base58."""
    number = 0
    for char in text:
        number = number * 58 + _BASE58.index(char)
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8)


def has_base58_checksum(text: str) -> bool:
    """Are the last four bytes the beginning of the others' double SHA-256?"""
    content = _bytes_of(text)
    return len(content) > 4 and sha256(sha256(content[:-4]).digest()).digest()[:4] == content[-4:]


def has_ripple_checksum(text: str) -> bool:
    """The same in the XRP Ledger's alphabet."""
    return has_base58_checksum(text.translate(_OF_RIPPLE))


def has_bech32_checksum(text: str) -> bool:
    """Is the checksum of BIP 173 or BIP 350 right?"""
    text = text.lower()
    prefix, _, data = text.rpartition("1")
    values = [*(ord(char) >> 5 for char in prefix), 0, *(ord(char) & 31 for char in prefix), *map(_BECH32.index, data)]
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            check ^= generator if top >> bit & 1 else 0
    return check in _CHECKSUMS


def has_cash_checksum(text: str) -> bool:
    """Is the checksum of Bitcoin Cash's addresses right, with its prefix or without?"""
    prefix, _, data = text.rpartition(":")
    check = 1
    for value in (*(ord(char) & 31 for char in prefix or "bitcoincash"), 0, *map(_BECH32.index, data)):
        top = check >> 35
        check = (check & 0x7FFFFFFFF) << 5 ^ value
        for bit, generator in enumerate(_OF_CASH):
            check ^= generator if top >> bit & 1 else 0
    return check == 1


def has_ss58_checksum(text: str) -> bool:
    """Are the last two bytes the beginning of the others' BLAKE2b, as Polkadot and what is built like it have them?"""
    content = _bytes_of(text)
    return blake2b(b"SS58PRE" + content[:-2]).digest()[:2] == content[-2:]


_BEFORE, _AFTER = r"^|[^A-Za-z0-9_]|\\[nrt]", r"$|[^A-Za-z0-9_]"
_LENGTHS = {"bc1": (11, 71), "tb1": (11, 71), "ltc1": (11, 71), "addr1": (50, 110), "cosmos1": (38, 58)}

CRYPTO_ADDRESS = Detector(
    name="crypto_address",
    label="CRYPTO_ADDRESS",
    title="Address of a crypto-currency",
    formats=(
        Format(f"(?:[13LMDT]|t[13]){_B58}{{25,34}}", _BEFORE, _AFTER, has_base58_checksum),
        Format(
            "|".join(f"{lead}{_B32}{{{low},{high}}}" for lead, (low, high) in _LENGTHS.items())
            + "|(?:BC1|TB1|LTC1)[02-9AC-HJ-NP-Z]{11,71}",
            _BEFORE,
            _AFTER,
            has_bech32_checksum,
        ),
        Format("0x[0-9A-Fa-f]{40}|G[A-Z2-7]{55}|4[0-9AB][1-9A-HJ-NP-Za-km-z]{93}", _BEFORE, _AFTER),
        Format(f"r{_B58}{{24,34}}", _BEFORE, _AFTER, has_ripple_checksum),
        Format(f"(?:bitcoincash:)?[qp]{_B32}{{41}}", _BEFORE, _AFTER, has_cash_checksum),
        Format(f"[15C-J]{_B58}{{45,47}}", _BEFORE, _AFTER, has_ss58_checksum),
    ),
    validate=None,
    examples=(
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
        "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
        "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
        "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t",
        "DH5yaieqoZN36fDVciNyRueRGvGLR3mr7L",
        "bitcoincash:qpm2qsznhks23z7629mms6s4cwef74vcwvy22gdx6a",
        "15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5",
    ),
    source=(
        "Bitcoin's Base58Check, BIP 173 and BIP 350 (Bech32), ERC-55 (Ethereum), "
        "https://github.com/bitcoin/bips/blob/master/bip-0173.mediawiki"
    ),
    note=(
        "Bitcoin, Bitcoin Cash, Litecoin, Dogecoin, Tron, Zcash, XRP, Cosmos, Cardano, Polkadot and Kusama with the "
        "right checksum; Ethereum, Stellar and Monero by their form, without verifying checksums. "
        "Solana's, which have none, are left out."
    ),
)

_WORD = "[A-Za-z]{3,8}"
_COUNTS = (12, 15, 18, 21, 24)
# In a row, in a list, and in one with numbers: each phrase has one of them, so that prose, in which they change, begins
# few phrases.
_BETWEEN = (
    r"(?: {1,2}|\n)",
    r"\n[\-*] ",
    r" ?[|;\-] ?",
    "` `",
    r"[\"'`]?,\s{0,3}[\"'`]?",
    r",?\s{1,2}[0-9]{1,2}[.):]\s?",
)
_NOT_WORDS = re.compile("[^a-z]+")


@cache
def _words() -> dict[str, int]:
    """BIP 39's English words, each with its number."""
    text = resources.files(__package__).joinpath("bip39.txt").read_text(encoding="utf-8")
    return {word: number for number, word in enumerate(text.split())}


def is_seed_phrase(text: str) -> bool:
    """Are these as many words of the list as a phrase has, and is the checksum in the last of them right?"""
    words, known = _NOT_WORDS.split(text.lower()), _words()
    if len(words) not in _COUNTS or not all(word in known for word in words):
        return False
    number = 0
    for word in words:
        number = number << 11 | known[word]
    checked = len(words) * 11 // 33
    entropy = (number >> checked).to_bytes(checked * 4)
    return number & (1 << checked) - 1 == sha256(entropy).digest()[0] >> 8 - checked


WALLET_SECRET = Detector(
    name="wallet_secret",
    label="WALLET_SECRET",
    title="Seed phrase or private key of a wallet",
    formats=(
        *(
            Format(f"{_WORD}(?:{between}{_WORD}){{11,23}}", "^|[^A-Za-z]", "$|[^A-Za-z]", is_seed_phrase)
            for between in _BETWEEN
        ),
        Format(f"5{_B58}{{50}}|[KL]{_B58}{{51}}|[xyz]p(?:rv|ub){_B58}{{107}}", _BEFORE, _AFTER, has_base58_checksum),
        Format(f"nsec1{_B32}{{58}}", _BEFORE, _AFTER, has_bech32_checksum),
    ),
    validate=None,
    # In two halves, so that scanners of repositories do not take them for leaks.
    examples=(
        "legal winner thank year wave sausage worth useful " + "legal winner thank yellow",
        "zoo zoo zoo zoo zoo zoo zoo zoo " + "zoo zoo zoo wrong",
        "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4" + "dZ1jvhTVqvbTLvyTJ",
        "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6L"
        + "nF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi",
        "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laq" + "snlfe5",
    ),
    source=(
        "BIP 39 (phrases), BIP 32 (extended keys), Bitcoin's wallet import format, NIP-19 (Nostr), "
        "https://github.com/bitcoin/bips/blob/master/bip-0039.mediawiki"
    ),
    note=(
        "12, 15, 18, 21 or 24 words of the English list, on one line or several, or in a list, of which the last has "
        "the right checksum. While words are as long as those of the list, up to 24 of them are held. Lists of other "
        "languages, and keys in hexadecimal, are left out."
    ),
)
