"""`python -m apps.newp`: Newp in the browser."""

import sys
from functools import partial

from apps import run
from apps.newp.app import Newp, fill, install

PORT = 8002


def main() -> int:
    parser = run.options("newp", PORT, "Newp, a news site on Pequod.")
    parser.add_argument(
        "--separate", action="store_true", help="read pages piece by piece, for comparison"
    )
    given = parser.parse_args()
    make, installing = (partial(one, separate=given.separate) for one in (Newp, install))
    return run.run(make, given, installing, fill)


if __name__ == "__main__":
    sys.exit(main())
