"""The caches of this machine's cores, as the kernel lists them, and an order of cores that spreads over the machine."""

from typing import NamedTuple

from roofline.core.terms import CACHE_LEVELS
from roofline.core.units import GIB, KIB, MIB
from roofline.devices import host

UNLISTED_CACHE_BYTES = 256 * MIB  # used where the kernel lists no caches: more than most CPUs have
UNLISTED_L2_BYTES = MIB
GB_PER_S_PER_CORE, AMD_GB_PER_S_PER_CORE = 10.0, 25.0
GB_PER_S_ALL_CORES = 300.0
RULE_OF_THUMB_SOURCE = (
    "rule of thumb: a core reads 10 GB/s, of AMD's 25, and all cores together approach 300 GB/s: times add. "
    "By C and OpenMP 1, 8 and 16 cores of an Intel server read 9.6, 65 and 103 GB/s; 1 and 2 cores of an AMD EPYC "
    "41 and 40 GB/s by compiled loops, 2026-11"
)


class ListedCache(NamedTuple):
    """A core's cache (data or unified) of one level, as the kernel lists it."""

    shared_cpus: str  # the list of the CPUs that share it, which identifies it
    size_bytes: int


def total_last_level_cache_bytes() -> int:
    """Return the bytes of all last-level caches of the usable cores: together they keep what all these cores read."""
    caches_by_cpu = [_read_caches(cpu) for cpu in host.usable_cpus()]
    last_level = max((level for caches in caches_by_cpu for level in caches), default=None)
    if last_level is None:
        return UNLISTED_CACHE_BYTES
    caches_of_level = [caches[last_level] for caches in caches_by_cpu if last_level in caches]
    size_by_cpus = {cache.shared_cpus: cache.size_bytes for cache in caches_of_level}  # each cache once
    return sum(size_by_cpus.values())


def cache_bytes_by_level(readers: int = 1) -> dict[str, int]:
    """Return the bytes of the first core's caches by level, divided among those of `readers` cores that share them."""
    cpus = host.usable_cpus()
    caches_by_cpu = [_read_caches(cpu) for cpu in cpus]
    sizes = {}
    for level, cache in _read_caches(min(cpus)).items():
        sharers_by_core = [caches[level].shared_cpus for caches in caches_by_cpu if level in caches]
        sizes[level] = cache.size_bytes // min(sharers_by_core.count(cache.shared_cpus), readers)
    return sizes


def measured_core_counts(cores: int) -> list[int]:
    """Return all cores, and fewer by halves down to one: reads are measured on so many, and operators may use them."""
    return [cores >> halvings for halvings in range(cores.bit_length())]


def ceiling_name_on_cores(ceiling: str, count: int) -> str:
    """Return the name of a ceiling on so many cores: dram_read_4_cores, dram_read_one_core."""
    return f"{ceiling}_one_core" if count == 1 else f"{ceiling}_{count}_cores"


def order_spread_out(cpus: set[int]) -> list[int]:
    """Return CPUs in an order in which the first ones, however many, lie all over the machine.

    One thread of each core comes first, and neighbours are far apart.
    """
    cpus_by_rank: dict[int, list[int]] = {}  # the first thread of every core, the second one, ...
    threads_by_core: dict[str, int] = {}
    for cpu in sorted(cpus):
        first_cache = _read_caches(cpu).get(CACHE_LEVELS[0])
        core = first_cache.shared_cpus if first_cache else str(cpu)
        rank = threads_by_core.get(core, 0)
        cpus_by_rank.setdefault(rank, []).append(cpu)
        threads_by_core[core] = rank + 1
    ordered = []
    for _, cpus_of_rank in sorted(cpus_by_rank.items()):
        for index in sorted(range(len(cpus_of_rank)), key=_bit_reversed):
            ordered.append(cpus_of_rank[index])
    return ordered


def _bit_reversed(number: int) -> str:
    return f"{number:032b}"[::-1]


def _read_caches(cpu: int) -> dict[str, ListedCache]:
    """Return the data and unified caches of a core by level, as the kernel lists them."""
    units = {"K": KIB, "M": MIB, "G": GIB}
    caches = {}
    for folder in sorted((host.cpu_folder(cpu) / "cache").glob("index*")):
        try:
            items = ("level", "type", "size", "shared_cpu_list")
            level, kind, size, shared_cpus = ((folder / item).read_text().strip() for item in items)
            if kind != "Instruction":
                caches[f"l{level}"] = ListedCache(shared_cpus, int(size[:-1]) * units[size[-1]])
        except (OSError, ValueError, KeyError):
            continue
    return caches


def rule_of_thumb_gb_per_s(cores: int, cpu: str = "") -> float:
    """Return the rule-of-thumb GB/s of so many cores: 1 / (1 / (cores x rate) + 1 / 300).

    The rate is 10 GB/s per core, 25 where the name `cpu` begins with AMD. RULE_OF_THUMB_SOURCE has the measurements.
    """
    per_core = AMD_GB_PER_S_PER_CORE if cpu.startswith("AMD") else GB_PER_S_PER_CORE
    return 1 / (1 / (cores * per_core) + 1 / GB_PER_S_ALL_CORES)
