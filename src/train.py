"""`python -m src.train` in a checkout where nothing is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if __name__ == "__main__":
    from gyral.train import main

    main()
