"""Characters that look like letters and digits of ASCII (Unicode UTS #39), for the fold `confusables`.

Derived from Unicode's confusables.txt, © Unicode, Inc., under the Unicode License V3
(https://www.unicode.org/license.txt), by `python -m tests.support.confusable_table`. Left out is what other data has:
compatibility forms, digits, canonical compositions. Letters of ASCII are not made one another: `rn` is not `m`, and
`l`, `I` and `1` stay apart, or prose would be full of hits.
"""

from __future__ import annotations

import re
import unicodedata

# Letters of ASCII, and the code points of what looks like them, in hexadecimal.
_LISTED = {
    "2": "1A7 1BB 3E8 14BF A644 A6EF A75A",
    "3": "1B7 21C 417 4E0 2CCC A76A A7AB 118CA 16F3B 1D206",
    "4": "13CE 118AF",
    "5": "1BC 118BB",
    "6": "431 13EE 2CD2 118D5",
    "7": "104D2 118C6 1D212",
    "8": "222 223 B03 1031A",
    "9": "2CCA A76E 118AC 118CC 118D6",
    "A": "391 410 13AA 15C5 A4EE 102A0 16F40",
    "AA": "A732",
    "AE": "C6 4D4",
    "AO": "A734",
    "AU": "A736",
    "AV": "A738 A73A",
    "AY": "A73C",
    "B": "392 412 13F4 15F7 A4D0 A7B4 10282 102A1 10301",
    "C": "421 13DF 2CA4 A4DA 102A2 10302 10415 1051C 118F2 1F74C",
    "D": "D0 110 189 13A0 15DE 15EA A4D3",
    "E": "246 395 415 13AC 22FF 2D39 A4F0 10286 118A6 118AE",
    "F": "191 3DC 15B4 A4DD A798 10287 102A5 10525 118A2 118C2 1D213",
    "G": "1E4 50C 13C0 13F3 A4D6",
    "H": "126 397 41D 13BB 157C 2C67 2C8E A4E7 102CF",
    "I": "196 197 399 406 4C0 2C92",
    "J": "248 37F 408 13AB 148D A4D9 A7B2",
    "K": "39A 41A 13E6 16D5 2C69 2C94 A4D7 A740 10518",
    "L": "141 13DE 14AA 2CD0 A4E1 1041B 10526 118A3 118B2 16F16 1D22A",
    "M": "39C 3FA 41C 13B7 15F0 16D6 2C98 A4DF 102B0 10311",
    "N": "19D 39D 2C9A A4E0 10513",
    "O": "D8 19F 39F 41E 555 B20 12D0 2C9E 2D54 3007 A4F3 A74A 10292 102AB 10404 104C2 10516 118B5",
    "OE": "152",
    "OO": "A698 A74E",
    "P": "3A1 420 13E2 146D 2CA2 A4D1 10295",
    "Q": "2D55",
    "R": "1A6 13A1 13D2 1587 A4E3 104B4 16F35 1D216",
    "S": "405 54F 13D5 13DA A4E2 10296 10420 16F3A",
    "T": "166 1AE 23E 3A4 422 13A2 22A4 27D9 2CA6 A4D4 10297 102B1 10315 118BC 16F0A 1F768",
    "T3": "A728",
    "U": "244 54D 1200 144C 222A 22C3 A4F4 104CE 118B8 16F42",
    "V": "474 13D9 142F 2D38 A4E6 A6DF 1051D 118A0 16F08 1D20D",
    "W": "51C 13B3 13D4 A4EA 118EF",
    "X": "3A7 425 166D 16B7 2573 2CAC 2D5D A4EB A7B3 10290 102B4 10317 10322 10527 118EC",
    "Y": "24E 3A5 423 4AE 13A9 13BD 2CA8 A4EC 102B2 118A4 16F43",
    "Z": "1B5 224 396 13C3 A4DC 102F5 118A9",
    "a": "251 3B1 430 1D00 237A AB7A",
    "aa": "A733",
    "ae": "E6 4D5",
    "ao": "A735",
    "au": "A737",
    "av": "A739 A73B",
    "ay": "A73D",
    "b": "180 182 183 184 253 299 42C 432 13CF 13FC 1472 15AF",
    "bl": "42B",
    "c": "23C 441 1D04 2CA5 ABAF 1043D",
    "d": "111 18C 256 257 501 13E7 146F 1D05 A4D2 AB70",
    "dz": "2A3",
    "e": "247 435 4BD 1D07 212E AB32 AB7C",
    "f": "192 584 1D6E 1E9D A730 A799 AB35",
    "g": "18D 1E5 260 261 262 50D 581 13FB 1D83 AB90",
    "h": "127 266 29C 43D 4BB 570 13C2 AB8B",
    "i": "131 268 269 26A 3B9 456 4CF 13A5 1D7B 1D7C 2373 A647 AB75 118C3",
    "j": "249 3F3 458 1D0A AB7B",
    "k": "138 199 3BA 43A 1D0B 2C95 ABB6",
    "l": "142 19A 1C0 26B 26D 29F 16C1 2223 23FD 2CD1 2D4F A4F2 ABAE 1028A 10309 10320 10443 16F28",
    "lO": "42E",
    "ll": "1C1",
    "ls": "2AA",
    "lz": "2AB",
    "m": "271 28D 43C 1D0D 1D6F AB51 AB87 11700",
    "n": "19E 272 273 274 578 57C 1D70",
    "o": "F8 275 3BF 3C3 43E 585 C02 C82 D02 D20 D82 101D 10FF 1D0F 1D11 2C9F A74B AB3D AB3E 1042C 104EA 118C8 118D7",
    "oe": "153",
    "oo": "A699 A74F",
    "p": "1A5 3C1 440 1D18 1D29 1D7D 2374 2CA3 ABB2",
    "q": "2A0 51B 563 566 A7AF",
    "r": "24D 27C 27D 280 433 1D26 1D72 2C85 AB47 AB48 AB71 AB81 ABA2",
    "s": "1BD 282 455 1D74 A731 ABAA 10448 118C1",
    "t": "167 1AB 1AD 3C4 442 13BF 1D1B 1D75 AB72",
    "tf": "A777",
    "ts": "2A6",
    "u": "28B 3C5 57D 1D1C 1D7E A79F AB4E AB52 104F6 118D8",
    "ue": "1D6B",
    "uo": "AB63",
    "v": "3BD 475 1D20 2228 22C1 ABA9 11706 118C0",
    "w": "26F 461 51D 561 1D21 A761 AB83 1170A 1170E 1170F",
    "x": "D7 445 1541 157D 166E 292B 292C 2A2F",
    "y": "1B4 24F 263 28F 3B3 443 4AF 10E7 1D8C 1EFF AB5A 118DC",
    "z": "1B6 225 290 1D22 1D76 AB93 118C4",
}  # fmt: skip
# Letters and signs that are used for what they resemble, which the list leaves out.
_ALSO = {
    "b": "3B2",
    "c": "3F2",
    "d": "2202",
    "e": "3B5 454",
    "j": "575",
    "n": "3B7",
    "r": "44F",
    "t": "442",
    "u": "3BC",
    "w": "3C9",
    "x": "3C7",
}
# Rows of the alphabet: parenthesised, negative circled and squared letters, and the letters that flags are made of.
_ALPHABETS = (0x249C, 0x1F110, 0x1F150, 0x1F170, 0x1F1E6)
_PARENTHESISED_ONE = 0x2474
_BRAILLE = "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵"
# A letter with a hook, a stroke or a tail.
_CHANGED = re.compile("LATIN (SMALL|CAPITAL) LETTER ([A-Z]) WITH ")
_TABLE = {chr(int(code, 16)): target for target, codes in _LISTED.items() for code in codes.split()}
_TABLE |= {chr(int(code, 16)): target for target, codes in _ALSO.items() for code in codes.split()}
_TABLE |= {chr(first + at): chr(ord("A") + at) for first in _ALPHABETS for at in range(26)}
_TABLE |= {chr(_PARENTHESISED_ONE + at): str(at + 1) for at in range(9)}
_TABLE |= {char: chr(ord("a") + at) for at, char in enumerate(_BRAILLE)}


def skeleton(char: str, *, ignore_case: bool) -> str:
    """What a character looks like in ASCII; the character itself if that is nothing.

    With `ignore_case` a letter looks like its capital does where it looks like nothing by itself.
    """
    if char.isascii() or unicodedata.combining(char):
        return char
    digit = unicodedata.digit(char, None)
    if digit is not None:
        return str(digit)
    form = unicodedata.normalize("NFKC", char)
    known = _TABLE.get(char) or _TABLE.get(form) or (_TABLE.get(form.upper()) if ignore_case else None)
    if known is not None:
        return known
    if len(form) == 1 and form.isascii() and form.isalpha():
        return form
    apart = unicodedata.normalize("NFD", char)
    if len(apart) == 1:
        changed = _CHANGED.match(unicodedata.name(char, ""))
        return char if changed is None else changed[2].lower() if changed[1] == "SMALL" else changed[2]
    return unicodedata.normalize("NFC", skeleton(apart[0], ignore_case=ignore_case) + apart[1:])
