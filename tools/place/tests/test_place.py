"""Kernels of a user's own program under measured ceilings: reports of Nsight Compute, their counts, pages, commands."""

import shutil
from math import fsum

import pytest
from commands import load
from hypothesis import given
from hypothesis import strategies as st
from test_counter_names import CHIPS, known
from test_gpu_workflow import CONFIG, FAKES, GpuRun, copy_of, whole_run
from workflow_run import CHECKOUT

from roofline.analysis.placing import place
from roofline.analysis.results import read_results, read_table
from roofline.analysis.table import PlacedProfile
from roofline.core import placing
from roofline.devices.gpu import profile_counts
from roofline.measure import profile_report
from roofline.measure.nsight_compute import BadReport
from roofline.measure.profile_report import grouped, read_profile
from roofline.records.base import read, write
from roofline.records.files import file_sha256
from roofline.records.profile import ProfileRecord
from roofline.report import placing as words
from roofline.run import settings
from roofline.run.derived import derive

# By ncu on an H200: times of kernels, and their FLOPs on CUDA cores.
REPORT = CHECKOUT / "tests" / "reports" / "decode_attention.ncu-rep"
LAYER = CHECKOUT / "tests" / "reports" / "pytorch_layer.ncu-rep"
REFERENCE = CHECKOUT / "reference" / "nvidia-h200"
RANGES = REFERENCE / "gpu0" / "counters" / "ranges.ncu-rep"
TABLE = read_table(REFERENCE / "roofline.json")
H200, HOPPER = "NVIDIA H200", (9, 0)
PIPES = profile_counts.pipes(HOPPER)
ceilings = {one.name: one for one in TABLE.ceilings if one.device == "gpu0"}
clocks, amounts = st.floats(500, 2000), st.floats(1e3, 1e12)


def launch(
    name="kernel", seconds=1e-3, mhz=1980.0, grid=(1024, 1, 1), cuda_core=(), tensor_core=(), code=0, **others
) -> dict:
    """A launch with every count, as a report's is; `others` has bytes and warp instructions."""
    flops = {"cuda_core_flops": dict(cuda_core), "tensor_core_flops": dict(tensor_core)}
    for unit, dtypes in PIPES.items():
        flops[f"{unit}_flops"] = dict.fromkeys(dtypes, 0.0) | flops[f"{unit}_flops"]
    others = dict.fromkeys([*profile_counts.BYTES, "warp_instructions"], 0.0) | others
    counts = {"duration_s": seconds, "sm_clock_mhz": mhz, **others, **flops}
    kernel = {"name": name, "signature": f"void {name}(float*)", "code": code}
    return {**kernel, "grid": grid, "block": (128, 1, 1), "counts": counts}


def record(*launches: dict, name=H200) -> ProfileRecord:
    return ProfileRecord(
        name="my",
        report="my.ncu-rep",
        report_sha256="0" * 64,
        device_name=name,
        compute_capability="9.0",
        multiprocessors=132,
        memory_total_bytes=150e9,
        pipes=PIPES,
        left_out={},
        kernels=grouped(launches),
    )


def placed(*launches: dict) -> PlacedProfile:
    return place(record(*launches), "gpu0", TABLE.ceilings, TABLE.calls)


# ---------------------------------------------------------------- reports


def test_a_real_report_is_read_without_a_gpu():
    found = read_profile(REPORT, "decode")
    assert (found.device_name, found.compute_capability, found.multiprocessors) == (H200, "9.0", 132)
    by_grid = {(one.name, one.grid[0]): one for one in found.kernels}
    large = by_grid["decode_attention", 2048]
    assert large.block == (128, 1, 1) and large.launches == [1, 2]
    assert large.duration_s == pytest.approx([123.264e-6, 122.848e-6])
    declared = 4 * 256 * 8 * 1024 * 64  # of its batch; softmax and quotients come on top
    assert all(declared < flops < 1.15 * declared for flops in large.cuda_core_flops["fp32"])
    assert len(by_grid) == 3 and not large.tensor_core_flops and not large.l2_bytes


def test_a_record_of_a_report_is_read_back_as_it_was_written(tmp_path):
    found = read_profile(REPORT, "decode")
    write(found, tmp_path / "decode.json")
    assert read(ProfileRecord, tmp_path / "decode.json") == found


@pytest.mark.parametrize("kept", [0, 3, 20, 1000, 60_000, -100, -1])
def test_a_report_that_was_cut_off_is_refused_whole(tmp_path, kept):
    """NVIDIA's reader gives the kernels before the cut, as if there were no others."""
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(REPORT.read_bytes()[:kept])
    with pytest.raises(BadReport, match=r"cut off|no report") as told:
        read_profile(cut, "cut")
    assert str(cut) in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no report"), (b"hello\n", "no report"), (b"PK\x03\x04" * 100, "no report"), (b"NVR\0", "cut off")],
)
def test_a_foreign_file_is_refused_in_a_line(tmp_path, content, says):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(BadReport, match=says):
        read_profile(path, "x")


def test_a_damaged_report_never_ends_in_a_traceback(tmp_path):
    content = REPORT.read_bytes()
    for place_of in range(200, len(content), 9001):
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(content[:place_of] + bytes(64) + content[place_of + 64 :])
        try:
            read_profile(path, "x")
        except BadReport as error:
            assert "\n" not in str(error)


def test_a_report_of_ranges_holds_no_kernel():
    with pytest.raises(BadReport, match="10 ranges and no kernel"):
        read_profile(RANGES, "ranges")


def test_where_the_reader_is_missing_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(profile_report, "installed", lambda: False)
    with pytest.raises(BadReport, match=r"envs/install\.sh reports"):
        read_profile(REPORT, "x")
    with pytest.raises(settings.Faults, match=r"envs/install\.sh reports"):
        settings.complete({"profiles": [str(REPORT)]})


def test_what_is_wrong_with_profiles_is_told_before_anything_is_measured(tmp_path):
    (tmp_path / "a").mkdir()
    shutil.copy(REPORT, tmp_path / "a")
    given = [str(REPORT), "nothing.ncu-rep", __file__, str(tmp_path / "a" / REPORT.name)]
    with pytest.raises(settings.Faults) as told:
        settings.complete({"profiles": given})
    assert [line.split(":")[0] for line in told.value.lines] == [f"profiles[{place_of}]" for place_of in (1, 2, 3)]
    assert settings.complete({"profiles": given[:1]}).config.profiles == given[:1]
    with pytest.raises(settings.Faults) as told:
        settings.require_profiles({"a": str(REPORT), "b": str(RANGES)}, {"gpu0": "NVIDIA A100-SXM4-80GB"})
    assert [part in line for part, line in zip(["A100", "no kernel"], told.value.lines, strict=True)] == [True, True]
    settings.require_profiles({"a": str(REPORT)}, {"gpu0": H200})


# ---------------------------------------------------------------- real kernels


def test_a_real_decode_layer_of_pytorch_is_placed_whole():
    profile = place(read_profile(LAYER, "layer"), "gpu0", TABLE.ceilings, TABLE.calls)
    products = [one for one in profile.kernels if one.name.startswith("nvjet_")]
    assert len(products) == 4 and not any(one.missing for one in profile.kernels)
    weights = 2 * 4096 * (6144 + 4096 + 3 * 14336)  # bytes, of the layer's four
    read = fsum(one.roof_at("memory").amount for one in products)
    assert weights < read < 1.06 * weights
    for one in products:  # by TMA
        assert one.regime == "memory" and one.roof_at("l2").amount > 0.95 * one.roof_at("memory").amount
        assert one.roof_at("l1") is None and one.flops == one.roof_at("compute").amount
    assert all(one.share <= 1.05 for kernel in profile.kernels for one in kernel.roofs)
    assert "silu_kernel" in words.page(profile, H200, 132, "x.png")


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize("capability", CHIPS, ids="{0[0]}.{0[1]}".format)
def test_what_the_command_asks_for_exists_and_leaves_nothing_missing(capability):
    asked = profile_counts.asked(capability)
    assert {name.split(".")[0] for name in asked} <= known(CHIPS[capability])
    found = profile_counts.counts(lambda name: 1.0 if name in asked else None, capability)
    assert found["duration_s"] == 1 and found["sm_clock_mhz"]
    assert all(found[name] is not None for name in profile_counts.ASKED_BYTES)
    flops = {unit: found[f"{unit}_flops"] for unit in PIPES}
    assert {unit: list(of) for unit, of in flops.items()} == profile_counts.pipes(capability)
    assert None not in [value for of in flops.values() for value in of.values()]
    assert set(asked) <= set(profile_report.command(capability).split("--metrics ")[1].split()[0].split(","))


@given(
    st.floats(1e-6, 1), st.floats(5e8, 2e9), st.floats(0, 1e12), st.sampled_from(["per_second", "per_cycle_elapsed"])
)
def test_a_rate_of_a_section_is_as_good_as_a_sum(seconds, hz, count, form):
    """Nsight Compute's roofline sections have rates alone."""
    base = {"gpu__time_duration.sum": seconds, "sm__cycles_elapsed.avg.per_second": hz}
    rate = count / seconds / (hz if form == "per_cycle_elapsed" else 1)
    counters = [
        *(f"smsp__sass_thread_inst_executed_op_f{what}_pred_on" for what in ("add", "mul", "fma")),
        "sm__ops_path_tensor_src_bf16_dst_fp32",
        "dram__bytes",
    ]
    sums = profile_counts.counts((base | {f"{one}.sum": count for one in counters}).get, HOPPER)
    rates = profile_counts.counts((base | {f"{one}.sum.{form}": rate for one in counters}).get, HOPPER)
    assert sums["cuda_core_flops"]["fp32"] == pytest.approx(4 * count)
    for one in (sums, rates):
        found = [one["cuda_core_flops"]["fp32"], one["tensor_core_flops"]["bf16"], one["memory_bytes"]]
        assert found == pytest.approx([4 * count, count, count])
        assert one["cuda_core_flops"]["fp64"] is None and one["l2_bytes"] is None


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        *(("byte", 1), ("Kbyte", 1e3), ("byte/second", 1), ("Gbyte/s", 1e9), ("ns", 1e-9), ("usecond", 1e-6)),
        *(("cycle/nsecond", 1e9), ("hz", 1), ("GHz", 1e9), ("inst", 1), ("sector", 1), ("", 1), ("%", 0.01)),
    ],
)
def test_units_are_those_that_reports_have(unit, times):
    assert profile_report.scale(unit) == pytest.approx(times)


# ---------------------------------------------------------------- under the ceilings


def test_a_read_at_the_memorys_ceiling_is_at_its_roof():
    moved = 1e-3 * ceilings["hbm_read"].gb_per_s * 1e9
    (kernel,) = placed(launch(memory_read_bytes=moved, l2_bytes=moved, l1_bytes=moved)).kernels
    assert (kernel.regime, kernel.limited_by, kernel.limited_at) == ("memory", "hbm_read", "memory")
    assert kernel.roof_at("memory").share == pytest.approx(1)
    assert kernel.roof_at("l2").share == pytest.approx(ceilings["hbm_read"].gb_per_s / ceilings["l2"].gb_per_s)


def test_each_pipe_stands_under_its_own_ceiling():
    peaks = {"tensor": ceilings["bf16"], "vector": ceilings["fp32_fma"]}
    half = {"bf16": 0.5e-3 * peaks["tensor"].tflops * 1e12}
    third = {"fp32": 0.3e-3 * peaks["vector"].tflops * 1e12}
    (kernel,) = placed(launch(tensor_core=half, cuda_core=third)).kernels
    shares = {one.ceiling: one.share for one in kernel.roofs if one.level == "compute"}
    assert shares == pytest.approx({"bf16": 0.5, "fp32_fma": 0.3})
    assert (kernel.regime, kernel.limited_by) == ("compute", "bf16")
    assert kernel.flops == pytest.approx(half["bf16"] + third["fp32"])


def test_conversions_on_the_fp16_pipe_are_no_flops():
    (kernel,) = placed(launch(cuda_core={"fp32": 1e9, "fp16": 1e9})).kernels
    assert kernel.flops == 1e9 and "fp16_fma" in [one.ceiling for one in kernel.roofs]


def test_a_kernel_as_short_as_an_empty_one_is_bound_by_overhead():
    (kernel,) = placed(launch(seconds=2.5e-6, memory_read_bytes=1e3)).kernels
    assert (kernel.regime, kernel.limited_by) == ("overhead", None)


@given(clocks, amounts, amounts)
def test_a_lower_clock_lowers_compute_l1_and_l2_and_never_the_memory(mhz, flops, moved):
    same = {"memory_read_bytes": moved, "l2_bytes": moved, "l1_bytes": moved, "cuda_core": {"fp32": flops}}
    (kernel,), (full,) = (placed(launch(mhz=clock, **same)).kernels for clock in (mhz, 1980.0))
    for level, name in (("compute", "fp32_fma"), ("l1", "l1"), ("l2", "l2")):
        ceiling = ceilings[name]
        own = ceiling.clock_mhz if level == "compute" else ceiling.sm_clock_mhz
        scale = mhz / own if mhz < placing.LOCKED * own else 1.0
        assert kernel.roof_at(level).share == pytest.approx(full.roof_at(level).share / scale)
        assert (kernel.roof_at(level).clock_scale is None) == (scale == 1.0)
    assert kernel.roof_at("memory").share == full.roof_at("memory").share
    said = " ".join(words.words(placed(launch(mhz=mhz, **same)), H200))
    assert ("That of memory never is." in said) == (mhz < placing.LOCKED * 1979)


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_traffic_that_is_mostly_of_one_kind_stands_under_that_ceiling(read_bytes, write_bytes):
    mix = placing.mix(read_bytes, write_bytes)
    share = read_bytes / (read_bytes + write_bytes) if read_bytes + write_bytes else 1.0
    assert (mix == "read") == (share >= placing.MOSTLY) or share == pytest.approx(placing.MOSTLY)
    assert placing.mix(write_bytes, read_bytes) == {"read": "write", "write": "read"}.get(mix, mix) or not share % 1


def test_kernels_of_one_name_that_were_compiled_apart_stand_apart():
    profile = placed(launch(code=1), launch(code=2), launch(code=1))
    assert sorted(one.launches for one in profile.kernels) == [1, 2]


@given(amounts, amounts)
def test_of_a_kernel_that_loads_past_the_l1_no_share_of_it_is_told(l1_bytes, l2_bytes):
    profile = placed(launch(l1_bytes=l1_bytes, l2_bytes=l2_bytes, cuda_core={"fp32": 1e9}))
    (kernel,) = profile.kernels
    is_counted = l1_bytes >= placing.PASSED_BY * l2_bytes
    assert (kernel.roof_at("l1") is not None) == ("l1" in kernel.intensities) == is_counted
    assert kernel.missing == [] and ("TMA" in " ".join(words.words(profile, H200))) == (not is_counted)


@pytest.mark.parametrize(
    ("share", "says"), [(0.7, "fewer instructions"), (0.1, "latency-bound"), (None, "where it waits")]
)
def test_what_no_ceiling_explains_is_told_by_the_instructions_that_were_issued(share, says):
    one = launch(warp_instructions=share and share * 1e-3 * 132 * 4 * 1980e6)
    (kernel,) = placed(one).kernels
    assert kernel.regime == "implementation" and says in words.sentence(kernel, 132)
    assert kernel.issued_share == (share and pytest.approx(share))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.floats(1e-6, 1)), min_size=1, max_size=30))
def test_launches_are_grouped_by_kernel_and_shape_and_sorted_by_their_time(launches):
    profile = placed(*(launch(name, seconds, grid=(blocks, 1, 1)) for name, blocks, seconds in launches))
    times = [one.total_s for one in profile.kernels]
    assert times == sorted(times, reverse=True) and fsum(times) == pytest.approx(profile.total_s)
    assert fsum(one.share_of_time for one in profile.kernels) == pytest.approx(1)
    assert sum(one.launches for one in profile.kernels) == profile.launches == len(launches)
    assert len({(one.name, one.grid) for one in profile.kernels}) == len(profile.kernels)


def test_without_some_counts_it_is_placed_as_far_as_they_go():
    """The real report has times and the FLOPs of CUDA cores."""
    profile = place(read_profile(REPORT, "decode"), "gpu0", TABLE.ceilings, TABLE.calls)
    first = profile.kernels[0]
    assert (first.name, first.regime) == ("decode_attention", None)
    assert (
        set(first.missing) == {"clock", "flops", "memory", "l2", "l1", "instructions"}
        and "cuda_core" not in first.missing_flops
    )
    assert 0 < first.roof_at("compute").share < 0.5
    page = words.page(profile, H200, 132, "x.png")
    assert "not known" in page and "ncu --clock-control none --cache-control none" in page
    assert "ncu --" not in words.page(placed(launch()), H200, 132, "x.png")


# ---------------------------------------------------------------- pages


def test_the_page_of_thousands_of_shapes_is_small_and_its_table_adds_up(tmp_path):
    moved = {"memory_read_bytes": 1e9, "l2_bytes": 2e9, "l1_bytes": 3e9, "cuda_core": {"fp32": 1e9}}
    long = "<" + ", ".join(["at::native::MulFunctor<float>"] * 20) + ">"
    launches = [launch(f"elementwise_kernel_{place_of}{long}", 1e-3, **moved) for place_of in range(5000)]
    paths = [
        path for path in sorted(REFERENCE.rglob("*.json")) if path.relative_to(REFERENCE).parts[0] in ("gpu0", "cpu")
    ]
    found = read_results(REFERENCE, paths)
    found.profiles["profiles/my.json"] = record(*launches)
    hashes = {path.relative_to(REFERENCE).as_posix(): file_sha256(path) for path in paths}
    page = derive(found, {"effort": "default"}, hashes)["report.html"]
    assert 1.5e6 < len(page) < 3e6
    assert "5000 launches of 5000 kernels" in page and f"{5000 - words.ROWS} others" in page
    rows = words.table(placed(*launches).kernels).rows
    assert sum(int(row[2]) for row in rows) == 5000


def test_a_long_name_keeps_the_function_and_its_template_arguments():
    (kernel,) = placed(launch()).kernels
    signature = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3>>"
    signature += "(int, float (*)(int))"
    named = kernel.model_copy(update={"name": "vectorized_elementwise_kernel", "signature": signature})
    assert words.title_of(named) == "vectorized_elementwise_kernel<4, MulFunctor<float>, array<char*, 3>>"
    signature = f"void at::native::<unnamed>::norm<c10::BFloat16, (int)-8, (unsigned long)2, {'(bool)1, ' * 40}>(T1 *)"
    title = words.title_of(kernel.model_copy(update={"signature": signature}))
    assert title.startswith("norm<BFloat16, -8, 2, 1, 1, ") and len(title) == words.LONGEST


# ---------------------------------------------------------------- commands


@pytest.fixture
def place_in(tmp_path, monkeypatch, capsys):
    def run(*arguments) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        return load("place").main([str(one) for one in arguments]), capsys.readouterr().out

    return run


def test_a_report_and_a_card_make_a_table_and_a_picture(place_in, tmp_path):
    status, said = place_in(REPORT, "--card", REFERENCE)
    made = tmp_path / "results" / "placed"
    assert status == 0 and "decode_attention" in said and "Not in this report" in said
    assert (made / "placement.png").read_bytes().startswith(b"\x89PNG")
    assert read(PlacedProfile, made / "placement.json").launches == 6
    assert "placement.png" in (made / "placement.md").read_text()


def test_without_a_report_it_prints_the_command_that_collects_one_as_the_page_has_it(place_in):
    status, said = place_in("--card", REFERENCE)
    assert status == 0 and profile_report.command(HOPPER) in said.splitlines()
    assert profile_report.command(HOPPER) in (CHECKOUT / "docs" / "placing.md").read_text().splitlines()
    assert f"make place REPORT=my.ncu-rep CARD={REFERENCE}" in said


def test_a_report_of_another_card_is_refused_in_a_line(place_in, monkeypatch):
    module = load("place")
    monkeypatch.setattr(module, "read_profile", lambda path, name: record(launch(), name="NVIDIA A100-SXM4-80GB"))
    assert module.main([str(REPORT), "--card", str(REFERENCE)]) == 1
    status, said = place_in(RANGES, "--card", REFERENCE)
    assert (status, len(said.splitlines())) == (1, 2)  # of both
    assert "profiled on NVIDIA A100-SXM4-80GB, but the ceilings are of NVIDIA H200" in said


@pytest.mark.parametrize(
    "given", [["nothing.ncu-rep"], [__file__], [str(REPORT), "--card", "no-such-run"], [str(REPORT)]]
)
def test_what_is_wrong_is_told_in_a_line(place_in, given):
    card = [] if "--card" in given or given == [str(REPORT)] else ["--card", REFERENCE]
    status, said = place_in(*given, *card)
    assert status == 1 and len(said.splitlines()) == 1


# ---------------------------------------------------------------- in a run


@pytest.fixture
def again(tmp_path_factory, tmp_path) -> GpuRun:
    return copy_of(whole_run(tmp_path_factory), tmp_path)


def test_a_profile_is_placed_on_the_page_and_nothing_is_measured_for_it(again, tmp_path):
    shutil.copy(REPORT, again.root / "my.ncu-rep")
    again.write_config(f"{CONFIG}\nprofiles: [my.ncu-rep]\n")
    packages = tmp_path / "packages"  # with the real reader in place of the stand-in
    packages.mkdir()
    for fake in FAKES.iterdir():
        if fake.name != "ncu_report":
            (packages / fake.name).symlink_to(fake)
    env = {"PYTHONPATH": str(packages)}
    below = {path for path in again.planned(env=env) if "/" in path}
    assert below == {"profiles/my.json"}
    again.finish(env=env)
    page = (again.results / "report.html").read_text()
    assert 'id="placed"' in page and "decode_attention, 2048 blocks of 128" in page
    assert (again.results / "kernels.png").is_file()
    assert [one.name for one in read_table(again.results / "roofline.json").profiles] == ["my"]
    (again.root / "my.ncu-rep").unlink()
    assert not again.planned(env=env)  # as where its archive was unpacked
    done = again.command("verify", again.archive())
    assert done.returncode == 0 and done.stdout.startswith("ok: "), done.stdout + done.stderr
