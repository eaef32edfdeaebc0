"""A data set as a value, and what can be asked of one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.errors import NotFoundError
from kvpacket_store.types import Document

__all__ = ["DataOptions", "DataSet", "Skipped", "among", "find_file"]

T = TypeVar("T")
HELD_OUT, IN_DOMAIN = "held-out", "in-domain"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Items of one origin.

    Parameters
    ----------
    name : str
        As `load_datasets` knows it.
    domain : str
        ``held-out``, or ``in-domain`` where shipped adapters are trained on the same origin.
    source, licence : str
        Of the texts.
    items : list of QuestionItem
        Not more than were asked for.
    """

    name: str
    domain: str
    source: str
    licence: str
    items: list[QuestionItem]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A data set that is not here, and what would bring it."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DataOptions:
    """What to ask of a data set.

    Parameters
    ----------
    limit : int
        Most items.
    packets : int or None
        Documents an item; None: as many as is usual for the set.
    document_tokens : int or None
        About how long a document is, where it is generated or cut; None: as is usual.
    seed : int
        Equal seeds give equal items.
    folder : Path or None
        Where files are looked for.
    """

    limit: int = 12
    packets: int | None = None
    document_tokens: int | None = None
    seed: int = 0
    folder: Path | None = None

    def random(self, name: str, index: int) -> random.Random:
        """Return the randomness of one item: the same however many are asked for."""
        return random.Random(f"{self.seed}/{name}/{index}")  # noqa: S311 - no secret

    def drawn(self, name: str, candidates: Sequence[T]) -> list[T]:
        """Return ``limit`` different candidates, in an order that the seed decides."""
        order = list(candidates)
        random.Random(f"{self.seed}/{name}").shuffle(order)  # noqa: S311 - no secret
        return order[: self.limit]


def among(
    wanted: Sequence[Document], others: Sequence[Document], count: int, chance: random.Random
) -> list[Document]:
    """Return ``wanted`` in any places among others, ``count`` documents in all.

    Fewer than ``count`` where there are not so many; never without what is wanted.
    """
    room = max(0, count - len(wanted))
    pool = [document for document in others if document not in wanted]
    chosen = [*wanted, *chance.sample(pool, min(room, len(pool)))]
    chance.shuffle(chosen)
    return chosen


def find_file(options: DataOptions, names: Sequence[str]) -> Path:
    """Return the first of these files that is in the data folder, or below it.

    Raises
    ------
    NotFoundError
        None is; says which to give.
    """
    folder = options.folder
    if folder is not None:
        for name in names:
            for found in (folder / name, *sorted(folder.glob(f"*/{name}"))):
                if found.is_file():
                    return found
    where = "--data-folder names no folder" if folder is None else f"{folder} has none"
    raise NotFoundError(f"{where}; put {' or '.join(names)} there")
