"""`python -m` runs the command line."""

from fedchord.cli import main

main()
