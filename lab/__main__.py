"""``python3 -m lab VERB``."""

import sys

from lab.cli import main

sys.exit(main(sys.argv[1:]))
