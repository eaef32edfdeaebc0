"""What a child does in `test_fault_ingest_kill.py`: ingest batch after batch with a tiny model."""

import os
import runpy
import signal
from pathlib import Path

from kvpacket_store.api import Store, ingest, ingest_writer
from kvpacket_store.store import PacketStore

fixtures = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))


def main(connection, path, batches, die_after=None):
    """Ingest the batches, and say so after each. ``die_after``: a method and how many calls."""
    ingest._GROUP_DOCUMENTS = 2
    ingest._GROUP_TOKENS = 48  # several groups a batch, and packets that wait for their document
    ingest_writer._STAGED_BYTES = 1
    if die_after is not None:
        _die_after(*die_after)
    model, embedder = fixtures["make_model"]("llama"), fixtures["WordEmbedder"]()
    with Store.open(path, model=model, embedder=embedder) as store:
        connection.send("open")
        for number, batch in enumerate(batches):
            store.ingest(batch)
            connection.send(number)


def _die_after(name, num_calls):
    method, left = getattr(PacketStore, name), [num_calls]

    def dying(*arguments, **options):
        method(*arguments, **options)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(PacketStore, name, dying)


if __name__ == "__work__":
    main(*globals()["job"])
