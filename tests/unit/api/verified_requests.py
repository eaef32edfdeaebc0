"""Requests on packets in two layers, and how tests begin them by hand."""

from kvpacket_store.api.answer import Timings
from kvpacket_store.api.request import checked_options
from kvpacket_store.api.selection import Query
from kvpacket_store.api.turns import Turns
from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps, passes Basel, and ends in a delta. " * 5, {}),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
IDS = ["rhine", "elbe"]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 30, "ignore_eos": True, "documents": IDS}


def ask(engine, **options):
    return engine.generate(QUESTION, **{**LONG, **options})


def taken():
    """Turns that another request has: nothing is fetched."""
    turns = Turns()
    assert turns.take("another")
    return turns


def begun_of(engine, policy, **options):
    """Begin a request by hand, to look between its steps."""

    chosen = checked_options(
        {"max_new_tokens": 30, "ignore_eos": True, "decode": "verified"} | options
    )
    query = Query(QUESTION, IDS, None, None, "default")
    return engine.begin(query, chosen, Timings(), policy=policy)


def keys_of(store):
    """Return the keys of all packets, in order."""
    return [packet["packet_key"] for d in DOCS for packet in store.show(d.id)["packets"]]


def failing(read, *keys):
    """Return ``read``, which cannot read the packets of these keys."""

    def reading(namespace, key, *args, **kwargs):
        if key in keys:
            raise CorruptRecordError("damaged")
        return read(namespace, key, *args, **kwargs)

    return reading
