"""What a child does in `test_fault_training_kill.py`: train on a tiny model, and die where told."""

import os
import runpy
import signal
from pathlib import Path

from kvpacket_store import durable
from kvpacket_store.training import TrainOptions, gather, train_adapter

fixtures = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))

OPTIONS = TrainOptions(
    header="soft",
    num_tokens=2,
    steps=3,
    batch=1,
    samples=3,
    validation_samples=1,
    questions=1,
    max_packets=2,
    sample_tokens=800,
    answer_tokens=4,
    validate_every=2,
)


def main(connection, texts, folder, die_at=None):
    """Train, or go on. ``die_at``: in which ``sync`` of a checkpoint's writing to be killed."""
    if die_at is not None:
        _die_at(die_at, Path(folder))
    corpus = gather(paths=[str(texts)])
    resume = (Path(folder) / "checkpoint.safetensors").exists()
    model = fixtures["make_model"]("llama")
    report = train_adapter(model, corpus, folder, OPTIONS, resume=resume)
    connection.send(report.digest)


def _die_at(number, folder):
    true_sync, calls = durable.sync, []

    def sync(path):
        if path.name.startswith(".checkpoint") or path == folder:  # answers lie elsewhere
            calls.append(path)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        true_sync(path)

    durable.sync = sync


if __name__ == "__work__":
    main(*globals()["job"])
