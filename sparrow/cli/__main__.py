"""``python -m sparrow.cli``."""

import sys

from sparrow.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
