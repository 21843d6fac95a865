"""Weights on disk: safetensors in MiniGPT's naming or in GPT-2's, read, checked against a preset, or generated.

Both keep a layer's query, key and value projections in one matrix `attn.c_attn` and the output projection in
`attn.c_proj`. GPT-2 stores them as [in, out] (its Conv1D), MiniGPT as [out, in] (nn.Linear); `c_attn` is never
square, so its shape decides.
"""

from pathlib import Path

from roofline.core.terms import UserError
from roofline.operators.setting_types import Settings, Whole

PREFIXES = ("", "transformer.", "_orig_mod.transformer.", "module.transformer.")
GENERATED_VOCABULARY = 256
GENERATED_POSITIONS = 1024
INITIAL_DEVIATION = 0.02  # GPT-2's initialisation


class Preset(Settings):
    """A model's layers and heads."""

    layers: Whole
    heads: Whole
    kv_heads: Whole | None = None  # as many as heads
    head_size: Whole

    @property
    def hidden_size(self) -> int:
        return self.heads * self.head_size

    @property
    def projected_size(self) -> int:
        """Query, key and value of a token side by side, as `attn.c_attn` makes them."""
        return (self.heads + 2 * (self.kv_heads or self.heads)) * self.head_size


def check_checkpoint(path: Path | str, preset: Preset) -> str:
    """Check names and shapes from the header alone, without reading weights. Returns the naming.

    Raises UserError for a file that is missing, truncated, not safetensors (a pickle, say) or of other shapes.
    """
    return _detect_naming(path, _read_header(path)[1], preset)[1]


def load_layer(path: Path | str, preset: Preset, batch: int, *, layer: int = 0, seed: int = 0):
    """Query and output projections of one layer as [in, out] fp32 arrays, and one token's hidden state a sequence.

    The hidden states [batch, hidden] are token plus position embeddings after the layer's first normalisation,
    where the file has them; else seeded normal numbers. Returns (layer dict, hidden, naming, where hidden is from).
    """
    import ml_dtypes  # noqa: F401  (safetensors asks NumPy for bfloat16 by its name)
    import numpy
    from safetensors import safe_open

    shapes = _read_header(path)[1]
    prefix, naming = _detect_naming(path, shapes, preset)
    size = preset.hidden_size
    with safe_open(path, framework="numpy") as file:
        names = (f"h.{layer}.attn.c_attn.weight", *_expected_shapes(layer, size, preset.projected_size))
        there = [name for name in names if prefix + name in shapes]
        tensors = {name: file.get_tensor(prefix + name).astype(numpy.float32) for name in there}
    for name, values in tensors.items():
        if not numpy.isfinite(values).all():
            raise UserError(f"model.checkpoint {path}: {name} holds NaN or infinity")

    def matrix(key):
        stored = tensors[f"h.{layer}.attn.{key}.weight"]
        return stored if naming == "gpt2" else stored.T

    def bias(key):
        return tensors.get(f"h.{layer}.attn.{key}.bias", numpy.zeros(size, numpy.float32))[:size]

    weights = {
        "query": numpy.ascontiguousarray(matrix("c_attn")[:, :size]),
        "query_bias": bias("c_attn"),
        "output": numpy.ascontiguousarray(matrix("c_proj")),
        "output_bias": bias("c_proj"),
    }
    hidden, source = _make_hidden_states(tensors, layer, size, batch, seed)
    return weights, hidden, naming, source


def make_checkpoint(path: Path, params: dict) -> str:
    """Generate the weights of a preset, whose sizes stand in `params` next to a seed. Returns what to say of them."""
    sizes = dict(params)
    seed = sizes.pop("seed")
    preset = Preset(**sizes)
    write_generated(path, preset, seed)
    return f"generated weights of a layer, {preset.heads} heads of {preset.head_size}"


def write_generated(path: Path | str, preset: Preset, seed: int) -> None:
    """Write a seeded checkpoint in MiniGPT's naming: embeddings, and the one layer's normalisation and attention that
    is read."""
    import numpy
    from safetensors.numpy import save_file

    random = numpy.random.default_rng(seed)
    size = preset.hidden_size

    def normal(*shape):
        return (INITIAL_DEVIATION * random.standard_normal(shape)).astype(numpy.float32)

    tensors = {
        "transformer.wte.weight": normal(GENERATED_VOCABULARY, size),
        "transformer.wpe.weight": normal(GENERATED_POSITIONS, size),
    }
    name = "transformer.h.0."
    tensors[name + "ln_1.weight"] = numpy.ones(size, numpy.float32)
    tensors[name + "ln_1.bias"] = numpy.zeros(size, numpy.float32)
    tensors[name + "attn.c_attn.weight"] = normal(preset.projected_size, size)
    tensors[name + "attn.c_attn.bias"] = normal(preset.projected_size)
    tensors[name + "attn.c_proj.weight"] = normal(size, size)
    tensors[name + "attn.c_proj.bias"] = normal(size)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    # One entry alone: of several the order, and so the file's checksum, would change from run to run.
    save_file(tensors, temporary, metadata={"generated": f"seed {seed}, layer 0 of {preset.layers}"})
    temporary.rename(path)


def is_generated(path: Path | str) -> bool:
    return "generated" in _read_header(path)[0]


def _read_header(path: Path | str) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Metadata, and the shape of each tensor. Only safetensors' own reader opens the file: no pickle is ever loaded."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():  # to open a pipe would wait for ever
        raise UserError(f"model.checkpoint {path}: no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            return file.metadata() or {}, {name: file.get_slice(name).get_shape() for name in names}
    except (OSError, SafetensorError):
        raise UserError(f"model.checkpoint {path}: not a safetensors file (a pickle, or truncated)") from None


def _expected_shapes(layer: int, size: int, projected: int) -> dict[str, list[int | None]]:
    """What is read next to the layer's c_attn.weight, with its shape; None for a length that may be any."""
    return {
        "wte.weight": [None, size],
        "wpe.weight": [None, size],
        f"h.{layer}.ln_1.weight": [size],
        f"h.{layer}.ln_1.bias": [size],
        f"h.{layer}.attn.c_attn.bias": [projected],
        f"h.{layer}.attn.c_proj.weight": [size, size],
        f"h.{layer}.attn.c_proj.bias": [size],
    }


def _detect_naming(path: Path | str, shapes: dict, preset: Preset) -> tuple[str, str]:
    size, projected = preset.hidden_size, preset.projected_size
    prefix = next((p for p in PREFIXES if p + "h.0.attn.c_attn.weight" in shapes), None)
    if prefix is None:
        raise UserError(
            f"model.checkpoint {path}: no h.0.attn.c_attn.weight in it; allowed: MiniGPT's or GPT-2's naming"
        )
    wanted = {"gpt2": [size, projected], "minigpt": [projected, size]}
    found = shapes[prefix + "h.0.attn.c_attn.weight"]
    naming = next((name for name, shape in wanted.items() if shape == found), None)
    if naming is None:
        sharing = f" and {preset.kv_heads} K/V heads" if preset.kv_heads not in (None, preset.heads) else ""
        raise UserError(
            f"model.checkpoint {path}: h.0.attn.c_attn.weight is {found}; {preset.heads} heads{sharing} of "
            f"{preset.head_size} need {wanted['minigpt']} (MiniGPT) or {wanted['gpt2']} (GPT-2)"
        )
    layers = sum(name.startswith(prefix + "h.") and name.endswith("attn.c_attn.weight") for name in shapes)
    if layers != preset.layers and not is_generated(path):
        raise UserError(f"model.checkpoint {path}: {layers} layers, the preset has {preset.layers}")
    if prefix + "h.0.attn.c_proj.weight" not in shapes:
        raise UserError(f"model.checkpoint {path}: no h.0.attn.c_proj.weight in it")
    for name, shape in _expected_shapes(0, size, preset.projected_size).items():
        found = shapes.get(prefix + name, shape)
        if len(found) != len(shape) or any(a == 0 or b not in (None, a) for a, b in zip(found, shape, strict=True)):
            allowed = str(shape).replace("None", "any")
            raise UserError(f"model.checkpoint {path}: {name} is {found}; allowed: {allowed}")
    return prefix, naming


def _make_hidden_states(tensors: dict, layer: int, size: int, batch: int, seed: int):
    import numpy

    random = numpy.random.default_rng(seed)
    tokens, positions = tensors.get("wte.weight"), tensors.get("wpe.weight")
    if tokens is None or positions is None:
        return random.standard_normal((batch, size), numpy.float32), "seeded normal numbers (no embeddings in the file)"
    states = tokens[random.integers(len(tokens), size=batch)] + positions[random.integers(len(positions))]
    states -= states.mean(axis=1, keepdims=True)
    states /= numpy.sqrt(states.var(axis=1, keepdims=True) + 1e-5)
    scale = tensors.get(f"h.{layer}.ln_1.weight", numpy.ones(size, numpy.float32))
    shift = tensors.get(f"h.{layer}.ln_1.bias", numpy.zeros(size, numpy.float32))
    return states * scale + shift, "token and position embeddings, normalised"
