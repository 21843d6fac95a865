"""Draw the committed pages and pictures again, from the archives and the cards that are known now, and write
docs/roofline.schema.json.

    .venv/bin/python reference/redraw.py

Needed after a run was added to reference/cards, or a row, a check, a page or a picture was changed. roofline.json stays
as archived.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

REFERENCE = Path(__file__).parent.resolve()
LINK = re.compile(r"\[(.+?)\]\(\1\)")  # [report.html](report.html)
sys.path[:0] = [str(REFERENCE.parent / "workflow" / folder) for folder in ("scripts", "commands")]

import verify

from roofline.run.archive import opened
from roofline.table.run_records import read_results


def redraw(archive: Path) -> list[str]:
    """Replace what is committed next to an archive by what follows from it now, and return the names."""
    with opened(archive) as (root, manifest, _), tempfile.TemporaryDirectory() as folder:
        results = read_results(root / "results", [root / output.path for output in manifest.outputs])
        verify.redraw_run(results, manifest, Path(folder))
        names = [path.name for path in sorted(archive.parent.iterdir()) if (Path(folder) / path.name).is_file()]
        pages = [name for name in names if name != "roofline.json"]
        for name in pages:
            shutil.copy(Path(folder) / name, archive.parent / name)
        for page in archive.parent.glob("ROOFLINE.md"):
            page.write_text(name_missing_pages(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")
        shutil.copy(Path(folder) / "roofline.schema.json", REFERENCE.parent / "docs")
    return pages


def name_missing_pages(text: str, folder: Path) -> str:
    """Return a page with the names of files that are not committed in its folder in place of links to them."""
    return LINK.sub(lambda link: link[0] if (folder / link[1]).exists() else f"`{link[1]}`", text)


if __name__ == "__main__":
    for archive in sorted(REFERENCE.rglob("records.tar.gz")):
        print(f"{archive.parent.relative_to(REFERENCE)}: {', '.join(redraw(archive))}")
