"""`python -m tausid.cli`, the same as `tausid`."""

from tausid.cli import main

main()
