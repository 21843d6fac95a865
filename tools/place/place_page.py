"""Placed kernels in words and tables."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import ncu_counts
import yaml
from placing import Placed, Profile, Roof

from roofline.api import (
    LEVEL_TITLES,
    MarkdownTable,
    count_words,
    drop_empty_columns,
    duration,
    join_words,
    number,
    percent,
    regime_text,
)

LEVELS = {"compute": "compute", "l1": LEVEL_TITLES["l1"], "l2": LEVEL_TITLES["l2"], "memory": "memory"}
UNITS = {"cuda_core": "CUDA cores", "tensor_core": "tensor cores"}
QUANTITIES = {"flops": "FLOPs"} | {level: f"traffic of {LEVELS[level]}" for level in ("memory", "l2", "l1")}
LONGEST = 96  # characters of a kernel's name, with the functor of PyTorch's elementwise kernels
ROWS, TOLD = 200, 8  # kernels in the table, and with a sentence
IDLE = 0.5  # of the multiprocessors: fewer blocks leave most of them idle
NEXT = 0.05  # of a launch's time: a further ceiling below it is not worth naming
ADVICE = yaml.safe_load(Path(__file__).with_name("advice.yaml").read_text(encoding="utf-8"))
ISSUED = 0.5  # of the instructions that schedulers can issue: from this on they set the time
PARAMETERS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?$")
CASTS = re.compile(r"\((?:bool|char|int|short|unsigned|long| )+\)(?=-?\d)")  # of template arguments: (int)8
NAMESPACES = re.compile(r"(?:<unnamed>|\b[A-Za-z_]\w*)::(?=[A-Za-z_~<\[])")
SMALLEST = 1e-3  # share that a table still shows


def title_of(kernel: Placed) -> str:
    """The function with its template arguments, without its parameters, namespaces, and casts of numbers."""
    text = PARAMETERS.sub("", kernel.signature).replace("void ", "")
    text = NAMESPACES.sub("", CASTS.sub("", text))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def shape_of(kernel: Placed) -> str:
    """Of the launch; an operator of a trace has its shape in its title."""
    return f", {_dimensions(kernel.grid)} blocks of {_dimensions(kernel.block)}" if kernel.grid else ""


def _dimensions(sizes: Sequence[int]) -> str:
    """256, 16x16: without ones at the end."""
    sizes = list(sizes)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return "x".join(map(str, sizes))


def words_of(kernel: Placed) -> str:
    share = "no time" if kernel.share_of_time is None else f"{percent(kernel.share_of_time)} of the time"
    return f"{title_of(kernel)}{shape_of(kernel)}, {share}"


def limit_of(kernel: Placed) -> str:
    if kernel.limited_by:
        return f"{LEVELS[kernel.limited_at]}: {kernel.limited_by}"
    return kernel.regime or "not known"


def words(profile: Profile, source: str) -> list[str]:
    """What the report holds and lacks, where its time goes, and at which clocks it ran. `source` has the ceilings."""
    kernels = profile.kernels
    lines = [
        f"{Path(profile.report).name}: {profile.launches} launch{'es' * (profile.launches > 1)} of "
        f"{count_words(len(kernels), 'kernel')} by name, grid and block, {duration(profile.total_s)} in all, on "
        f"{profile.card} (ceilings: {source}). {_by_regime(kernels)}"
    ]
    more = (_clocks, _past_l1, _no_ceiling, _missing, _not_drawn)
    lines += [f"Left out, profiled as a whole: {profile.left_out} ranges or graphs."] if profile.left_out else []
    lines += [f"Left out, not counted by the profiler: {join_words(profile.failed)}."] if profile.failed else []
    if profile.uncounted:
        flops = join_words(f"{dtype} on {UNITS[unit]}" for unit, dtype in profile.uncounted)
        version = ".".join(map(str, profile.compute_capability))
        lines += [f"Compute capability {version} has no counters of the FLOPs of {flops}: they are left out."]
    return lines + [text for part in more if (text := part(kernels))]


def _by_regime(kernels: Iterable[Placed]) -> str:
    shares: dict[str, float] = {}
    for one in kernels:
        if one.share_of_time:
            what = regime_text(one.regime) if one.regime else "not known"
            shares[what] = shares.get(what, 0.0) + one.share_of_time
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return f"Time: {join_words(f'{percent(share)} is {what}' for what, share in ordered)}." if ordered else ""


def _clocks(kernels: Iterable[Placed]) -> str:
    """Of kernels that ran well below the clock of a ceiling."""
    scaled = [(one, roof.clock_scale) for one in kernels for roof in one.roofs if roof.clock_scale]
    if not scaled:
        return ""
    ran = _span(one.sm_clock_mhz for one, _ in scaled)
    measured = _span(one.sm_clock_mhz / scale for one, scale in scaled)
    return (
        f"{count_words(len({id(one) for one, _ in scaled}), 'kernel')} ran at {ran} MHz, and ceilings were measured at "
        f"{measured} MHz: if the clock of a kernel is well below that of a ceiling (under load, or locked, as ncu does "
        f"without `--clock-control none`), ceilings of compute, L1 and L2 are scaled to it. That of memory never is."
    )


def _span(values: Iterable[float]) -> str:
    values = [round(one) for one in values]
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def _missing(kernels: Sequence[Placed]) -> str:
    lacking: dict[str, int] = {}
    for one in kernels:
        flops = [f"FLOPs of {join_words(dtypes)} on {UNITS[unit]}" for unit, dtypes in one.missing_flops.items()]
        for quantity in one.missing:
            for what in flops if quantity == "flops" else [QUANTITIES.get(quantity, quantity)]:
                lacking[what] = lacking.get(what, 0) + 1
    if not lacking:
        return ""
    whole = len(kernels)
    lines = join_words(what if count == whole else f"{what} (of {count} of {whole})" for what, count in lacking.items())
    return f"Not in this report: {lines}. The command that collects all of it is given below."


def _no_ceiling(kernels: Iterable[Placed]) -> str:
    names = dict.fromkeys(_name(roof) for one in kernels for roof in one.roofs if roof.ceiling is None)
    return f"The card has no measured ceiling of {join_words(names)}, which these kernels use." if names else ""


def _past_l1(kernels: Iterable[Placed]) -> str:
    past = [one for one in kernels if one.roof_at("l2") and not one.roof_at("l1") and "l1" not in one.missing]
    by_tma = sum(bool(one.tma_instructions) for one in past)
    parts = [f"{count_words(by_tma, 'kernel')} loaded by TMA, which the counter of L1 leaves out"] if by_tma else []
    if others := len(past) - by_tma:
        parts += [f"{count_words(others, 'kernel')} moved less than half of the L2 traffic through L1"]
    return f"No share of L1 is shown if traffic passed it by: {join_words(parts)}." if past else ""


def _not_drawn(kernels: Sequence[Placed]) -> str:
    """Those without FLOPs have no place on logarithmic axes."""
    none = [one for one in kernels if one.flops == 0]
    short = [one for one in kernels if one.flops and one.regime == "overhead"]
    lines = [
        f"{count_words(len(those), 'kernel')} {why} ({percent(sum(one.share_of_time or 0.0 for one in those))} of the time)"
        for those, why in ((none, "without FLOPs"), (short, "as short as a launch"))
        if those
    ]
    return f"In the table, not in the picture: {join_words(lines)}." if lines else ""


def wanted(profile: Profile) -> list[str]:
    """The command that would have collected what a report lacks; none if it lacks nothing."""
    lacking = any(one.missing for one in profile.kernels)
    return [ncu_counts.command(profile.compute_capability)] * lacking


def sentence(kernel: Placed, multiprocessors: int) -> str:
    """What limits a kernel, the evidence, and what would help."""
    head = words_of(kernel)
    evidence = _evidence(kernel)
    if kernel.regime is None:
        known = f"the largest share that was counted is {evidence}" if evidence else "nothing counted has a ceiling"
        return f"{head}: what limits it is not known; {known}."
    evidence = ", ".join(filter(None, [evidence, _issued(kernel)]))
    advice = ADVICE[_advice_of(kernel)]
    grid = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    if kernel.regime == "implementation" and grid < IDLE * multiprocessors:
        blocks = f"{grid} block{'s leave' if grid > 1 else ' leaves'}"
        advice = f"{blocks} most of {multiprocessors} multiprocessors idle: split the work further"
    why = "as no ceiling accounts for half of its time, " if kernel.regime == "implementation" else ""
    lines = f"{why}{evidence or 'nothing else was counted'}"
    return f"{head}: {regime_text(kernel.regime)} ({lines}). What helps: {advice}."


def _evidence(kernel: Placed) -> str:
    """Ceilings by what they explain of the time, the first in any case."""
    known = sorted((one for one in kernel.roofs if one.share is not None), key=lambda one: -one.share)
    shown = [one for place, one in enumerate(known) if place == 0 or one.share >= NEXT]
    return ", ".join(f"{percent(one.share)} of {one.ceiling}{_scaled(one)}" for one in shown)


def _issued(kernel: Placed) -> str:
    """Evidence where no ceiling accounts for the time."""
    if kernel.regime != "implementation" or kernel.issued_share is None:
        return ""
    return f"{percent(kernel.issued_share)} of the instructions that can be issued"


def _scaled(roof: Roof) -> str:
    return f" at {percent(roof.clock_scale)} of its clock" if roof.clock_scale else ""


def _name(roof: Roof) -> str:
    return f"{roof.dtype} on {UNITS[roof.unit]}" if roof.unit else LEVELS[roof.level]


def _advice_of(kernel: Placed) -> str:
    """The key of ADVICE."""
    if kernel.limited_at == "compute":
        return kernel.roof_at("compute").unit
    if kernel.regime == "implementation" and kernel.issued_share is not None:
        return "issued" if kernel.issued_share >= ISSUED else "latency"
    return kernel.limited_at or kernel.regime


def table(kernels: Sequence[Placed]) -> MarkdownTable:
    """The kernels that take most time; the rest in one row."""
    what, times = ("kernel", "launches") if any(one.grid for one in kernels) else ("operator", "calls")
    columns = [what, "limited by", times, "total", "of all", "each"]
    columns += [f"of {name}" for name in LEVELS.values()]
    columns += ["sustained", "issued", "TFLOPS", "GFLOP", "MB", "FLOP/byte", "MHz", "grid x block", "saves"]
    rows = [_row(one) for one in kernels[:ROWS]]
    rest = kernels[ROWS:]
    if rest:
        seconds, share = (sum(getattr(one, of) or 0.0 for one in rest) for of in ("total_s", "share_of_time"))
        launches = str(sum(one.launches for one in rest))
        name = f"{len(rest)} others, each with less time"
        rows.append([name, "", launches, duration(seconds), percent(share), *["-"] * (len(columns) - 5)])
    return drop_empty_columns(columns, rows, 2)


def _row(kernel: Placed) -> list[str]:
    roofs = [kernel.roof_at(level) for level in LEVELS]
    return [
        title_of(kernel),
        limit_of(kernel),
        str(kernel.launches),
        _or_dash(duration, kernel.total_s),
        _or_dash(_share, kernel.share_of_time),
        _or_dash(duration, kernel.mean_s),
        *(_or_dash(_share, one.share if one else None) for one in roofs),
        _or_dash(_share, roofs[0].sustained_share if roofs[0] else None),
        _or_dash(_share, kernel.issued_share),
        _or_dash(number, kernel.attained_tflops),
        _or_dash(number, kernel.least_bytes and kernel.flops / 1e9),
        _or_dash(number, kernel.least_bytes and kernel.least_bytes / 1e6),
        _or_dash(number, kernel.intensities.get("memory")),
        _or_dash(lambda mhz: f"{mhz:.0f}", kernel.sm_clock_mhz),
        f"{_dimensions(kernel.grid)} x {_dimensions(kernel.block)}" if kernel.grid else "",
        " to ".join(dict.fromkeys(map(duration, kernel.saving_s))),
    ]


def _share(share: float) -> str:
    return percent(share) if share >= SMALLEST or not share else f"< {percent(SMALLEST)}"


def _or_dash(form, value: float | None) -> str:
    return "-" if value is None else form(value)


def page(profile: Profile, source: str, picture: str) -> str:
    """All of it as Markdown, with the name of the picture next to it."""
    sentences = [sentence(one, profile.multiprocessors) for one in profile.kernels[:TOLD]]
    parts = [f"# {Path(profile.report).name} under measured ceilings", *words(profile, source)]
    parts += ["\n".join(f"{place}. {text}" for place, text in enumerate(sentences, 1)), str(table(profile.kernels))]
    parts += [f"![Kernels under their ceilings]({picture})"]
    parts += [f"```sh\n{command}\n```" for command in wanted(profile)]
    return "\n\n".join(parts) + "\n"
