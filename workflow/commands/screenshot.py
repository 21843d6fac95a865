"""Draw docs/report.png anew: the top of the reference's report, as Chromium shows it.

The picture names the report that it is of by its hash; a test compares them.
"""

import io
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from PIL import Image, PngImagePlugin
from playwright.sync_api import sync_playwright

from roofline.records.files import file_sha256

CHECKOUT = Path(__file__).absolute().parents[2]
REPORT, PICTURE = CHECKOUT / "reference/nvidia-h200/report.html", CHECKOUT / "docs/report.png"
OF = "sha256 of report.html"
WIDTH, HEIGHT, COLOURS = 1000, 1760, 256

if __name__ == "__main__":
    with sync_playwright() as playwright:
        path, arguments = shutil.which("chromium"), ["--no-sandbox", "--disable-gpu"]
        page = playwright.chromium.launch(executable_path=path, args=arguments).new_page(
            viewport={"width": WIDTH, "height": HEIGHT}
        )
        page.goto(REPORT.as_uri())
        page.wait_for_selector("#roofline .main-svg")
        shown = Image.open(io.BytesIO(page.screenshot()))
    made_of = PngImagePlugin.PngInfo()
    made_of.add_text(OF, file_sha256(REPORT))
    shown.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True, pnginfo=made_of)
    print(PICTURE)
