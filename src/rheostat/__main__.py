"""`python -m rheostat` is `rheostat`."""

from rheostat.cli import main

if __name__ == "__main__":
    main()
