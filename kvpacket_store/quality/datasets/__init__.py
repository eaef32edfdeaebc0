"""Questions with their documents and gold answers: generated, shipped, or from a file."""

from kvpacket_store.quality.datasets.catalogue import DATASETS, load_datasets, questions_of_file
from kvpacket_store.quality.datasets.dataset import DataOptions, DataSet, Skipped

__all__ = [
    "DATASETS",
    "DataOptions",
    "DataSet",
    "Skipped",
    "load_datasets",
    "questions_of_file",
]
