"""The fields of a config.json: each is read once, checked, and taken from the family's defaults where it is missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from roofline.api import listed

LARGEST = 1 << 40  # beyond it nothing real comes, and products of several stay exact

# Of no cost in a decode step, or not counted by the bound (README.md).
_FREE = """
    _attn_implementation _name_or_path activation_function add_cross_attention architectures attention_dropout
    attn_implementation attn_pdrop auto_map aux_loss_alpha bos_token_id embd_pdrop embedding_dropout eos_token_id
    ep_size experts_per_token finetuning_task hidden_act hidden_activation hidden_dropout id2label
    initial_context_length initializer_range is_decoder is_encoder_decoder label2id layer_norm_epsilon mlp_dropout
    n_group norm_topk_prob
    num_nextn_predict_layers num_mtp_layers original_max_position_embeddings output_attentions output_hidden_states
    output_router_logits pad_token_id pretraining_tp reorder_and_upcast_attn resid_pdrop return_dict rms_norm_eps
    rope_interleave rope_parameters rope_scaling rope_theta routed_scaling_factor router_aux_loss_coef
    model_type router_jitter_noise scale_attn_by_inverse_layer_idx scale_attn_weights scoring_func seq_aux
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj swiglu_alpha
    swiglu_limit task_specific_params topk_group topk_method transformers_version unk_token_id unsloth_fixed
    unsloth_version use_cache use_mrope n_ctx
"""
FREE = frozenset(_FREE.split())


class BadModel(ValueError):
    """What is wrong with a model's config, in one line."""


class Fields:
    """`given` as the file has it; `aliases` are the names that a family has for others."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any], aliases: Mapping[str, str] | None = None):
        names = aliases or {}
        self._given = {names.get(key, key): value for key, value in given.items()}
        self._shown = {ours: theirs for theirs, ours in names.items() if theirs in given}
        self._defaults, self._read = defaults, set()
        self.assumed: dict[str, str] = {}

    def whole(self, name: str, least: int = 1) -> int:
        """A whole number. Raises BadModel, as all of these do."""
        value = self.optional(name, least)
        if value is None:
            raise BadModel(f"{self._name(name)} is missing")
        return value

    def optional(self, name: str, least: int = 1) -> int | None:
        value = self._value(name)
        if value is None:
            return None
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not least <= value <= LARGEST:
            raise BadModel(f"{self._name(name)}: {_shown(value)}; allowed: a whole number of {least} or more")
        return int(value)

    def flag(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            raise BadModel(f"{self._name(name)}: {_shown(value)}; allowed: true or false")
        return value

    def word(self, name: str, allowed: Sequence[str]) -> str:
        value = self._value(name)
        if value not in allowed:
            raise BadModel(f"{self._name(name)}: {_shown(value)} is unknown; allowed: {', '.join(allowed)}")
        return value

    def listed(self, name: str, allowed: Sequence, count: int | None = None) -> list | None:
        """A list of these values; with `count`, of that many."""
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, list) or count not in (None, len(value)) or not all(one in allowed for one in value):
            what = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(allowed)
            raise BadModel(f"{self._name(name)}: {_shown(value)}; allowed: a list of {count or 'some'} of {what}")
        return value

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self._value(name)
        if value is not None and not isinstance(value, Mapping):
            raise BadModel(f"{self._name(name)}: {_shown(value)}; allowed: a mapping")
        return value

    def require_nothing_else(self) -> None:
        """Raises BadModel for fields that were not read and are not known to be free."""
        left = [_printable(self._name(name)) for name in self._given if name not in self._read | FREE]
        if left:
            raise BadModel(
                f"{listed(left)}: what this costs is not known, so the floor would be wrong; "
                "remove it if it costs nothing"
            )

    def _value(self, name: str) -> Any:
        self._read.add(name)
        if name in self._given:  # null too: it says that there is none
            return self._given[name]
        value = self._defaults.get(name)
        if value is not None:
            self.assumed[name] = str(value)
        return value

    def _name(self, name: str) -> str:
        return self._shown.get(name, name)


def _printable(name: Any) -> str:
    return name if isinstance(name, str) and name.isprintable() else _shown(name)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
