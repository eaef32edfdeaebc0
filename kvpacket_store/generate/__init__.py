"""Cache → tokens: options, sampling, plain decoding. Drafts and verification come beside it."""

from kvpacket_store.generate.choice import Choice
from kvpacket_store.generate.lookup import LookupDraft
from kvpacket_store.generate.loop import Step, decode_tokens
from kvpacket_store.generate.options import GenerationOptions
from kvpacket_store.generate.sampling import Sampler

__all__ = [
    "Choice",
    "GenerationOptions",
    "LookupDraft",
    "Sampler",
    "Step",
    "decode_tokens",
]
