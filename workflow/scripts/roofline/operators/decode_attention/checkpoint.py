"""Weights on disk: safetensors or .npz in MiniGPT's naming or GPT-2's, read, checked against a preset, or generated.

Both keep a layer's query, key and value projections in one matrix `attn.c_attn` and the output projection in
`attn.c_proj`. GPT-2 stores them as [in, out] (its Conv1D), MiniGPT as [out, in] (nn.Linear); `c_attn` is never
square, so its shape decides.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from zipfile import ZipFile

from roofline.core.terms import Array, UserError
from roofline.operators.setting_types import Settings, Whole
from roofline.records.files import write_bytes

TENSOR_NAME_PREFIXES = ("", "transformer.", "_orig_mod.transformer.", "module.transformer.")
GENERATED_VOCABULARY = 256
GENERATED_POSITIONS = 1024
INITIAL_DEVIATION = 0.02  # GPT-2's initialisation


class Preset(Settings):
    """The numbers of layers and heads of a model, and the size of a head."""

    layers: Whole
    heads: Whole
    kv_heads: Whole | None = None  # as many as heads
    head_size: Whole

    @property
    def head_sizes(self) -> dict[str, int]:
        """The sizes of a shape that the model sets."""
        return {"heads": self.heads, "kv_heads": self.kv_heads or self.heads, "head_size": self.head_size}

    @property
    def hidden_size(self) -> int:
        return self.heads * self.head_size

    @property
    def projected_size(self) -> int:
        """Query, key and value of a token side by side, as `attn.c_attn` makes them."""
        return (self.heads + 2 * (self.kv_heads or self.heads)) * self.head_size


def preset_from(params: dict) -> Preset:
    """Return the preset whose sizes are among the params of a case or a file."""
    return Preset(**{name: params[name] for name in Preset.model_fields})


def check_checkpoint(path: Path | str, preset: Preset) -> str:
    """Check names and shapes from the header alone, without reading weights. Return the naming: gpt2 or minigpt.

    Raises UserError for a file that is missing, truncated, of another kind (a pickle, say) or of other shapes.
    """
    return _detect_naming(path, _read_header(path)[1], preset)[1]


def load_layer(path: Path | str, preset: Preset, batch: int, seed: int = 0) -> tuple[dict[str, Array], Array, str, str]:
    """Return (projections of layer 0, hidden states, naming, source of the hidden states), all arrays in fp32.

    The projections are `query` and `output`, [in, out], and their biases. The hidden states [batch, hidden] are one
    token's per sequence: token plus position embeddings after the layer's first normalisation where the file has
    them, else seeded normal numbers. Raises UserError as `check_checkpoint` does, and for weights that are not finite.
    """
    import numpy

    shapes = _read_header(path)[1]
    prefix, naming = _detect_naming(path, shapes, preset)
    size = preset.hidden_size
    names = ("h.0.attn.c_attn.weight", *_expected_shapes(size, preset.projected_size))
    stored = _read_tensors(path, [prefix + name for name in names if prefix + name in shapes])
    tensors = {name.removeprefix(prefix): values.astype(numpy.float32) for name, values in stored.items()}
    for name, values in tensors.items():
        if not numpy.isfinite(values).all():
            raise UserError(f"model.checkpoint {path}: {name} holds NaN or infinity")

    def stored_matrix(name: str) -> Array:
        weight = tensors[f"h.0.attn.{name}.weight"]
        return weight if naming == "gpt2" else weight.T

    def stored_bias(name: str) -> Array:
        return tensors.get(f"h.0.attn.{name}.bias", numpy.zeros(size, numpy.float32))[:size]

    weights = {
        "query": numpy.ascontiguousarray(stored_matrix("c_attn")[:, :size]),
        "query_bias": stored_bias("c_attn"),
        "output": numpy.ascontiguousarray(stored_matrix("c_proj")),
        "output_bias": stored_bias("c_proj"),
    }
    hidden, source = _make_hidden_states(tensors, size, batch, seed)
    return weights, hidden, naming, source


def make_checkpoint(path: Path, params: dict) -> str:
    """Write generated weights of a preset, whose sizes are in `params` with a `seed`. Return a line for the log.

    The file is in MiniGPT's naming, with all that `load_layer` reads: the embeddings, and the normalisation and
    attention of layer 0.
    """
    import numpy
    from safetensors.numpy import save

    preset, seed = preset_from(params), params["seed"]
    random, size = numpy.random.default_rng(seed), preset.hidden_size

    def normal(*shape: int) -> Array:
        return (INITIAL_DEVIATION * random.standard_normal(shape)).astype(numpy.float32)

    tensors = {
        "transformer.wte.weight": normal(GENERATED_VOCABULARY, size),
        "transformer.wpe.weight": normal(GENERATED_POSITIONS, size),
    }
    layer = "transformer.h.0."
    tensors[layer + "ln_1.weight"] = numpy.ones(size, numpy.float32)
    tensors[layer + "ln_1.bias"] = numpy.zeros(size, numpy.float32)
    tensors[layer + "attn.c_attn.weight"] = normal(preset.projected_size, size)
    tensors[layer + "attn.c_attn.bias"] = normal(preset.projected_size)
    tensors[layer + "attn.c_proj.weight"] = normal(size, size)
    tensors[layer + "attn.c_proj.bias"] = normal(size)
    # A single entry: the order of several would change from run to run, and with it the checksum of the file.
    write_bytes(save(tensors, metadata={"generated": f"seed {seed}, layer 0 of {preset.layers}"}), path)
    return f"generated weights of a layer, {preset.heads} heads of {preset.head_size}"


def is_generated(path: Path | str) -> bool:
    """Return whether `make_checkpoint` made a file, by its metadata."""
    return "generated" in _read_header(path)[0]


def _read_header(path: Path | str) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Return the metadata, and the shape of each tensor by name.

    A pickle, which can run code, is never loaded, in an .npz neither: its reader takes arrays of numbers alone.
    """
    from safetensors import safe_open

    if not Path(path).is_file():  # to open a pipe would wait for ever
        raise UserError(f"model.checkpoint {path}: no such file")
    with _faults_in_a_line(path):
        if Path(path).suffix == ".npz":
            return {}, _read_npz_shapes(path)
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            return file.metadata() or {}, {name: file.get_slice(name).get_shape() for name in names}


@contextlib.contextmanager
def _faults_in_a_line(path: Path | str) -> Iterator[None]:
    """Raise UserError for whatever safetensors, NumPy and zipfile raise as a file is read."""
    try:
        yield
    except Exception as error:
        problem = "not a safetensors or .npz file of floats (a pickle, say, damaged or encrypted)"
        raise UserError(f"model.checkpoint {path}: {problem}: {type(error).__name__}") from None


def _read_npz_shapes(path: Path | str) -> dict[str, list[int]]:
    """Return the shape of each array of an .npz, from their headers. Raises ValueError for what are no floats, as
    objects or NumPy's bf16, but the mask that GPT-2 keeps as `attn.bias`, which is not read."""
    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shapes = {}
    with ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                version = npy.read_magic(file)
                if version not in readers:
                    raise ValueError(f"{member}: version {version} of .npy")
                shape, _, dtype = readers[version](file)
                if dtype.kind != "f" and not member.endswith(".attn.bias.npy"):
                    raise ValueError(f"{member}: {dtype}, not floats")
            shapes[member.removesuffix(".npy")] = list(shape)
    return shapes


def _read_tensors(path: Path | str, names: Collection[str]) -> dict[str, Array]:
    """Return these tensors of a file as NumPy arrays, by name."""
    import ml_dtypes  # noqa: F401  (safetensors asks NumPy for bfloat16 by its name)
    import numpy
    from safetensors import safe_open

    with _faults_in_a_line(path):
        if Path(path).suffix == ".npz":
            with numpy.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in names}
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in names}


def _expected_shapes(size: int, projected: int) -> dict[str, list[int | None]]:
    """Return the tensors that are read besides layer 0's c_attn.weight, with their shapes; None allows any length."""
    return {
        "wte.weight": [None, size],
        "wpe.weight": [None, size],
        "h.0.ln_1.weight": [size],
        "h.0.ln_1.bias": [size],
        "h.0.attn.c_attn.bias": [projected],
        "h.0.attn.c_proj.weight": [size, size],
        "h.0.attn.c_proj.bias": [size],
    }


def _detect_naming(path: Path | str, shapes: dict[str, list[int]], preset: Preset) -> tuple[str, str]:
    """Return the prefix of the names, and the naming by the shape of c_attn. Raises UserError for wrong shapes."""
    size, projected = preset.hidden_size, preset.projected_size
    prefixes = [prefix for prefix in TENSOR_NAME_PREFIXES if prefix + "h.0.attn.c_attn.weight" in shapes]
    if not prefixes:
        problem = "no h.0.attn.c_attn.weight in it; allowed: MiniGPT's or GPT-2's naming"
        raise UserError(f"model.checkpoint {path}: {problem}")
    prefix = prefixes[0]
    shape_by_naming = {"gpt2": [size, projected], "minigpt": [projected, size]}
    stored_shape = shapes[prefix + "h.0.attn.c_attn.weight"]
    naming = next((name for name, shape in shape_by_naming.items() if shape == stored_shape), None)
    if naming is None:
        sharing = f" and {preset.kv_heads} K/V heads" if preset.kv_heads not in (None, preset.heads) else ""
        raise UserError(
            f"model.checkpoint {path}: h.0.attn.c_attn.weight is {stored_shape}; {preset.heads} heads{sharing} of "
            f"{preset.head_size} need {shape_by_naming['minigpt']} (MiniGPT) or {shape_by_naming['gpt2']} (GPT-2)"
        )
    layers = sum(name.startswith(prefix + "h.") and name.endswith("attn.c_attn.weight") for name in shapes)
    if layers != preset.layers and not is_generated(path):
        raise UserError(f"model.checkpoint {path}: {layers} layers, the preset has {preset.layers}")
    if prefix + "h.0.attn.c_proj.weight" not in shapes:
        raise UserError(f"model.checkpoint {path}: no h.0.attn.c_proj.weight in it")
    for name, shape in _expected_shapes(size, preset.projected_size).items():
        found_shape = shapes.get(prefix + name)
        if found_shape is not None and not _is_allowed_shape(found_shape, shape):
            allowed = str(shape).replace("None", "any")
            raise UserError(f"model.checkpoint {path}: {name} is {found_shape}; allowed: {allowed}")
    return prefix, naming


def _is_allowed_shape(stored: list[int], expected: list[int | None]) -> bool:
    """Return whether a tensor has the expected shape, where None allows any length, and is not empty."""
    if len(stored) != len(expected):
        return False
    lengths = zip(stored, expected, strict=True)
    return all(length != 0 and allowed in (None, length) for length, allowed in lengths)


def _make_hidden_states(tensors: dict[str, Array], size: int, batch: int, seed: int) -> tuple[Array, str]:
    """Return hidden states [batch, size] in fp32, and a few words on where they are from."""
    import numpy

    random = numpy.random.default_rng(seed)
    tokens, positions = tensors.get("wte.weight"), tensors.get("wpe.weight")
    if tokens is None or positions is None:
        return random.standard_normal((batch, size), numpy.float32), "seeded normal numbers (no embeddings in the file)"
    states = tokens[random.integers(len(tokens), size=batch)] + positions[random.integers(len(positions))]
    states -= states.mean(axis=1, keepdims=True)
    states /= numpy.sqrt(states.var(axis=1, keepdims=True) + 1e-5)
    scale = tensors.get("h.0.ln_1.weight", numpy.ones(size, numpy.float32))
    shift = tensors.get("h.0.ln_1.bias", numpy.zeros(size, numpy.float32))
    return states * scale + shift, "token and position embeddings, normalised"
