"""``python -m kernelgrad.cli``."""

import sys

from kernelgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
