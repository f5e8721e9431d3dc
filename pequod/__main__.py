"""`python -m pequod`: the command line."""

import sys

from pequod.cli import main

sys.exit(main())
