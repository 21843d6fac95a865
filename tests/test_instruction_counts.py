"""Warp instructions from disassembly: the files beside the kernels are of their sources, the way through is right."""

import pytest
from commands import load
from fake_gpu import open_gpu

from roofline.devices.gpu import instruction_counts
from roofline.devices.gpu.instruction_counts import Counts, counts, source_sha256
from roofline.operators import registry
from roofline.operators.base import Case
from roofline.operators.row_norm import cuda as row_norm

count_instructions = load("count_instructions")
FILES = list(count_instructions.KERNELS)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_the_counts_are_of_the_sources(file):
    """`make counts` writes them anew."""
    assert instruction_counts._read(file)["source_sha256"] == source_sha256(file)


def test_the_counts_are_what_the_disassembly_gives():
    """By any compiler: another release's may differ by a little."""
    defines = row_norm.divide(16384, 1024, 132).defines()
    source = instruction_counts.kernel_source(row_norm.KERNEL)
    code = count_instructions.compiled(source, "row_norm.cu", 90, defines)
    again = count_instructions.counted(count_instructions.disassembled(code, "row_norm"))
    assert tuple(again) == pytest.approx(counts(row_norm.COUNTS, (9, 0), defines), rel=0.15)


def test_an_edited_source_has_no_counts(monkeypatch):
    defines = row_norm.divide(1024, 128, 132).defines()
    assert counts(row_norm.COUNTS, (9, 0), defines)
    monkeypatch.setattr(instruction_counts, "source_sha256", lambda file: "another")
    assert counts(row_norm.COUNTS, (9, 0), defines) is None


def test_a_form_that_was_not_counted_has_none():
    assert counts(row_norm.COUNTS, (9, 0), ("-DWIDTH=3",)) is None
    assert counts(row_norm.COUNTS, (6, 1), row_norm.divide(1024, 128, 132).defines()) is None


def listing(*lines: str) -> str:
    place, text = 0, []
    for line in lines:
        if line.endswith(":"):
            text.append(line)
        else:
            text.append(f"        /*{place:04x}*/                   {line} ;")
            place += 16
    return "\n".join(text)


STRAIGHT = listing("MOV R1, R2", "@P0 EXIT", "STG.E [R2], R3", "EXIT", ".L_x_9:", "BRA `(.L_x_9)", "NOP")
ROUND_A_CALL = listing("MOV R1, R2", "@!P0 BRA `(.L_x_1)", "MOV R3, R4", "CALL.REL.NOINC `(slow)", ".L_x_1:", "EXIT")
LOOP = listing(
    "MOV R1, R2",
    "@P1 BRA `(.L_x_3)",
    ".L_x_2:",
    "LDG.E R3, [R2]",
    "FADD R4, R4, R3",
    "@!P0 BRA `(.L_x_2)",
    ".L_x_3:",
    "EXIT",
)
BESIDE = listing("@P0 BRA `(.L_x_1)", "EXIT", ".L_x_1:", "LDG.E R3, [R2]", "@!P0 BRA `(.L_x_1)", "EXIT")


@pytest.mark.parametrize(
    ("text", "expected"),
    [(STRAIGHT, Counts(4, 0)), (ROUND_A_CALL, Counts(3, 0)), (LOOP, Counts(6, 3)), (BESIDE, None)],
)
def test_the_way_through_by_hand(text, expected):
    assert count_instructions.counted(text) == expected


def test_every_turn_of_a_loop_counts_it_again():
    assert [Counts(10, 4).of_a_warp(turns) for turns in (0, 1, 2, 5)] == [10, 10, 14, 26]


def test_a_normalisation_is_as_many_instructions_as_all_its_warps(monkeypatch):
    device = open_gpu(monkeypatch)
    case = Case({"rows": 16384, "columns": 1024}, "fp32")
    operation = row_norm.Welford(None, device, case, {}, [])
    division = operation.division
    once, _ = counts(row_norm.COUNTS, (9, 0), division.defines())
    assert operation.warp_instructions() == once * division.blocks * division.threads * division.rows // 32


@pytest.mark.parametrize("rule", ["row_norm", "decode_attn"])
def test_counting_anew_makes_nothing_stale_that_was_timed(rule):
    """An edited kernel does, and has no counts until it is counted."""
    files = registry.registered()[rule].source_files("gpu")
    assert {path.suffix for path in files} >= {".cu", ".py"} and not files & set(FILES)
