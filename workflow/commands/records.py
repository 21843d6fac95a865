"""Pack those records of a run that comparisons read, no samples of operators and no pages, into results/records/.

python workflow/commands/records.py RUN...      (archives or results folders)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.run.archive import Refused
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.runs import pack_records

WHERE = Path("results", "records")

if __name__ == "__main__":
    print_what_can_be_printed()
    if not sys.argv[1:]:
        sys.exit(__doc__)
    try:
        for run in sys.argv[1:]:
            path = pack_records(Path(run), WHERE)
            print(f"{path}, {path.stat().st_size / 1e6:.2f} MB")
    except (Refused, OSError) as error:
        sys.exit(str(error))
