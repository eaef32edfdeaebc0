"""Cache → tokens: options, sampling, plain decoding, drafts and their verification."""

from kvpacket_store.generate.answering import Answering, Final, Provisional, Wait
from kvpacket_store.generate.blocks import BlockTarget, slots_for
from kvpacket_store.generate.choice import Choice
from kvpacket_store.generate.drafts import ChainDraft, Draft, KVDraft, LookupDraft, NoDraft, Rival
from kvpacket_store.generate.drive import (
    Failed,
    Finished,
    Run,
    Together,
    decode_alone,
)
from kvpacket_store.generate.horizon import Costs, FixedHorizon, Horizon
from kvpacket_store.generate.lookup import NGramIndex
from kvpacket_store.generate.model_draft import ModelDraft
from kvpacket_store.generate.options import GenerationOptions
from kvpacket_store.generate.plain import plain_decoding
from kvpacket_store.generate.sampling import Sampler
from kvpacket_store.generate.swapped import SwapTarget
from kvpacket_store.generate.targets import RowTarget, Target, VerifiedCounts
from kvpacket_store.generate.verified import verified_decoding

__all__ = [
    "Answering",
    "BlockTarget",
    "ChainDraft",
    "Choice",
    "Costs",
    "Draft",
    "Failed",
    "Final",
    "Finished",
    "FixedHorizon",
    "GenerationOptions",
    "Horizon",
    "KVDraft",
    "LookupDraft",
    "ModelDraft",
    "NGramIndex",
    "NoDraft",
    "Provisional",
    "Rival",
    "RowTarget",
    "Run",
    "Sampler",
    "SwapTarget",
    "Target",
    "Together",
    "VerifiedCounts",
    "Wait",
    "decode_alone",
    "plain_decoding",
    "slots_for",
    "verified_decoding",
]
