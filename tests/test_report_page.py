"""report.html and ROOFLINE.md: what they tell of records, and how the page behaves in a browser."""

import re
import shutil
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest
from records_factory import (
    GEMM,
    bandwidth_record,
    cell,
    counted_cell,
    counters_record,
    instructions_record,
    operator_record,
    peak_record,
    profiler_record,
    told,
)
from records_factory import device_record as device

from roofline.core.formatting import duration, number
from roofline.records.base import read
from roofline.records.manifest import Manifest
from roofline.report.model import report
from roofline.report.rendering import html_page, text_page
from roofline.run.manifest import hashes
from roofline.table.load import Asked, load
from roofline.table.rows import CheckResult, Roofline
from roofline.table.run_records import read_results

REFERENCE = Path(__file__).parents[1] / "reference/nvidia-h200"
SCRIPT = "<script>alert(1)</script>"
MOST_BYTES = 6_000_000
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def reference():
    manifest = read(Manifest, REFERENCE / "manifest.json")
    paths = [path for output in manifest.outputs if (path := REFERENCE / output.path.removeprefix("results/")).exists()]
    found = read_results(REFERENCE, paths)
    sha256 = hashes(manifest.outputs)
    return report(load(found, Asked(**manifest.asked), sha256), sha256)


@pytest.fixture(scope="module")
def html(reference):
    return html_page(reference)


@pytest.fixture(scope="module")
def words(reference):
    return roofline_page(reference)


def hostile():
    """A run whose user names things in HTML."""
    info = GEMM.model_copy(update={"name": "own", "title": SCRIPT, "picture": "own"})
    named = {"operator": "own", "implementation": SCRIPT}
    cells = [cell("gpu0", 1e-3 * n, 0.9e-3 * n, n=n, **named) for n in (1, 2)]
    counted = counted_cell(cells[0], warp_instructions=1e6, not_counted={"sm_write_sectors": SCRIPT})
    return told(
        device("gpu0", name=SCRIPT),
        peak_record("gpu0", "fp32", 55, sustained=50, vendor=60),
        bandwidth_record("gpu0", hbm_read=4000),
        operator_record("gpu0", *cells, operator=info),
        instructions_record("gpu0", 390e9),
        profiler_record("gpu0"),
        counters_record("gpu0", counted),
        made_up=[CheckResult(device="gpu0", check=SCRIPT, result="fail", reason=SCRIPT)],
    )


class Shown(HTMLParser):
    """The text that a reader sees; raises where an element is closed that is not the last one opened."""

    VOID = ("meta", "input", "img")

    def __init__(self, text: str):
        super().__init__()
        self.open, self.texts, self.links = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open += [] if tag in self.VOID else [tag]
        self.links += [value for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.texts).split())


# ---------------------------------------------------------------- what is told


def test_the_page_tells_the_run_of_the_reference(html):
    shown, table = Shown(html), read(Roofline, REFERENCE / "roofline.json")
    fp16 = next(c for c in table.ceilings if (c.device, c.name) == ("gpu0", "fp16"))
    for words in (f"{number(fp16.burst_tflops)} TFLOPS fp16 burst", *(one.reason for one in table.faults)):
        assert words in shown.words, words
    assert len(html.encode()) < MOST_BYTES


def test_nothing_is_fetched(html):
    assert all(re.fullmatch(r"#[\w-]+|[\w]+\.(png|svg|json|md)", link) for link in Shown(html).links)
    assert "@import" not in html.partition("</style>")[0] and "url(" not in html.partition("</style>")[0]


def roofline_page(run) -> str:
    return text_page("ROOFLINE.md.j2", run)


def test_the_page_for_a_repository_is_short_and_whole(reference, words):
    assert len(reference.operators) == 4 and len(reference.counted.rows) >= 10
    counted = sum(bool(re.search(r"\w", word)) for word in words.split())
    assert counted <= 2800 and "![The measured roofline](roofline.png)" in words and "{{" not in words


def test_of_several_cards_of_one_model_the_words_have_the_tables_of_the_first():
    """Eight cards in full would be a book; the page has them all."""
    streams = [bandwidth_record(card, hbm_read=4000) for card in ("gpu0", "gpu1", "gpu2")]
    several = told(*(device(one.device) for one in streams), *streams)
    words = roofline_page(several)
    assert several.duplicates == ["gpu1", "gpu2"]
    assert words.count("| device memory |") == 1 < html_page(several).count("device memory")


def test_what_a_user_named_in_html_is_shown_as_text():
    run = hostile()
    html = html_page(run)
    assert SCRIPT not in html and "alert(1)" in html
    assert SCRIPT in Shown(html).words


OF_ONE_SIZE = (
    device("gpu0"),
    peak_record("gpu0", "fp32", 55),
    bandwidth_record("gpu0", hbm_read=4000),
    operator_record("gpu0", cell("gpu0", 20e-3, 19e-3)),
)


def test_operations_of_the_users_own_are_on_both_pages_and_what_they_lack_is_named():
    mine = {"name": "my_kernel", "flops": 2e9, "memory_bytes": 4e8, "dtype": "fp32"}
    others = mine | {"name": "my_half", "dtype": "fp16"}, mine | {"name": "of_another_device", "device": "cpu"}
    run = told(*OF_ONE_SIZE, asked=Asked(operations=[mine, *others]))
    for text in (Shown(html_page(run)).words, roofline_page(run)):
        assert "my_kernel" in text and "of_another_device" not in text
    assert [one.partition(":")[0] for one in run.main.skipped] == ["my_half"]


def test_a_run_without_operators_or_load_has_a_page():
    run = told(device("cpu"), bandwidth_record("cpu", dram_read=80))
    assert "dram_read" in Shown(html_page(run)).words and "dram_read" in roofline_page(run)


def test_a_refused_profiler_gives_its_reason():
    run = told(device("gpu0"), bandwidth_record("gpu0", hbm_read=4000), profiler_record("gpu0", refused="not allowed"))
    assert "not allowed" in Shown(html_page(run)).words and "not allowed" in roofline_page(run)
    assert run.counted.rows == []


def test_every_cell_of_an_operator_has_a_row_with_its_prediction(reference):
    attention = next(part for part in reference.operators if part.title == "decode attention")
    cells = [one for one in read(Roofline, REFERENCE / "roofline.json").operators if one.operator == "decode_attention"]
    assert len(attention.cells.rows) == len(cells) > 1
    row = next(row for row in attention.cells.rows if row[:4] == ["gpu0", "fused_graph core", "fp16", "batch 1, S 128"])
    key = ("gpu0", "fused_graph", "core", "fp16", 1, 128)
    (one,) = (
        c for c in cells if (c.device, c.implementation, c.scope, c.dtype, c.shape["batch"], c.shape["seq_len"]) == key
    )
    assert row[4:7] == [duration(one.cpu_time_s), str(one.samples), duration(one.gpu_time_s)]


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # the tests of the words do without

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        path = next(filter(None, map(shutil.which, (*CHROMIUMS, playwright.chromium.executable_path))), None)
        if not path:
            pytest.skip("no Chromium on this machine: apt-get install chromium")
        chromium = playwright.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def opened(browser, html, tmp_path_factory):
    """The page in a window of some width; what the console said is kept beside it."""
    folder = tmp_path_factory.mktemp("page")
    pages = {}

    def open_page(width: int, text: str = html):
        key = (width, hash(text))
        if key not in pages:
            file = folder / f"{len(pages)}.html"
            file.write_text(text, encoding="utf-8")
            window = browser.new_page(viewport={"width": width, "height": 900})
            said: list[str] = []
            window.on("console", lambda message: said.append(message.text))
            window.on("pageerror", lambda error: said.append(str(error)))
            window.on("request", lambda request: said.append(request.url) if request.url[:5] != "file:" else None)
            window.goto(file.as_uri())
            window.wait_for_selector("body[data-ready]")
            pages[key] = window, said
        return pages[key]

    return open_page


# Elements that reach beyond the window or beyond a parent that hides what is over; what scrolls of itself may.
CUT = """() => [...document.querySelectorAll("body *")].filter(one => {
  if (one.closest(".table, pre, svg, script, style, .filters input") || !one.getClientRects().length) return false;
  const box = one.getBoundingClientRect();
  return box.right > innerWidth + 1 || box.left < -1 || one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0
    && getComputedStyle(one).overflowX === "hidden";
}).map(one => one.outerHTML.slice(0, 100))"""
# Pairs of texts of one chart, or of the pyramid, that lie over one another: titles, ticks, legends.
OVERLAPS = """() => [...document.querySelectorAll(".chart, .pyramids svg")].flatMap(chart => {
  const texts = [...chart.querySelectorAll(".xtick text, .ytick text, .xtitle, .ytitle, .legendtext, .pyramids text")]
    .filter(one => one.textContent && one.getBoundingClientRect().width);
  return texts.flatMap((one, i) => texts.slice(i + 1).filter(other => {
    const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
    return a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
  }).map(other => `${chart.id}: ${one.textContent} / ${other.textContent}`));
})"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1300, 420])
def test_nothing_is_cut_overlaps_or_complains(opened, html, width):
    window, said = opened(width, html)
    assert said == []
    assert window.evaluate("document.documentElement.scrollWidth") <= width
    assert window.evaluate(CUT) == [] and window.evaluate(OVERLAPS) == []
    assert window.locator(".chart .main-svg").count() > 10


NAMES = """() => {
  const chart = document.getElementById("roofline"), plot = chart.querySelector(".nsewdrag").getBoundingClientRect();
  return [...chart.querySelectorAll(".annotation-text")].map(one => one.getBoundingClientRect()).map(box =>
    [box.left - plot.left, box.top - plot.top, box.right - plot.left, box.bottom - plot.top, plot.width, plot.height]);
}"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1300, 420])
def test_names_of_ceilings_lie_within_the_chart_and_apart(opened, width):
    window, _ = opened(width)
    cpu = window.locator("input[name='device'][value='cpu']").locator("..")
    cpu.click()
    window.wait_for_timeout(200)
    names = window.evaluate(NAMES)
    assert len(names) >= 8
    for left, top, right, bottom, width, height in names:
        assert left > -1 and top > -1 and right < width + 1 and bottom < height + 1
    level = [box[:4] for box in names if box[3] - box[1] < 20]  # those that are not turned
    for (left, top, right, bottom), other in combinations(level, 2):
        assert right < other[0] or other[2] < left or bottom - 3 < other[1] or other[3] - 3 < top
    cpu.click()


PLACE = """label => {
  const chart = document.getElementById("roofline"), { xaxis, yaxis } = chart._fullLayout;
  for (const trace of chart.data) for (const [i, text] of (trace.text || []).entries()) {
    if (!text.includes(label) || trace.visible === false) continue;
    const box = chart.querySelector(".nsewdrag").getBoundingClientRect();
    return [box.left + xaxis.d2p(trace.x[i]), box.top + yaxis.d2p(trace.y[i])];
  }
}"""


def visible(window) -> list[dict]:
    return window.evaluate("document.getElementById('roofline').data.filter(t => t.visible !== false).map(t => t.meta)")


@pytest.mark.browser
def test_toggles_choose_device_operator_and_dtype(opened):
    window, said = opened(1300)
    assert {meta["device"] for meta in visible(window)} == {"gpu0"}

    def toggle(name: str, value: str) -> None:
        window.locator(f"input[name='{name}'][value='{value}']").locator("..").click()
        window.wait_for_timeout(50)

    toggle("device", "cpu")
    assert {meta["device"] for meta in visible(window)} == {"gpu0", "cpu"}
    toggle("operator", "gemm")
    assert "gemm" not in {meta.get("operator") for meta in visible(window)}
    toggle("dtype", "fp16")
    assert "fp16" not in {meta.get("dtype") for meta in visible(window)}
    assert "predicted" not in {meta["kind"] for meta in visible(window)}
    toggle("also", "predicted")
    assert "predicted" in {meta["kind"] for meta in visible(window)}
    for name, value in (("device", "cpu"), ("operator", "gemm"), ("dtype", "fp16"), ("also", "predicted")):
        toggle(name, value)
    assert said == []


@pytest.mark.browser
def test_a_table_sorts_by_what_its_figures_are_worth(opened):
    window, _ = opened(1300)
    head = window.locator("#operator-gemm-cells th button", has_text="measured")
    for order in (1, -1):
        head.click()
        column = window.locator("#operator-gemm-cells tbody td:nth-child(5)").all_text_contents()
        size = {"us": 1e-6, "ms": 1e-3}
        times = [float(value) * size[unit] for value, unit in (text.rstrip("*").split() for text in column)]
        assert times == sorted(times, reverse=order < 0) and len(times) == 10


@pytest.mark.browser
def test_it_prints(opened):
    window, said = opened(1300)
    pdf = window.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and 5 < len(re.findall(rb"/Type\s*/Page\b", pdf)) < 60
    assert said == []


@pytest.mark.browser
def test_names_in_html_run_nothing(opened):
    window, said = opened(1300, html_page(hostile()))
    assert said == [] and window.locator("h1").inner_text() == SCRIPT
    x, y = window.evaluate(PLACE, "alert(1)")
    window.locator("#roofline").scroll_into_view_if_needed()
    x, y = window.evaluate(PLACE, "alert(1)")
    window.mouse.move(x, y)
    window.wait_for_selector("#roofline .hoverlayer .hovertext text")
    assert SCRIPT in " ".join(window.locator("#roofline .hoverlayer .hovertext").all_text_contents())
