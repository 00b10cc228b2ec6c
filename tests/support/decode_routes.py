"""The 140 ways in which one vocabulary spells three words, as data.

The pieces and their ids are those of a SentencePiece vocabulary (▁ stands for a space); the table was published with
the first attempt to keep a model from saying these words, by a machine over token sequences and a rollback. It is not
complete: other pieces spell the words too. Every way here, however, must be impossible.
"""

from __future__ import annotations

BANNED = ("talk", "listen", "fuck you")

# Piece and token id.
_PIECES = """
    ▁t=474 en=479 te=488 st=490 al=492 is=502 ou=507 li=515 ta=516 ▁f=517 ▁l=533 ▁y=597 ck=623 ▁you=692
    ist=694 ▁li=702 ten=965 uc=1669 list=1701 uck=1870 ▁list=1889 alk=2071 ste=2855 ▁tal=3412 tal=3559
    ▁ta=3586 iste=3671 ▁fu=4936 ▁talk=5063 sten=5547 ▁fuck=7935 ▁listen=10724 ▁yo=10931 fu=12819 lis=15063
    isten=17071 listen=18998 ▁lis=23966 lk=26159 ▁liste=32165 talk=33085 fuck=34024 liste=44003 ▁fuc=79433
    e=235249 a=235250 t=235251 i=235252 o=235253 n=235254 s=235256 l=235257 c=235260 u=235261 f=235266
    k=235273
"""

# One way a line: its pieces in order.
_ROUTES = """
    listen
    ▁listen
    ▁talk
    talk
    ▁tal k
    tal k
    li sten
    ▁li sten
    ta lk
    ▁ta lk
    lis ten
    ▁lis ten
    ▁t alk
    t alk
    ▁liste n
    liste n
    ▁list en
    list en
    l isten
    ▁l isten
    fuck ▁you
    ▁fuck ▁you
    ta l k
    ▁ta l k
    ▁t al k
    t al k
    l i sten
    ▁l i sten
    ▁t a lk
    t a lk
    l is ten
    ▁l is ten
    li s ten
    ▁li s ten
    fuck ▁y ou
    ▁fuck ▁y ou
    l iste n
    ▁l iste n
    li ste n
    ▁li ste n
    lis te n
    ▁lis te n
    ▁list e n
    list e n
    l ist en
    ▁l ist en
    li st en
    ▁li st en
    lis t en
    ▁lis t en
    ▁fu ck ▁you
    fu ck ▁you
    ▁fuc k ▁you
    ▁f uck ▁you
    f uck ▁you
    fuck ▁yo u
    ▁fuck ▁yo u
    ▁t a l k
    t a l k
    l i s ten
    ▁l i s ten
    ▁fu ck ▁y ou
    fu ck ▁y ou
    ▁fuc k ▁y ou
    ▁f uck ▁y ou
    f uck ▁y ou
    l i ste n
    ▁l i ste n
    l is te n
    ▁l is te n
    li s te n
    ▁li s te n
    l ist e n
    ▁l ist e n
    li st e n
    ▁li st e n
    lis t e n
    ▁lis t e n
    l i st en
    ▁l i st en
    l is t en
    ▁l is t en
    li s t en
    ▁li s t en
    ▁f u ck ▁you
    f u ck ▁you
    ▁fu c k ▁you
    fu c k ▁you
    ▁f uc k ▁you
    f uc k ▁you
    fuck ▁y o u
    ▁fuck ▁y o u
    ▁fu ck ▁yo u
    fu ck ▁yo u
    ▁fuc k ▁yo u
    ▁f uck ▁yo u
    f uck ▁yo u
    ▁f u ck ▁y ou
    f u ck ▁y ou
    ▁fu c k ▁y ou
    fu c k ▁y ou
    ▁f uc k ▁y ou
    f uc k ▁y ou
    l i s te n
    ▁l i s te n
    l i st e n
    ▁l i st e n
    l is t e n
    ▁l is t e n
    li s t e n
    ▁li s t e n
    l i s t en
    ▁l i s t en
    ▁f u c k ▁you
    f u c k ▁you
    ▁fu ck ▁y o u
    fu ck ▁y o u
    ▁fuc k ▁y o u
    ▁f uck ▁y o u
    f uck ▁y o u
    ▁f u ck ▁yo u
    f u ck ▁yo u
    ▁fu c k ▁yo u
    fu c k ▁yo u
    ▁f uc k ▁yo u
    f uc k ▁yo u
    ▁f u c k ▁y ou
    f u c k ▁y ou
    l i s t e n
    ▁l i s t e n
    ▁f u ck ▁y o u
    f u ck ▁y o u
    ▁fu c k ▁y o u
    fu c k ▁y o u
    ▁f uc k ▁y o u
    f uc k ▁y o u
    ▁f u c k ▁yo u
    f u c k ▁yo u
    ▁f u c k ▁y o u
    f u c k ▁y o u
"""

TOKENS: dict[str, int] = {piece: int(number) for piece, number in (entry.split("=") for entry in _PIECES.split())}
ROUTES: tuple[tuple[str, ...], ...] = tuple(tuple(line.split()) for line in _ROUTES.strip().splitlines())


def token_bytes(piece: str) -> bytes:
    """The bytes that a piece adds to the text."""
    return piece.replace("▁", " ").encode()


# Two ways in which the published machine leaked: the rest of a word after a rollback that forgot the word's beginning,
# and a word that begins again inside its own beginning.
LEAKS: tuple[tuple[str, ...], ...] = (("▁fuck", "▁yo", "u"), ("▁t", "▁talk"))
