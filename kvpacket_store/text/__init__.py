"""Text ↔ tokens, and documents to segments.

In come files, folders, JSONL and strings; out come segments, each tokenized alone. Nothing here
knows models: the tokenizer is a protocol that the room of models fills.
"""

from kvpacket_store.text.documents import read_documents
from kvpacket_store.text.questions import QuestionItem, read_questions
from kvpacket_store.text.records import document_from_record
from kvpacket_store.text.segment import segment_document
from kvpacket_store.text.sentences import sentence_spans
from kvpacket_store.text.stops import StopMatcher
from kvpacket_store.text.stream import TextStream
from kvpacket_store.text.tokenizer import Tokenizer

__all__ = [
    "QuestionItem",
    "StopMatcher",
    "TextStream",
    "Tokenizer",
    "document_from_record",
    "read_documents",
    "read_questions",
    "segment_document",
    "sentence_spans",
]
