"""`python -m delegraph` is `delegraph`."""

from delegraph.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
