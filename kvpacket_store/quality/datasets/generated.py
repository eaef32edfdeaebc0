"""Words that generated documents are made of. Nothing here is true, so nothing is known."""

from __future__ import annotations

import random

__all__ = ["FIRST_NAMES", "LAST_NAMES", "TOWNS", "filler", "sentences_for"]

FIRST_NAMES = [
    "Adela",
    "Bram",
    "Corin",
    "Dagny",
    "Edda",
    "Fenno",
    "Greta",
    "Hollis",
    "Ilse",
    "Jorun",
    "Kasper",
    "Lene",
    "Marit",
    "Nils",
    "Oda",
    "Perrin",
    "Runa",
    "Sixten",
    "Tilde",
    "Ulf",
    "Vera",
    "Wendel",
    "Ysolde",
    "Zeno",
    "Anselm",
    "Birgit",
    "Cosima",
    "Detlef",
    "Elke",
    "Fridolin",
]
LAST_NAMES = [
    "Aldermoor",
    "Brackwater",
    "Castellan",
    "Dunmere",
    "Eastlake",
    "Farrowby",
    "Glenhollow",
    "Hartvig",
    "Ingersund",
    "Jessamine",
    "Kettleby",
    "Lindqvist",
    "Marchbanks",
    "Northolt",
    "Ottery",
    "Pemberly",
    "Quillfeather",
    "Rosendahl",
    "Silverton",
    "Thornquist",
    "Underwood",
    "Vesterby",
    "Wexcombe",
    "Yarrow",
    "Zellwick",
]
TOWNS = [
    "Arkwold",
    "Brindle",
    "Coldharbour",
    "Drumsey",
    "Elverton",
    "Fallowmere",
    "Grimsholt",
    "Hexworth",
    "Ivelstone",
    "Jarrow",
    "Kelmscot",
    "Lowdham",
    "Mirefield",
    "Nethercombe",
    "Oxmoor",
    "Pendle",
    "Quernford",
    "Ravensby",
    "Saltmarsh",
    "Tilbrook",
]
_THINGS = [
    "bridge",
    "mill",
    "harbour",
    "library",
    "clock",
    "tower",
    "market",
    "hall",
    "orchard",
    "lighthouse",
    "chapel",
    "canal",
]
_ADJECTIVES = [
    "old",
    "narrow",
    "quiet",
    "painted",
    "crooked",
    "windy",
    "half-built",
    "famous",
    "forgotten",
    "red",
]
_DONE = (
    "repaired after a storm",
    "closed for two winters",
    "drawn by a travelling painter",
    "sold to a society of farmers",
    "measured again and found too short",
    "lit with lamps for a wedding",
    "moved by hand, stone by stone",
    "mentioned in a letter that nobody answered",
)
_TEMPLATES = (
    "In {year} the {adjective} {thing} of {town} was {done}.",
    "People from {town} still speak of the {adjective} {thing}, which was {done}.",
    "The {thing} near {town} is {adjective}; in {year} it was {done}.",
    "A walk from {town} to the {adjective} {thing} takes {minutes} minutes.",
    "Nobody in {town} remembers why the {thing} was {done} in {year}.",
    "Until {year} the {adjective} {thing} stood on the other side of {town}.",
)
_WORDS_A_TOKEN = 0.75


def filler(chance: random.Random) -> str:
    """Return a sentence that answers nothing.

    Examples
    --------
    >>> filler(random.Random(1)) == filler(random.Random(1))
    True
    """
    return chance.choice(_TEMPLATES).format(
        year=chance.randint(1701, 1980),
        minutes=chance.randint(5, 90),
        adjective=chance.choice(_ADJECTIVES),
        thing=chance.choice(_THINGS),
        town=chance.choice(TOWNS),
        done=chance.choice(_DONE),
    )


def sentences_for(tokens: int, chance: random.Random, *, without_tokens: int = 0) -> list[str]:
    """Return filler of about so many tokens, less what else the document holds."""
    words = _WORDS_A_TOKEN * (tokens - without_tokens)
    found: list[str] = []
    while sum(len(sentence.split()) for sentence in found) < words:
        found.append(filler(chance))
    return found
