"""`python -m hurl` is the command line."""

from hurl.cli import main

main()
