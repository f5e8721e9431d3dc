"""Applications on Pequod, each a package with its cache joins in `joins.pq`."""
