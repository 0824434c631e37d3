"""``python -m hookbus_cli`` is ``hookbus``."""

from hookbus_cli.main import main

main()
