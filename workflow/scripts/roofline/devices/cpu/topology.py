"""The caches of this machine's cores, as the kernel lists them, and an order of cores that spreads over the machine."""

from roofline.core.units import GIB, KIB, MIB
from roofline.devices import host

UNLISTED_CACHE_BYTES = 256 * MIB  # where the kernel lists no caches: more than most CPUs have
UNLISTED_L2_BYTES = MIB
GB_PER_S_PER_CORE, AMD_GB_PER_S_PER_CORE = 10.0, 25.0
GB_PER_S_ALL_CORES = 300.0
RULE_OF_THUMB_SOURCE = (
    "rule of thumb: a core reads 10 GB/s, of AMD's 25, and all cores together approach 300 GB/s: times add. "
    "By C and OpenMP 1, 8 and 16 cores of an Intel server read 9.6, 65 and 103 GB/s; 1 and 2 cores of an AMD EPYC "
    "41 and 40 GB/s by compiled loops, 2026-11"
)


def total_last_level_cache_bytes() -> int:
    """Of all last-level caches that the usable cores have: together they keep what all the cores read."""
    found = [_read_caches(cpu) for cpu in host.usable_cpus()]
    last = max((level for caches in found for level in caches), default=None)
    if last is None:
        return UNLISTED_CACHE_BYTES
    each_once = dict(caches[last] for caches in found if last in caches)
    return sum(each_once.values())


def cache_bytes_by_level(readers: int = 1) -> dict[str, int]:
    """Bytes of the caches of the first core by level, divided among the readers that share them."""
    cpus = host.usable_cpus()
    found = [_read_caches(cpu) for cpu in cpus]
    sizes = {}
    for level, (shared, size) in _read_caches(min(cpus)).items():
        sharing = sum(caches.get(level, ("", 0))[0] == shared for caches in found)
        sizes[level] = size // min(sharing, readers)
    return sizes


def measured_core_counts(cores: int) -> list[int]:
    """All cores, and fewer by halves, down to one: on so many is reading measured, and so many may an operator use."""
    return [cores >> halvings for halvings in range(cores.bit_length())]


def ceiling_name_on_cores(ceiling: str, count: int) -> str:
    """The name of a ceiling of so many cores."""
    return f"{ceiling}_one_core" if count == 1 else f"{ceiling}_{count}_cores"


def order_spread_out(cpus: set[int]) -> list[int]:
    """In an order whose beginnings lie all over the machine: one thread of each core first, neighbours far apart."""
    ranks: dict[int, list[int]] = {}
    seen: dict[str, int] = {}
    for cpu in sorted(cpus):
        core = _read_caches(cpu).get("l1", (str(cpu), 0))[0]
        ranks.setdefault(seen.get(core, 0), []).append(cpu)
        seen[core] = seen.get(core, 0) + 1
    return [rank[i] for _, rank in sorted(ranks.items()) for i in sorted(range(len(rank)), key=_bit_reversed)]


def _bit_reversed(number: int) -> str:
    return f"{number:032b}"[::-1]


def _read_caches(cpu: int) -> dict[str, tuple[str, int]]:
    """Which cores share a core's cache (data or unified) of each level, and its bytes, as the kernel lists them."""
    units = {"K": KIB, "M": MIB, "G": GIB}
    found = {}
    for folder in sorted((host.cpu_folder(cpu) / "cache").glob("index*")):
        try:
            items = ("level", "type", "size", "shared_cpu_list")
            level, kind, size, shared = ((folder / item).read_text().strip() for item in items)
            if kind != "Instruction":
                found[f"l{level}"] = (shared, int(size[:-1]) * units[size[-1]])
        except (OSError, ValueError, KeyError):
            continue
    return found


def rule_of_thumb_gb_per_s(cores: int, cpu: str = "") -> float:
    """Of so many cores' accesses to memory: each has its own rate, and all share another. `cpu` is its name."""
    each = AMD_GB_PER_S_PER_CORE if cpu.startswith("AMD") else GB_PER_S_PER_CORE
    return 1 / (1 / (cores * each) + 1 / GB_PER_S_ALL_CORES)
