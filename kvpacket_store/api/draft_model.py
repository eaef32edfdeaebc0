"""A smaller model that drafts for a store's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from kvpacket_store.api.costs import costs_of_model
from kvpacket_store.errors import ModelError
from kvpacket_store.generate import FixedHorizon, GenerationOptions, Horizon, ModelDraft
from kvpacket_store.models import Model, RowWork, load_model
from kvpacket_store.types import TokenIds

__all__ = ["DraftModel"]

_ACCEPTED_SHARE = 0.7  # to begin with, unmeasured: published pairs of one family have 0.6 to 0.8


class DraftModel:
    """Makes drafts by one model for the requests of another.

    Parameters
    ----------
    model : str or Model
        Loaded here if it is named.
    target : Model
        Whose tokens it proposes. The two then run one at a time.

    Raises
    ------
    ModelError
        It cannot be loaded, or its tokenizer is another.
    """

    def __init__(self, model: str | Model, target: Model) -> None:
        self._model = load_model(model) if isinstance(model, str) else model
        self._target = target
        if self._model.tokenizer.digest != target.tokenizer.digest:
            raise ModelError(
                f"draft model {self._model.name!r} has another tokenizer than {target.name!r}, so "
                "its tokens mean other text; take a smaller model of the same family"
            )
        self._model.take_turns_with(target)
        self._own_run = self._model.row_forward()
        self._vocabulary = int(target.embedding.weight.shape[0])
        self._fitted_run = self._run  # one object: requests that have the same share its passes

    def draft(
        self, prompt_ids: TokenIds, prompt_slots: int, options: GenerationOptions
    ) -> ModelDraft:
        """Return what drafts for one request.

        Parameters
        ----------
        prompt_ids : token ids
            The prompt without soft tokens.
        prompt_slots : int
            Of the prompt on the target.
        options : GenerationOptions
            How far to draft, and for how long.
        """
        horizon: Horizon | FixedHorizon
        if options.draft_tokens is not None:
            horizon = FixedHorizon(options.draft_tokens)
        else:
            costs = costs_of_model(self._target, self._model, prompt_slots, len(prompt_ids))
            always = options.decode == "verified"
            horizon = Horizon(costs, start=_ACCEPTED_SHARE, always=always)
        return ModelDraft(
            self._model, self._fitted_run, prompt_ids, options.max_new_tokens, horizon
        )

    def _run(self, works: Sequence[RowWork]) -> list[torch.Tensor]:
        return [_fitted(logits, self._vocabulary) for logits in self._own_run(works)]


def _fitted(logits: torch.Tensor, width: int) -> torch.Tensor:
    """Return logits ``[n, vocab]`` as wide as the target's; models pad vocabularies differently.

    Examples
    --------
    >>> _fitted(torch.zeros(1, 4), 3).shape, _fitted(torch.zeros(1, 2), 3).argmin().item()
    (torch.Size([1, 3]), 2)
    """
    missing = width - logits.shape[-1]
    if missing <= 0:
        return logits[..., :width]
    return functional.pad(logits, (0, missing), value=torch.finfo(logits.dtype).min)
