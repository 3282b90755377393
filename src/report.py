"""`python -m src.report` in a checkout where nothing is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if __name__ == "__main__":
    from gyral.report import main

    main()
