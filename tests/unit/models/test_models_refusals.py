"""What is not supported is refused, and the error names the reason."""

import pytest
from transformers import (
    DeepseekV3Config,
    Gemma3Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    Phi3Config,
    Qwen2VLConfig,
    Qwen3NextConfig,
    T5Config,
)

from kvpacket_store.errors import ModelError, UnsupportedModelError
from kvpacket_store.models import load_model
from kvpacket_store.models.families import refuse_unsupported

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 48,
    "long_factor": [2.0] * 48,
    "original_max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (DeepseekV3Config(), "latent"),
        (MambaConfig(), "recurrent"),
        (Qwen3NextConfig(), "linear"),
        (Qwen2VLConfig(), "multimodal"),
        (Gemma3Config(), "multimodal"),
        (T5Config(), "encoder-decoder"),
        (GPT2Config(), "supported are"),
        (LlamaConfig(rope_parameters=DYNAMIC), "dynamic"),
        (Phi3Config(rope_parameters=LONG, max_position_embeddings=8192), "longrope"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_unsupported_models_are_refused_by_name(config, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        refuse_unsupported(config)


def test_a_folder_without_a_config_says_so(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(str(tmp_path))


def test_an_unreadable_config_says_so(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="neither a preset"):
        load_model(str(tmp_path))


def test_a_folder_without_weights_says_so(tmp_path, tiny_config):
    tiny_config("llama").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="could not be loaded"):
        load_model(str(tmp_path))
