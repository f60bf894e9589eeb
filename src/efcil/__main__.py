"""`python -m efcil` is the command line."""

import sys

from efcil.cli import main

sys.exit(main())
