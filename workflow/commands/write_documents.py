"""Write the documents that follow from the code: schemas, the table of settings, the constants of predictions."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

if __name__ == "__main__":
    from roofline.run.documents import documents

    for path, text in documents().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)
