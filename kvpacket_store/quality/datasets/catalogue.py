"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kvpacket_store.benchmarks.paragraphs import read_questions
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.quality.datasets.biographies import biographies, two_hop
from kvpacket_store.quality.datasets.code import code
from kvpacket_store.quality.datasets.dataset import DataOptions, DataSet, Skipped
from kvpacket_store.quality.datasets.novel import novel
from kvpacket_store.quality.datasets.retrieval import key_values, needles
from kvpacket_store.quality.datasets.wikipedia import natural_questions, xquad

__all__ = ["DATASETS", "load_datasets", "questions_of_file"]

_LOADERS: Mapping[str, Callable[[DataOptions], DataSet]] = {
    "xquad": xquad,
    "nq": natural_questions,
    "biographies": biographies,
    "two-hop": two_hop,
    "needles": needles,
    "key-value": key_values,
    "code": code,
    "novel": novel,
}
DATASETS = tuple(_LOADERS)


def load_datasets(
    names: Sequence[str], options: DataOptions
) -> tuple[list[DataSet], list[Skipped]]:
    """Return the data sets of these names, and those that need a file which is not here.

    Raises
    ------
    UsageError
        There is none of that name, or a file is not what it should be.

    Examples
    --------
    >>> found, skipped = load_datasets(["needles", "nq"], DataOptions(limit=2))
    >>> [(one.name, len(one.items)) for one in found], [one.name for one in skipped]
    ([('needles', 2)], ['nq'])
    """
    found: list[DataSet] = []
    skipped: list[Skipped] = []
    for name in names:
        if name not in _LOADERS:
            raise UsageError(f"no data set is named {name!r}; there are {', '.join(DATASETS)}")
        try:
            found.append(_LOADERS[name](options))
        except NotFoundError as error:
            skipped.append(Skipped(name, str(error)))
    return found, skipped


def questions_of_file(path: Path, options: DataOptions) -> DataSet:
    """Return the user's own questions: a JSONL file of ``{question, answers, documents}``.

    Raises
    ------
    UsageError
        It is not of that form, or has no question that can be measured.
    """
    try:
        items = read_questions(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name another") from error
    for number, item in enumerate(items, start=1):
        if not all(answer.strip() for answer in item.answers or [""]) or not item.documents:
            raise UsageError(f"{path} line {number} has no answer or no document; give one")
    if not items:
        raise UsageError(f"{path} has no questions; a line is {{question, answers, documents}}")
    return DataSet(path.stem, "held-out", str(path), "the user's own", items[: options.limit])
