"""Cache → tokens: options, sampling, plain decoding. Drafts and verification come beside it."""

from kvpacket_store.generate.loop import Step, decode_tokens
from kvpacket_store.generate.options import GenerationOptions
from kvpacket_store.generate.sampling import Sampler

__all__ = ["GenerationOptions", "Sampler", "Step", "decode_tokens"]
