"""Teacher answers on disk: one file a sample, named by everything that decides what is in it.

A run with another learning rate, or a resumed one, pays for them once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from kvpacket_store.durable import written_whole
from kvpacket_store.models import Model
from kvpacket_store.training.samples import Sample
from kvpacket_store.training.teacher import Answer, Teacher

__all__ = ["CachedTeacher"]

_VERSION = "1"


class CachedTeacher:
    """A teacher that writes its answers down. What cannot be read back is answered again.

    Parameters
    ----------
    teacher : Teacher
        Answers what is not there yet.
    folder : Path
        Made where it is not there.
    """

    def __init__(self, teacher: Teacher, folder: Path) -> None:
        self._teacher = teacher
        self._folder = folder
        self._setting = _setting(teacher, teacher.model)
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, sample: Sample) -> list[Answer]:
        """Return one answer a question.

        Raises
        ------
        OSError
            The answers cannot be written.
        """
        name = hashlib.sha256(f"{self._setting}|{sample.digest}".encode()).hexdigest()[:32]
        path = self._folder / f"{name}.safetensors"
        found = _read(path, len(sample.questions))
        if found is None:
            found = self._teacher.answers(sample)
            _write(path, found)
        return found


def _setting(teacher: Teacher, model: Model) -> str:
    """Name what decides an answer besides the sample, the dtype that computes included."""
    fingerprint = sorted(model.fingerprint.to_dict().items())
    return (
        f"{_VERSION}|{fingerprint}|{model.dtype}|{model.device.type}|{teacher.answer_tokens}|"
        f"{teacher.top_k}"
    )


def _write(path: Path, answers: list[Answer]) -> None:
    """Write answers, whole or not at all; a power cut costs them and nothing else."""
    tensors: dict[str, torch.Tensor] = {}
    for i, answer in enumerate(answers):
        tensors[f"{i}.token_ids"] = torch.tensor(answer.token_ids)
        tensors[f"{i}.top_ids"] = answer.top_ids
        tensors[f"{i}.top_logp"] = answer.top_logp
    try:
        with written_whole(path) as scratch:
            save_file(tensors, scratch)
    except SafetensorError as error:  # it wraps what the disk said
        raise OSError(f"{path} cannot be written: {error}") from error


def _read(path: Path, count: int) -> list[Answer] | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return [
                Answer(
                    tuple(file.get_tensor(f"{i}.token_ids").tolist()),
                    file.get_tensor(f"{i}.top_ids"),
                    file.get_tensor(f"{i}.top_logp"),
                )
                for i in range(count)
            ]
    except (SafetensorError, OSError, ValueError):
        return None
