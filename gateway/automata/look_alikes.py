"""Characters that are written for letters which they resemble, besides signs and digits.

Unlike the fold `confusables`, which is a mapping, one character may stand for several letters, and a word of its own
script is not seen as one of ASCII. The alphabets are those of the usual converters to "fancy text".
"""

from __future__ import annotations

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# A letter each, in order.
_ALPHABETS = (
    "₳฿₵ĐɆ₣₲ⱧłJ₭Ⱡ₥₦Ø₱QⱤ₴₮ɄV₩ӾɎⱫ",
    "ᗩᗷᑕᗪEᖴGᕼIᒍKᒪᗰᑎOᑭᑫᖇᔕTᑌᐯᗯ᙭Yᘔ",
    "卂乃匚ᗪ乇千Ꮆ卄丨ﾌҜㄥ爪几ㄖ卩Ɋ尺丂ㄒㄩᐯ山乂ㄚ乙",
    "αɓ૮∂εƒɠɦเʝҡℓɱɳσρφ૨รƭµѵωאყƶ",
    "ǟɮƈɖɛʄɢɦɨʝӄʟʍռօքզʀֆȶʊʋաӼʏʐ",
    "ค๒ς๔єŦﻮђเןкl๓ภ๏קợгรtยשฬאץz",
    "ąცƈɖɛʄɠɧıʝƙƖɱŋơ℘զཞʂɬų۷ῳҳყʑ",
    "дбҁԁёғgнїjкlмиoрqяѕтцѵшхчz",
    "ᏗᏰፈᎴᏋᎦᎶᏂᎥᏠᏦᏝᎷᏁᎧᎮᎤᏒᏕᏖᏬᏉᏇጀᎩፚ",
    "ꍏꌃꉓꀸꍟꎇꁅꃅꀤꀭꀘ꒒ꂵꈤꂦᖘꆰꋪꌗ꓄ꀎᐯꅏꊼꌩꁴ",
    "ȺɃȻĐɆFǤĦƗɈꝀŁMNØⱣꝖɌSŦɄVWXɎƵ",
    "ɐqɔpǝɟƃɥᴉɾʞlɯuodbɹsʇnʌʍxʎz",
    "ДБСDЄFGНІJКLМИОРQЯЅТЦVЩЖУZ",
    "ДБCDЄFGHЇJКLMИФPQЯSTЦVШЖУZ",
    "дъсδёfgніјкlмйорqгѕтцѵшхуz",
    "αв¢∂єƒgнιנкℓмησρqяѕтυνωχуz",
    "άвςđεғģħίјķĻмήόρqŕşţùνώxчž",
    "αβcδεfghιjκlμηοpqrσtυνωχγζ",
    "ልጌርዕቿቻኗዘጎጋጕረጮክዐየዒዪነፕሁሀሠሸሃጊ",
    "ᗩᗷᑢᗞᘿᖴᘜᕼᓰᒚKᒪᘻᘉᓍᕵᕴᖇSᖶᑘᐺᘺ᙭ᖻᗱ",
    "ąɓçɗɛƒɠɦįʝƙɭɱɲǫƥʠɽşƭųʋῳҳƴʐ",
    "ạɓċɖєʄɠɦıʝҡℓɱɲσρքʀʂτυνωჯყʐ",
    "აბცძეფგჰიჯკლმნოპყრსტუვწხყზ",
    "ⲁⲃⲥⲇⲉϝ𐌾ⲏⲓϳⲕⲗⲙⲛⲟⲣⲋⲅ𐌔ⲧⲩⲫⲱⲭⲩⲍ",
)
# What Unicode's list has for another letter, and letters of ASCII for one another.
_ALSO = {
    "b": "вʙ", "d": "ԁժ", "e": "эɘ", "f": "ʃ", "g": "ցɣ", "h": "һհ", "i": "lꓲוӏᏆ", "l": "Iіוıӏլ", "n": "пνղ",
    "o": "๐סσ", "p": "рþ", "q": "գǫ", "r": "гґ", "u": "υվ", "v": "υʋν", "w": "ѡшщ", "x": "ж×", "y": "υүγч",
    "z": "зȥ", "0": "oOоОοΟ", "1": "lIiіІӏ", "2": "zZ", "3": "EЗзƷ", "4": "Чч", "5": "sSѕЅ", "6": "Gб", "8": "BВ",
    "9": "gq",
}  # fmt: skip


_BRAILLE_DIGITS = zip("1234567890", "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚", strict=True)  # behind a sign that letters do without


def _table() -> dict[str, str]:
    table = {char: digit for digit, char in _BRAILLE_DIGITS}
    fancy = ((letter, char) for each in _ALPHABETS for letter, char in zip(_LETTERS, each, strict=True))
    also = ((letter, char) for letter, chars in _ALSO.items() for char in chars)
    for letter, char in (*((letter, char) for letter, char in fancy if not char.isascii()), *also):
        for form in {char, *(case for case in (char.lower(), char.upper()) if not case.isascii())}:
            table[form] = "".join(dict.fromkeys(table.get(form, "") + letter))
    return table


ALIKE = _table()


def is_common_script(char: str) -> bool:
    """Is it of ASCII, or of a script in which ordinary text may look like words of ASCII (Greek to Georgian)?"""
    return char < "\x80" or "\u0370" <= char < "\u1100"
