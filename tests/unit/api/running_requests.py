"""Requests that run together, and what each of them hears."""

from verified_requests import DOCS, IDS, QUESTION

from kvpacket_store.api import Engine
from kvpacket_store.api.request import new_request

ASKED = {"documents": ["elbe"], "ignore_eos": True}
MANY = [
    {**ASKED, "max_new_tokens": 20},
    {**ASKED, "max_new_tokens": 3, "temperature": 0.9, "seed": 4},
    {"documents": IDS, "max_new_tokens": 12, "temperature": 1.3, "seed": 1, "ignore_eos": True},
    {**ASKED, "max_new_tokens": 9, "exactness": "bit"},
    {**ASKED, "max_new_tokens": 16, "decode": "verified", "compressor": "int8", "draft_tokens": 3},
    {"documents": [], "max_new_tokens": 7, "ignore_eos": True},
]


class Heard:
    """What one request was told."""

    def __init__(self, running, question=QUESTION, **asked):
        self.pieces, self.error = [], None
        self.request = new_request(question, **asked)
        running.add(self.request, self)

    def __call__(self, given):
        assert not self.is_over, "an end is told once"
        if isinstance(given, Exception):
            self.error = given
        else:
            self.pieces.append(given)

    @property
    def answer(self):
        return self.pieces[-1].answer if self.pieces else None

    @property
    def is_over(self):
        return self.error is not None or self.answer is not None

    @property
    def text(self):
        return "".join(piece.text for piece in self.pieces if not piece.provisional)


def run_out(running):
    while running.num_unfinished:
        running.step()


def engine_of(new_store, kind="llama", **options):
    store = new_store(kind, segment_tokens=64)
    store.ingest(DOCS)
    return Engine(store, **options)


def swapping(new_store, pack_of):
    store = new_store(
        codec="linear", layers=None, kv_dtype="bf16", codec_pack=pack_of(), segment_tokens=64
    )
    store.ingest(DOCS)
    return Engine(store, memory_bytes=0)
