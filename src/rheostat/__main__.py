"""`python -m rheostat` is the same as `rheostat`."""

from rheostat.cli import main

main()
