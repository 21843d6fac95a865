"""Write the documents that follow from the code: schemas, settings, constants of predictions, simulated tables."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

if __name__ == "__main__":
    from roofline.run import documents as of_code
    from roofline.simulations import documents as of_simulations

    for path, text in {**of_code.documents(), **of_simulations.documents()}.items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)
