"""NumPy behind the names of CuPy that this project uses, and no others; events read the host's clock.

Kernels are looked up in the source that is given and launched with arguments of its signature alone. What each does is
written here in NumPy, without blocks and threads: by the project's own reference where there is one.

The environment makes a card of it: FAKE_RATES, in JSON, what it reaches (see RATES), and then events read a clock that
only its work moves on; FAKE_MULTIPROCESSORS; FAKE_MHZ; FAKE_FLIPS=n, a bit of every n-th product by matmul.
"""

import ctypes
import itertools
import json
import os
import re
import sys
import time
import weakref
from collections import defaultdict, deque
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy
import threadpoolctl

from cupy import random_numbers
from roofline.core.dtypes import DTYPES, PRODUCT_DTYPES
from roofline.devices.gpu import gpu_fma, instruction_kernels
from roofline.devices.gpu.cuda_timing import CudaTimer

__version__ = "14.2.0"

if "pytest" not in sys.modules:
    time.sleep = lambda seconds: None  # a job's rests: nothing here grows hot


threadpoolctl.threadpool_limits(1, "blas")  # of small products; several tests run at once


class ndarray(numpy.ndarray):
    @property
    def data(self):
        return _Memory(self)


AT_ADDRESS = weakref.WeakValueDictionary()  # whose address was asked for last, as CUDA's driver finds it again


class _Memory:
    def __init__(self, array):
        assert array.flags.c_contiguous
        self._array, self.ptr = array, array.ctypes.data
        AT_ADDRESS[self.ptr] = array

    def copy_from_device_async(self, source, size, stream):
        ctypes.memmove(self.ptr, source.ptr, size)

    def memset_async(self, value, size, stream):
        assert size <= self._array.nbytes
        ctypes.memset(self.ptr, value, size)


def _of_the_device(function):
    return lambda *args, **kwargs: numpy.asarray(function(*args, **kwargs)).view(ndarray)


empty, zeros, asarray = map(_of_the_device, (numpy.empty, numpy.zeros, numpy.asarray))
empty_like, zeros_like = map(_of_the_device, (numpy.empty_like, numpy.zeros_like))


ascontiguousarray = numpy.ascontiguousarray


def asnumpy(array):
    return numpy.array(array, copy=True).view(numpy.ndarray)


float32, float64, uint32, uint64 = numpy.float32, numpy.float64, numpy.uint32, numpy.uint64
exp, subtract, where, isfinite = numpy.exp, numpy.subtract, numpy.where, numpy.isfinite


def matmul(left, right, out=None):
    """Sums are wider than the operands, as cuBLAS keeps them."""
    if left.ndim > 2 and left.dtype == ml_dtypes.bfloat16:
        raise TypeError("CuPy multiplies no stacks of bf16 matrices")
    wide = numpy.float64 if left.dtype == numpy.float64 else numpy.float32
    product = numpy.matmul(left.astype(wide), right.astype(wide)).astype(left.dtype).view(ndarray)
    took(left.dtype.name, 2 * left.size * right.shape[-1])
    if FLIPS and next(MULTIPLIED) % FLIPS == 0:
        product.reshape(-1)[:1].view(numpy.uint8)[0] ^= 1
    if out is None:
        return product
    out[...] = product
    return out


TYPES = {  # of arrays only the size of the items is compared
    "Vector": "uint32",
    "unsigned int": "uint32",
    "unsigned long long": "uint64",
    "float": "float32",
    "double": "float64",
    "__half2": "float16",
    "__half": "float16",
    "unsigned short": "uint16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "int": "int32",
    "Fp32::stored": "float32",
    "Fp16::stored": "float16",
    "Bf16::stored": "float16",
    "half_bits": "float16",
    "u32": "float16",
    "u64": "uint64",
    "uint4": "float16",
    "TensorMap": "V128",
    "Shape": "V16",
    "Tensors": "V16",
}
BOUNDS = r"(?:(?:__(?:launch_bounds|cluster_dims)__\([^)]*\)|CLUSTER_DIMENSIONS)\s+)*"
SIGNATURE = re.compile(rf'extern "C" __global__ void\s+{BOUNDS}(\w+?)(?:##(?:DEPTH|BLOCKS))?\(([^)]*)\)')
DEPTHS = re.compile(r"^(?:AT_DEPTH|READ_CLUSTER)\((\d+)\)$", re.MULTILINE)
WORDS_A_VECTOR = 4
UNSEEN_PRODUCT = 5 << 30  # multiply-adds of a product that is not compared: the one before an all-reduce
CHUNK = 1 << 16  # items that stay in a cache with their temporaries
DISTINCT = (1 << 20) - 3  # random numbers, which larger arrays repeat
MHZ, MARKED = int(os.environ.get("FAKE_MHZ", "1980")), itertools.count(1)
FLIPS, MULTIPLIED = int(os.environ.get("FAKE_FLIPS", "0")), itertools.count(1)

# GB/s of read, write, copy, triad and link, TFLOPS of fma and of products by the names of their arrays' types.
RATES = json.loads(os.environ.get("FAKE_RATES", "{}"))
SHOWN_THREADS = 1 << 16  # of which results are looked at: no more are computed
WORKED_S, LOAD_S = [0.0], 6e-7  # by a card whose rates are known; for one load that waits for the one before
CudaTimer.measure_timer_ratio = lambda self: 1.0  # the clock of its events is its own
if RATES:  # its steps are as long as that says, not as NumPy takes for them
    gpu_fma.time = SimpleNamespace(perf_counter=lambda: WORKED_S[0])


def took(what, work):
    """So many bytes or FLOPs of a kind."""
    WORKED_S[0] += work / (RATES[what] * (1e9 if what in BYTES else 1e12)) if what in RATES else 1e-6


BYTES = {"read": 1, "write": 1, "copy": 2, "triad": 3, "link": 1}  # arrays


class RawModule:
    def __init__(self, *, path):
        code, *options = json.loads(Path(path).read_text())
        text = code.replace("\\\n", "\n")
        self.signatures: dict[str, list] = {}  # of each kernel those of all its architectures
        macros = (option[2:].partition("=") for option in options if option.startswith("-D"))
        self._defines = {name: value or "1" for name, _, value in macros}
        for name, parameters in SIGNATURE.findall(text):
            parameters = re.sub(r"\bDTYPE\b", self._defines.get("DTYPE", "Fp16"), parameters)
            depths = DEPTHS.findall(text) if name.endswith("_") else [""]
            for depth in depths:
                signature = [_parameter(one) for one in parameters.split(",")]
                self.signatures.setdefault(name + depth, []).append(signature)
        self._hopper = "-arch=sm_90a" in options

    def get_function(self, name):
        """On Hopper, of several of this name, the one that takes tensor maps."""
        by_maps = {any(kind == "TensorMap" for kind, *_ in one): one for one in self.signatures[name]}
        return _Kernel(name, by_maps.get(self._hopper, self.signatures[name][-1]), self._defines)


QUALIFIERS = ("const", "volatile", "__grid_constant__")


def _parameter(text):
    """(type, whether it is a pointer, name) of `const volatile float* x`."""
    plain = " ".join(text.replace("__restrict__", "").replace("TensorMap&", "TensorMap").split())
    kind, star, name = re.fullmatch(r"([\w: ]+?)(\*?) (\w+)", plain).groups()
    return " ".join(word for word in kind.split() if word not in QUALIFIERS), bool(star), name


BY_HANDLE = weakref.WeakValueDictionary()  # kernels, as CUDA's driver knows them


class _Kernel:
    max_threads_per_block = 1024
    max_dynamic_shared_size_bytes, shared_size_bytes = 48 << 10, 0

    def __init__(self, name, signature, defines):
        self.name, self.signature, self._defines = name, signature, defines
        self._does = KERNELS[re.sub(r"_\d+$", "", name)]
        self.kernel = SimpleNamespace(ptr=id(self))
        BY_HANDLE[self.kernel.ptr] = self

    def __call__(self, grid, block, arguments, *, shared_mem=0, stream=None):
        assert len(grid) < 3 and 0 < grid[0] < 1 << 31 and all(0 < rows < 1 << 16 for rows in grid[1:])
        assert len(block) == 1 and 0 < block[0] <= self.max_threads_per_block
        assert shared_mem <= self.max_dynamic_shared_size_bytes, "too much shared memory"
        for value, (kind, pointer, name) in zip(arguments, self.signature, strict=True):
            if isinstance(value, numpy.ndarray):
                right = isinstance(value, ndarray) and value.itemsize == numpy.dtype(TYPES[kind]).itemsize
                assert pointer and right and value.flags.c_contiguous, f"{self.name}: {name}"
            else:  # pinned memory is handed over by its address
                found = value.dtype.str[1:] if value.dtype.kind == "V" else value.dtype.name
                assert found == ("uint64" if pointer else TYPES[kind]), f"{self.name}: {name}"
        values = {name: value for value, (_, _, name) in zip(arguments, self.signature, strict=True)}
        launch = {"name": self.name, "blocks": grid[0], "grid": grid, "threads": block[0], "shared_mem": shared_mem}
        given = SimpleNamespace(**launch, defines=self._defines, **values)
        if _Stream.capturing is not None:
            _Stream.capturing.append((self._does, given))
            return
        self._does(given)
        self._took(given)
        clock = values.get("cycles_and_ns")
        if clock is not None:
            clock[:] = MHZ * 1000, 1_000_000

    def _took(self, given):
        what = self.name.partition("_")[0]
        if what in BYTES and self.name != "read_shared":
            took(what, BYTES[what] * int(given.vectors) * 4 * WORDS_A_VECTOR)
        elif what == "fold":
            steps = int(given.defines["STEPS_PER_ROUND"]) * int(given.rounds)
            took("fma", 2 * given.before.size * steps)
        elif what == "chase":
            WORKED_S[0] += LOAD_S * int(given.steps)
        elif self.name == "tensor_matmul":
            took("bfloat16", 2 * int(given.m) * int(given.n) * int(given.k))


def _words(array, vectors, start=0):
    found = array.reshape(-1).view(numpy.uint32)[start * WORDS_A_VECTOR : (start + int(vectors)) * WORDS_A_VECTOR]
    assert found.size == vectors * WORDS_A_VECTOR, "beyond the end"
    return found.view(numpy.ndarray)


def _add(total, found, times=1):
    total[0] = (int(total[0]) + int(found.sum(dtype=numpy.uint64)) * int(times)) % 2**32


def _read(given):
    if given.report_sum[0]:
        _add(given.word_sum, _words(given.a, given.vectors))


def _write(given):
    words = _words(given.c, given.vectors)
    for first in range(0, words.size, CHUNK):
        part = words[first : first + CHUNK]
        part[:] = numpy.arange(first, first + part.size, dtype=numpy.uint32) + given.start


def _copy(given):
    _words(given.c, given.vectors)[:] = _words(given.a, given.vectors)


def _triad_of(a, b, scale):
    found = numpy.empty_like(a)
    for first in range(0, a.size, CHUNK):
        part = slice(first, first + CHUNK)
        found[part] = a[part].astype(numpy.float64) + float(scale) * b[part].astype(numpy.float64)
    return found


def _triad(given):
    a, b = (_words(array, given.vectors).view(numpy.float32) for array in (given.a, given.b))
    _words(given.c, given.vectors)[:] = _triad_of(a, b, given.scale).view(numpy.uint32)


def _read_l1(given):
    stride = int(given.set_stride)
    for block in range(given.blocks) if stride else (0,):
        times = given.passes if stride else int(given.passes) * given.blocks
        _add(given.word_sum, _words(given.words, given.vectors, block * stride), times)


def _read_by_all(given):
    _add(given.word_sum, _words(given.words, given.vectors), int(given.passes) * given.blocks)


def _read_next_block(given):
    """Blocks mark their copies with their rank, and weight what they read by it."""
    blocks, words = int(given.name.rpartition("_")[2]), _words(given.words, given.vectors)
    for rank in range(blocks):
        marks = numpy.full(int(given.vectors), (rank + 1) % blocks, numpy.uint32)
        for part in (words, marks):
            _add(given.word_sum, part, (rank + 1) * int(given.passes) * given.blocks // blocks)


def _count_differences(given):
    a, b = (array.reshape(-1).view(numpy.uint32)[: int(given.words)] for array in (given.a, given.b))
    given.differences[0] += numpy.count_nonzero(a != b)


def _count_wrong_triads(given):
    a, b, c = (array[: int(given.count)] for array in (given.a, given.b, given.c))
    given.wrong[0] += numpy.count_nonzero(c != _triad_of(a, b, given.scale))


def _normal(dtype):
    def kernel(given):
        count = int(given.count)
        drawn = random_numbers.normal(min(count, DISTINCT), int(given.seed), dtype)
        for first in range(0, count, DISTINCT):
            part = given.out.reshape(-1)[first : min(first + DISTINCT, count)]
            part[:] = drawn[: part.size].view(given.out.dtype)

    return kernel


def _fold(given):
    numbers, steps = (int(given.defines[name]) for name in ("NUMBERS", "STEPS_PER_ROUND"))
    assert given.before.size % (numbers * given.blocks * given.threads) == 0
    before, after = (array.reshape(numbers, -1)[:, :SHOWN_THREADS] for array in (given.before, given.after))
    k, offset = float(given.factors[0]), float(given.factors[-1])
    after[:] = gpu_fma.expected_fold(before.astype(numpy.float64), steps * int(given.rounds), k, offset)


def _issue(given):
    pairs, threads = int(given.defines["PAIRS_PER_ROUND"]), given.threads
    assert given.floats.size == given.words.size == given.blocks * threads * instruction_kernels.CHAINS_PER_THREAD
    start = instruction_kernels.start_words(threads)
    steps = int(given.rounds) * pairs // instruction_kernels.CHAINS_PER_THREAD
    floats, words = given.floats.reshape(-1, threads, 8), given.words.reshape(-1, threads, 8)
    floats[:] = gpu_fma.expected_fold(
        start.astype(numpy.float64), steps, instruction_kernels.FACTOR, instruction_kernels.OFFSET
    )
    few = int(given.rounds) == instruction_kernels.COMPARED_ROUNDS  # over more, none is looked at
    words[:] = instruction_kernels.expected_shifts(start, 2 * pairs) if few else start


def _load(places):
    def kernel(given):
        for where, times in getattr(instruction_kernels, places)(int(given.stride), given.threads, int(given.rounds)):
            _add(given.word_sum, given.a.reshape(-1).view(numpy.uint32)[where], times * given.blocks)

    return kernel


def _mark_clocks(given):
    """As if each multiprocessor ran at MHZ, and a millisecond passed from mark to mark."""
    now_ns = 1_000_000 * next(MARKED)
    for place in range(given.blocks):
        ctypes.memmove(int(given.marks) + 16 * place, numpy.array([now_ns * MHZ // 1000, now_ns]).tobytes(), 16)


def _decode_attention(given):
    from roofline.operators.decode_attention.attention_arithmetic import reference_attention

    batch, heads, _ = given.query.shape
    kv_heads, splits = given.keys.shape[1], int(given.splits)
    tiles = -(-int(given.group) // (8 if given.defines["BY_MMA"] == "1" else int(given.defines["QUERIES"])))
    assert int(given.group) * kv_heads == heads and int(given.seq_len) == given.keys.shape[2]
    assert given.blocks == batch * kv_heads * tiles * splits
    caches = given.keys, given.values
    if given.name == "decode_attention_fp8":
        scales = given.key_scales, given.value_scales
        floats = [cache.view(ml_dtypes.float8_e4m3fn).astype(numpy.float64) for cache in caches]
        caches = [cache * scale[..., None, None] for cache, scale in zip(floats, scales, strict=True)]
    given.out[:] = reference_attention(given.query, *caches).astype(given.out.dtype)


def _row_norm(given):
    from roofline.operators.row_norm.operator import RowNorm

    rows, in_block = int(given.rows), int(given.defines.get("ROWS", 1))
    assert given.x.shape == given.y.shape == (rows, int(given.columns)) and given.blocks == -(-rows // in_block)
    given.y[:] = RowNorm().reference(None, {"x": given.x}).astype(numpy.float32)


def _mapped(operands, tile_rows):
    """Matrices, handed over as arrays or as tensor maps with tiles of so many rows."""
    from cuda.bindings import driver

    if isinstance(operands[0], numpy.ndarray):
        return operands
    found = [driver.matrix_of(one) for one in operands]
    assert [rows for _, rows in found] == list(tile_rows)
    return [matrix for matrix, _ in found]


def _tensor_matmul(given):
    a, b, c = _mapped((given.a, given.b, given.c), (128, 128, 64))
    m, n, k = (int(side) for side in (given.m, given.n, given.k))
    if m * n * k > UNSEEN_PRODUCT:
        return
    assert (a.shape, b.shape, c.shape) == ((m, k), (n, k), (m, n)) and given.defines["BF16"] == str(int(_is_bf16(a)))
    c[:] = (a.astype(numpy.float32) @ b.astype(numpy.float32).T).astype(c.dtype)


def _is_bf16(array):
    return array.dtype == ml_dtypes.bfloat16


def _rms_norm(given):
    from roofline.operators.rmsnorm_matmul.operator import normalise

    out = given.out[: given.blocks]
    x, g = (array.astype(numpy.float32) for array in (given.x, given.g))
    out[:] = normalise(x, g, float(given.eps)).astype(out.dtype)


def _rmsnorm_matmul(given):
    from roofline.operators.rmsnorm_matmul.operator import reference_rmsnorm_matmul

    rows, columns, splits = (int(given.defines[name]) for name in ("BATCH", "COLUMNS", "SPLITS"))
    column_blocks, chunks = -(-int(given.outputs) // columns), -(-int(given.batch) // rows)
    assert given.grid == (column_blocks * splits, chunks)
    assert given.workspace.size == chunks * column_blocks * splits * rows * (columns + 1)
    given.y[:] = reference_rmsnorm_matmul(given.x, given.w, given.g, float(given.eps)).astype(given.y.dtype)


def _product_on_hopper(given):
    """Of few rows x's norm is taken too; nothing follows the product."""
    from roofline.operators.rmsnorm_matmul import hopper_gemm
    from roofline.operators.rmsnorm_matmul.operator import reference_rmsnorm_matmul

    defines = {name: int(value) for name, value in given.defines.items()}
    few = "GROUPS" in defines
    columns = 16 * defines["GROUPS"] if few else defines["OUTPUTS"]
    x, w = _mapped((given.x, given.w), (defines["ROWS"], columns // (2 if defines["ROWS"] == 64 else 1) // 2))
    sizes = numpy.frombuffer(given.shape.tobytes(), hopper_gemm.PLAIN.shape_fields)[0]
    addresses = numpy.frombuffer(given.tensors.tobytes(), "u8")
    of = dict(zip(hopper_gemm.PLAIN.tensors, map(int, addresses), strict=True))
    x, y = x[: sizes["rows"]], AT_ADDRESS[of["y"]]
    assert y.shape == (sizes["rows"], sizes["outputs"])
    assert given.grid[1] == -(-int(sizes["rows"]) // defines["ROWS"])
    if few:
        y[:] = reference_rmsnorm_matmul(x, w, AT_ADDRESS[of["norm"]], float(sizes["eps"])).astype(y.dtype)
    else:
        y[:] = (x.astype(numpy.float32) @ w.astype(numpy.float32).T).astype(y.dtype)


def _chase(given):
    at = int(given.first_address)
    for _ in range(int(given.steps) % len(given.chain)):  # laps of all of it lead nowhere
        at = ctypes.c_uint64.from_address(at).value
    given.last_address[0] = at
    took("load", int(given.steps))


def _chase_dsmem(given):
    at, links = int(given.first_offset), given.links.reshape(-1)
    for _ in range(int(given.steps) % len(given.links)):
        at = int(links[at // 8])
    given.last_offset[0] = at


SENT, AWAITED = defaultdict(deque), defaultdict(deque)  # numbers on their way to a card's slots; who waits for them


def _one_shot(given):
    """A card runs its whole graph before the other does: what it waits for it gets when the other sends."""
    own, peer = given.own_slots.ctypes.data, given.peer_slots.ctypes.data
    values = _bf16(vars(given)["in"], given.vectors)
    SENT[peer].append(values)
    AWAITED[own].append((values, _bf16(given.out, given.vectors)))
    for slots in (own, peer):
        while SENT[slots] and AWAITED[slots]:
            mine, out = AWAITED[slots].popleft()
            _write_sums(out, mine, SENT[slots].popleft())
    given.waits[int(given.launches[0]) % given.waits.size] = MHZ
    given.launches += 1


def _two_shot(given):
    part = slice(8 * int(given.begin), 8 * int(given.end))
    for out in (given.out, given.peer_out):
        _write_sums(out[part].view(numpy.ndarray), vars(given)["in"][part], given.peer_in[part])
    given.launches += 1


def _check_sums(given):
    a, b, out, peer_out = (
        _bf16(array, given.vectors) for array in (vars(given)["in"], given.peer_in, given.out, given.peer_out)
    )
    expected = a.astype(numpy.float64) + b.astype(numpy.float64)
    error = numpy.nan_to_num(abs(out.astype(numpy.float64) - expected) / (abs(expected) + 1e-30), nan=1e30).max()
    given.worst.view(numpy.float32)[0] = max(given.worst.view(numpy.float32)[0], error)
    given.differing[0] += numpy.count_nonzero(out.view(numpy.uint16) != peer_out.view(numpy.uint16))
    given.checksum[0] = out.view(numpy.uint32).sum(dtype=numpy.uint64)


def _bf16(array, vectors):
    return array[: 8 * int(vectors)].view(numpy.ndarray)


def _write_sums(out, a, b):
    """What the last launch left is not written again: graphs repeat themselves."""
    for part in (slice(-8, None), slice(None)):
        sums = (a[part].astype(numpy.float32) + b[part].astype(numpy.float32)).astype(a.dtype)
        if numpy.array_equal(out[part].view(numpy.uint16), sums.view(numpy.uint16)):
            return
        out[part] = sums if part.start is None else out[part]


KERNELS = {
    "one_shot": _one_shot,
    "two_shot": _two_shot,
    "check_sums": _check_sums,
    "chase": _chase,
    "chase_l1": _chase,
    "tensor_matmul": _tensor_matmul,
    "rms_norm": _rms_norm,
    "rmsnorm_matmul": _rmsnorm_matmul,
    "few_rows": _product_on_hopper,
    "many_rows": _product_on_hopper,
    "decode_attention": _decode_attention,
    "decode_attention_fp8": _decode_attention,
    "row_norm": _row_norm,
    "row_norm_naive": _row_norm,
    "of_few": lambda given: None,
    "of_many": lambda given: None,
    "block_stream": lambda given: None,
    "mark_clocks": _mark_clocks,
    "issue": _issue,
    "load_strided": _load("strided_word_indices"),
    "load_conflicting": _load("shared_word_indices"),
    "count_differences": _count_differences,
    "count_wrong_triads": _count_wrong_triads,
    "read": _read,
    "write": _write,
    "copy": _copy,
    "triad": _triad,
    "read_l1": _read_l1,
    "read_l2": lambda given: _add(given.word_sum, _words(given.words, given.vectors), given.passes),
    "read_l2_broadcast": _read_by_all,
    "read_shared": _read_by_all,
    "read_dsmem": _read_next_block,
    "chase_dsmem": _chase_dsmem,
    **{f"normal_{dtype}": _normal(dtype) for dtype in {DTYPES[name].stored_as for name in PRODUCT_DTYPES}},
    **{f"fold_{dtype}": _fold for dtype in gpu_fma.FOLD_FACTORS},
}


class _Event:
    added_s = 0.0  # by what is to take longer here than NumPy takes for it

    def __init__(self, disable_timing=False):
        pass

    def record(self, stream=None):
        self.at = WORKED_S[0] if RATES else time.perf_counter() + _Event.added_s

    def synchronize(self):
        pass


class _Graph:
    def __init__(self, launches):
        self.launches = launches

    def upload(self, stream):
        pass

    def launch(self, stream):
        for does, given in self.launches:
            does(given)


class _Stream:
    ptr = 0
    capturing = None  # launches of the graph that a stream is making

    def __init__(self, non_blocking=False):
        pass

    def begin_capture(self):
        _Stream.capturing = []

    def end_capture(self):
        launches, _Stream.capturing = _Stream.capturing, None
        return _Graph(launches)

    def use(self):
        return self

    def synchronize(self):
        pass

    def wait_event(self, event):
        assert hasattr(event, "at"), "an event that was never recorded holds nothing back"


class _Device:
    """Both of two devices are this host: only which is the current one is kept."""

    current = 0

    def __init__(self, number):
        assert number < _device_count()
        self._number, self._before = number, []

    def __enter__(self):
        self._before.append(_Device.current)
        _Device.current = self._number

    def __exit__(self, *error):
        _Device.current = self._before.pop()


ACCESS: set = set()  # (a device, the other whose memory it may access)


def _device_count():
    return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))


def _enable_peer_access(peer):
    assert (_Device.current, peer) not in ACCESS, "enabled before"
    ACCESS.add((_Device.current, peer))


def _memcpy_peer(destination, destination_device, source, source_device, size, stream):
    assert (source_device, destination_device) in ACCESS, "it would go through the host"
    ctypes.memmove(destination, source, size)


def _pinned(size):
    memory = (ctypes.c_char * size)()
    memory.ptr = ctypes.addressof(memory)
    return memory


def _memcpy(destination, source, size, kind, stream):
    took("link", size)
    ctypes.memmove(destination, source, size)


def _memcpy_2d(destination, destination_pitch, source, source_pitch, width, height, kind):
    for row in range(height):
        ctypes.memmove(destination + row * destination_pitch, source + row * source_pitch, width)


PROPERTIES = {
    "MultiProcessorCount": int(os.environ.get("FAKE_MULTIPROCESSORS", "132")),
    "L2CacheSize": 1 << 20,
    "MaxSharedMemoryPerBlock": 49152,
    "MaxSharedMemoryPerBlockOptin": 232448,
    "MaxSharedMemoryPerMultiprocessor": 233472,
    "MaxRegistersPerMultiprocessor": 65536,
    "WarpSize": 32,
    "MaxThreadsPerMultiProcessor": 2048,
}


def _profiler_starts():
    """A line for each range, for the stand-in for ncu."""
    if path := os.environ.get("FAKE_RANGES"):
        with open(path, "a") as ranges:
            ranges.write("range\n")


cuda = SimpleNamespace(
    driver=SimpleNamespace(funcSetAttribute=lambda *attribute: None, CUDADriverError=RuntimeError),
    runtime=SimpleNamespace(
        **{f"cudaDevAttr{name}": name for name in PROPERTIES},
        deviceGetAttribute=lambda name, index: PROPERTIES[name],
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 12090,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memcpyAsync=_memcpy,
        memcpy2D=_memcpy_2d,
        memcpyPeerAsync=_memcpy_peer,
        getDeviceCount=_device_count,
        deviceCanAccessPeer=lambda device, peer: 1,
        deviceEnablePeerAccess=_enable_peer_access,
        profilerStart=_profiler_starts,
        profilerStop=lambda: None,
    ),
    nvrtc=SimpleNamespace(  # its cubin is the source and the options
        getVersion=lambda: (12, 9),
        createProgram=lambda code, *nothing: [code],
        compileProgram=lambda program, options: program.extend(options),
        getCUBIN=lambda program: json.dumps(program).encode(),
    ),
    cublas=SimpleNamespace(getVersion=lambda handle: 120902),
    device=SimpleNamespace(get_cublas_handle=lambda: 0),
    Device=_Device,
    Stream=_Stream,
    Event=_Event,
    get_elapsed_time=lambda start, end: max(1e-6, (end.at - start.at) * 1e3),
    alloc_pinned_memory=_pinned,
)
