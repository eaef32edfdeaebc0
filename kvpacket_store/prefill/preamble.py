"""The adapter that needs no training: every segment is prefilled behind the prompt's preamble.

The first tokens of a text draw the attention that a model wants to spend on nothing. A segment that
was prefilled alone has such a sink of its own; behind the preamble it has none, as in a joint
prefill (shared prefix: APE, arXiv:2502.05431, section 3.2). The preamble's K and V are in every
prompt once, so the header is left behind.
"""

from __future__ import annotations

from kvpacket_store.adapters import Adapter
from kvpacket_store.models import Model, PromptFormat

__all__ = ["preamble_adapter"]


def preamble_adapter(model: Model) -> Adapter:
    """Return the preamble's embeddings as a header that is left behind, and no trailer.

    Parameters
    ----------
    model : Model
        Its tokenizer decides the preamble: BOS and system prompt, as it has them.
    """
    ids = PromptFormat(model.tokenizer).preamble_ids
    header = model.embed(ids).detach().float().cpu().numpy()
    return Adapter("preamble", header, header[:0].copy(), header_stays=False)
