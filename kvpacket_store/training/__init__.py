"""Training adapters by self-distillation: packets learn to answer as the whole text does."""

from kvpacket_store.training.correct import CorrectionReport, correct_adapter
from kvpacket_store.training.options import TrainOptions
from kvpacket_store.training.report import TrainingReport
from kvpacket_store.training.sources import Corpus, gather
from kvpacket_store.training.train import train_adapter
from kvpacket_store.training.trainer import Progress

__all__ = [
    "Corpus",
    "CorrectionReport",
    "Progress",
    "TrainOptions",
    "TrainingReport",
    "correct_adapter",
    "gather",
    "train_adapter",
]
