"""`python -m nodeplug`."""

from nodeplug.cli import main

main()
