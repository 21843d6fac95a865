"""Placed kernels in words and tables."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import prod
from os.path import basename
from pathlib import Path
from typing import Any

import jinja2
import ncu_counts
import yaml
from placing import LaunchRoof, Placed, Profile

import roofline.api as api

LEVELS = {"compute": "compute", "l1": api.LEVEL_TITLES["l1"], "l2": api.LEVEL_TITLES["l2"], "memory": "memory"}
LEVELS |= {"link": "link"}
UNITS = {"cuda_core": "CUDA cores", "tensor_core": "tensor cores"}
QUANTITIES = {level: f"traffic of {LEVELS[level]}" for level in ("memory", "l2", "l1")}
LONGEST_NAME = 96  # characters of a kernel's name, with the functor of PyTorch's elementwise kernels
ROWS, SENTENCES = 200, 8  # kernels in the table, and with a sentence
FEW_BLOCKS = 0.5  # of the multiprocessors: fewer blocks leave most of them idle
NAMED_SHARE = 0.05  # of a launch's time: a further ceiling below it is not worth naming
ADVICE = yaml.safe_load(Path(__file__).with_name("advice.yaml").read_text(encoding="utf-8"))
MOSTLY_ISSUING = 0.5  # of the instructions that schedulers can issue: from this on they set the time
PARAMETERS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?$")
CASTS = re.compile(r"\((?:bool|char|int|short|unsigned|long| )+\)(?=-?\d)")  # of template arguments: (int)8
NAMESPACES = re.compile(r"(?:<unnamed>|\b[A-Za-z_]\w*)::(?=[A-Za-z_~<\[])")
SMALLEST_SHARE = 1e-3  # that a table still shows


def kernel_title(kernel: Placed) -> str:
    """Return the function with its template arguments, without its parameters, namespaces, and casts of numbers."""
    text = PARAMETERS.sub("", kernel.signature).replace("void ", "")
    text = NAMESPACES.sub("", CASTS.sub("", text))
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _dimensions(sizes: Sequence[int]) -> str:
    """Return sizes as 256 or 16x16, without ones at the end."""
    return re.sub(r"(?:x1)+$", "", "x".join(map(str, sizes)))


def describe_kernel(kernel: Placed) -> str:
    """Return a kernel's title, its launch, and its share of the time."""
    share = "no time" if kernel.share_of_time is None else f"{api.percent(kernel.share_of_time)} of the time"
    # An operator of a trace has its shape in its title.
    shape = f", {_dimensions(kernel.grid)} blocks of {_dimensions(kernel.block)}" if kernel.grid else ""
    return f"{kernel_title(kernel)}{shape}, {share}"


def describe_limit(kernel: Placed) -> str:
    """Return the ceiling that limits a kernel, with its level, or the kernel's regime."""
    regime = kernel.regime or "not known"
    return f"{LEVELS[kernel.limited_at]}: {kernel.limited_by}" if kernel.limited_by else regime


def pipe_words(pipe: tuple[str, str]) -> str:
    """Return the unit and dtype of FLOPs in words."""
    unit, dtype = pipe
    return f"{dtype} on {UNITS[unit]}"


def roof_name(roof: LaunchRoof) -> str:
    """Return what a roof is of, in words."""
    return pipe_words((roof.unit, roof.dtype)) if roof.unit else LEVELS[roof.level]


def span(values: Iterable[float]) -> str:
    """Return the lowest and the highest of these values, rounded."""
    rounded = [round(value) for value in values]
    return str(min(rounded)) if min(rounded) == max(rounded) else f"{min(rounded)} to {max(rounded)}"


TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined)
FILTERS = (api.count_words, api.duration, api.join_words, api.percent, basename, pipe_words, roof_name, span)
TEMPLATES.filters |= {function.__name__: function for function in FILTERS}


def write_notes(macro: str, **facts: Any) -> list[str]:
    """Return the notes of a macro of sentences.j2."""
    text = getattr(TEMPLATES.get_template("sentences.j2").module, macro)(**facts)
    return [line for line in text.split("\n") if line.strip()]


def profile_notes(profile: Profile, source: str) -> list[str]:
    """Return what the report holds and lacks, where its time goes, and at which clocks it ran.

    `source` names the run that the ceilings are of.
    """
    kernels, shares_of_time = profile.kernels, Counter()
    for kernel in kernels:
        if kernel.share_of_time:
            shares_of_time[api.regime_text(kernel.regime) if kernel.regime else "not known"] += kernel.share_of_time
    shares = [f"{api.percent(share)} is {regime}" for regime, share in shares_of_time.most_common()]
    counts = Counter(quantity for kernel in kernels for quantity in _missing_quantities(kernel))
    few = {quantity: f" (of {count} of {len(kernels)})" for quantity, count in counts.items() if count < len(kernels)}
    lacking = [f"{quantity}{few.get(quantity, '')}" for quantity in counts]
    without_l1 = [kernel for kernel in kernels if not kernel.roof_at("l1") and "l1" not in kernel.missing]
    past_l1 = [kernel for kernel in without_l1 if kernel.roof_at("l2")]
    return write_notes("report", profile=profile, source=source, shares=shares, lacking=lacking, past_l1=past_l1)


def _missing_quantities(kernel: Placed) -> Iterable[str]:
    flops = [f"FLOPs of {api.join_words(dtypes)} on {UNITS[unit]}" for unit, dtypes in kernel.missing_flops.items()]
    for quantity in kernel.missing:
        yield from flops if quantity == "flops" else [QUANTITIES.get(quantity, quantity)]


def missing_command(profile: Profile) -> list[str]:
    """Return the command that would have collected what a report lacks; nothing if it lacks nothing."""
    lacks_some = any(kernel.missing for kernel in profile.kernels)
    return [ncu_counts.collect_command(profile.compute_capability)] if lacks_some else []


def kernel_sentence(kernel: Placed, multiprocessors: int) -> str:
    """Return what limits a kernel, the evidence, and what would help, in a sentence or two."""
    rated = sorted((roof for roof in kernel.roofs if roof.share is not None), key=lambda roof: -roof.share)
    worth_naming = [roof for roof in rated if roof.share >= NAMED_SHARE] or rated[:1]
    evidence = [f"{api.percent(roof.share)} of {roof.ceiling}{_clock_words(roof)}" for roof in worth_naming]
    if kernel.regime is None:
        counted = f"the largest share that was counted is {', '.join(evidence)}"
        text = counted if evidence else "nothing counted has a ceiling"
        return f"{describe_kernel(kernel)}: what limits it is not known; {text}."
    reason, advice = "", ADVICE[advice_key(kernel)]
    if kernel.regime == "implementation":
        reason = "as no ceiling accounts for half of its time, "
        if kernel.issued_share is not None:
            evidence.append(f"{api.percent(kernel.issued_share)} of the instructions that can be issued")
        blocks = prod(kernel.grid)
        if blocks < FEW_BLOCKS * multiprocessors:
            leave = "blocks leave" if blocks > 1 else "block leaves"
            advice = f"{blocks} {leave} most of {multiprocessors} multiprocessors idle: split the work further"
    reason += ", ".join(evidence) or "nothing else was counted"
    return f"{describe_kernel(kernel)}: {api.regime_text(kernel.regime)} ({reason}). What helps: {advice}."


def _clock_words(roof: LaunchRoof) -> str:
    return f" at {api.percent(roof.clock_scale)} of its clock" if roof.clock_scale else ""


def advice_key(kernel: Placed) -> str:
    """Return the key of ADVICE for what limits a kernel."""
    if kernel.limited_at == "compute":
        return kernel.roof_at("compute").unit
    if kernel.regime == "implementation" and kernel.issued_share is not None:
        return "issued" if kernel.issued_share >= MOSTLY_ISSUING else "latency"
    return kernel.limited_at or kernel.regime


def build_table(kernels: Sequence[Placed]) -> api.MarkdownTable:
    """Return a table of the kernels that take most time; the rest are in one row."""
    kind, times = ("kernel", "launches") if any(kernel.grid for kernel in kernels) else ("operator", "calls")
    columns = [kind, "limited by", times, "total", "of all", "each"]
    columns += [f"of {name}" for name in LEVELS.values()]
    columns += ["sustained", "issued", "TFLOPS", "GFLOP", "MB", "FLOP/byte", "MHz", "grid x block", "saves"]
    rows = [_row(kernel) for kernel in kernels[:ROWS]]
    if len(kernels) > ROWS:
        rows.append(_row_of_rest(kernels[ROWS:], len(columns)))
    return api.drop_empty_columns(columns, rows, 2)


def _row_of_rest(kernels: Sequence[Placed], column_count: int) -> list[str]:
    seconds = sum(kernel.total_s or 0.0 for kernel in kernels)
    share = sum(kernel.share_of_time or 0.0 for kernel in kernels)
    launches = str(sum(kernel.launches for kernel in kernels))
    cells = [f"{len(kernels)} others, each with less time", "", launches, api.duration(seconds), api.percent(share)]
    return cells + ["-"] * (column_count - len(cells))


def _row(kernel: Placed) -> list[str]:
    roofs = [kernel.roof_at(level) for level in LEVELS]
    compute_roof, least_bytes = roofs[0], kernel.least_bytes
    sustained_share = compute_roof and compute_roof.sustained_share
    shares = [*(roof and roof.share for roof in roofs), sustained_share, kernel.issued_share]
    rates = [kernel.attained_tflops, least_bytes and kernel.flops / 1e9, least_bytes and least_bytes / 1e6]
    row = [kernel_title(kernel), describe_limit(kernel), str(kernel.launches), _or_dash(api.duration, kernel.total_s)]
    row += [_or_dash(_share, kernel.share_of_time), _or_dash(api.duration, kernel.mean_s)]
    row += [_or_dash(_share, share) for share in shares]
    row += [_or_dash(api.number, value) for value in [*rates, kernel.intensities.get("memory")]]
    row.append(_or_dash("{:.0f}".format, kernel.sm_clock_mhz))
    row.append(f"{_dimensions(kernel.grid)} x {_dimensions(kernel.block)}" if kernel.grid else "")
    row.append(" to ".join(dict.fromkeys(api.duration(saving_s) for saving_s in kernel.saving_s)))
    return row


def _share(share: float) -> str:
    return api.percent(share) if share >= SMALLEST_SHARE or not share else f"< {api.percent(SMALLEST_SHARE)}"


def _or_dash(form: Callable[[float], str], value: float | None) -> str:
    return "-" if value is None else form(value)


def format_page(profile: Profile, source: str, picture: str) -> str:
    """Return the whole profile as Markdown; `picture` is a file next to the page."""
    sentences = [kernel_sentence(kernel, profile.multiprocessors) for kernel in profile.kernels[:SENTENCES]]
    parts = [f"# {Path(profile.report).name} under measured ceilings", *profile_notes(profile, source)]
    parts.append("\n".join(f"{rank}. {text}" for rank, text in enumerate(sentences, 1)))
    parts += [str(build_table(profile.kernels)), f"![Kernels under their ceilings]({picture})"]
    parts += [f"```sh\n{command}\n```" for command in missing_command(profile)]
    return "\n\n".join(parts) + "\n"
